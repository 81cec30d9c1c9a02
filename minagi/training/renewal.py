"""When n-gram rows begin anew, and when what began anew is read with (docs/decisions/cpu-profile.md).

Rows that have seen a text know it by heart: whoever reads it again with them learns to trust them more than
other text deserves. Young rows have seen nothing of what comes before them in a round through the text, and
so the rest of the model learns from all of it again at the full rate.
"""

from __future__ import annotations

from typing import Any

from minagi.finite import count
from minagi.model.ngram import NgramEmbedding
from minagi.text.lanes import WindowOfText

ENOUGH = 0.7  # of what the rows before them learned from: then young rows read better, the rest knowing them


class Renewal:
    """Has the rows ready for every window. `on` is whether they, if there are any, ever begin anew."""

    def __init__(self, rows: NgramEmbedding | None, on: bool) -> None:
        self._rows = rows if on else None
        self._begun = 0  # characters of the model's life after which the rows that learn began
        self._before = 0  # characters that those learned from that were read with when they began

    @property
    def on(self) -> bool:
        return self._rows is not None

    def prepare(self, text: WindowOfText, chars: int) -> int:
        """Have the rows ready for `text`, the model having read `chars` characters in its life: how often the
        rows that learn, or else the model, have read it."""
        rows = self._rows
        if rows is None:
            return text.times
        if text.begins_round:
            self._before, self._begun = chars - self._begun, chars
            rows.begin_anew()
        elif rows.young is not None and chars - self._begun >= ENOUGH * self._before:
            rows.take_over()
        return text.again

    def state_dict(self) -> dict[str, int]:
        """As JSON."""
        return {"begun": self._begun, "before": self._before}

    def load_state(self, state: dict[str, Any], chars: int) -> None:
        """Go on where `state` was taken, after `chars` characters; young rows that it knows nothing of go."""
        self._begun = min(count(state.get("begun")), chars)
        self._before = count(state.get("before"))
        if self._rows is not None and not self._before:
            self._rows.have_young(False)
