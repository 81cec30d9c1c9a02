"""The context window grows by evidence: only while its deep end predicts better than its first half."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from minagi.config import Model
from minagi.finite import number
from minagi.units import LN2

PIECES_MIN = 8  # measurements of each part before a batch of evidence is judged


@dataclass(frozen=True)
class WindowMove:
    """A batch of evidence was judged, or the window changed. `context` is its length from now on."""

    context: int
    grew: bool
    gain: float | None  # nats, of the last batch judged
    next_at_chars: int  # characters of the model's life at which growth is decided again
    sentence: str


class WindowGrowth:
    """Owner of the window's length.

    `gain` is the mean loss of the first half of the window minus that of its last quarter, over a batch
    gathered for `every_chars` characters. While gain > `gain_min` the window grows `step` characters
    every `grow_every_chars`. All lengths and cadences are in characters.
    """

    def __init__(
        self,
        *,
        start: int,
        end: int,
        step: int,
        grow_every_chars: int,
        every_chars: int,
        gain_min: float,
    ) -> None:
        """`end` is the ceiling. Rotary tables are made as long as a text needs, so they set none."""
        self.ceiling = end
        self.start = min(start, self.ceiling)
        self.context = self.start
        self.gain: float | None = None
        self.gain_min = gain_min
        self._step, self._grow_every, self._every = step, max(1, grow_every_chars), max(1, every_chars)
        self._batch_since = 0  # characters of the model's life, as is the next
        self._grown_at = 0
        self._clear()

    def _clear(self) -> None:
        self._sums = [0.0, 0.0]  # nats times pieces: first half, last quarter
        self._pieces = [0, 0]

    @property
    def next_at_chars(self) -> int:
        """When growth is decided again."""
        return self._grown_at + self._grow_every

    def observe(self, losses: npt.ArrayLike, chunk: int, chars: int) -> WindowMove | None:
        """Take one step's losses, (T,) nats by position in the window, of a step that slid `chunk`.

        chars: characters read in the model's life, this step's included. Returns what changed, or None.

        A window of several chunks counts as that many measurements; one too short to hold a whole chunk
        in its last quarter has no deep chunk, so it is measured by position and counts as one.
        """
        nats = np.asarray(losses, dtype=np.float64)
        first, deep = nats[: len(nats) // 2], nats[len(nats) - len(nats) // 4 :]
        if len(deep) and np.isfinite(nats).all():
            for part, values in enumerate((first, deep)):
                pieces = max(1, len(values) // chunk)
                self._sums[part] += float(values.mean()) * pieces
                self._pieces[part] += pieces
        judged = self._judge(chars)
        grew = self._grow(chars)
        if not judged and not grew:
            return None
        return WindowMove(self.context, grew > 0, self.gain, self.next_at_chars, self._sentence(grew))

    def _judge(self, chars: int) -> bool:
        if chars - self._batch_since < self._every or min(self._pieces) < PIECES_MIN:
            return False
        self.gain = self._sums[0] / self._pieces[0] - self._sums[1] / self._pieces[1]
        self._batch_since = chars
        self._clear()
        return True

    def _grow(self, chars: int) -> int:
        """Characters grown by. A growth that was not earned when it was due is not made up for later."""
        due = (chars - self._grown_at) // self._grow_every
        if due < 1:
            return 0
        self._grown_at += due * self._grow_every
        if self.gain is None or self.gain <= self.gain_min:
            return 0
        grown = min(self.context + due * self._step, self.ceiling) - self.context
        self.context += grown
        return grown

    def _sentence(self, grew: int) -> str:
        gained = "nothing measured"
        if self.gain is not None:
            gain = self.gain / LN2
            gained = f"looking back gains {gain:+.{self._digits(gain)}f} bits a character"
        need = f"({gained}; {self.gain_min / LN2:.3g} needed)"
        if grew:
            return f"The window grew by {grew} to {self.context} characters {need}."
        if self.context >= self.ceiling:
            return f"The window stays at its ceiling of {self.ceiling} characters ({gained})."
        if self.gain is not None and self.gain > self.gain_min:
            return f"The window of {self.context} characters earns its growth {need}."
        return f"The window stays at {self.context} characters {need}."

    def _digits(self, gain: float) -> int:
        """As many as tell on which side of what is needed `gain` lies."""
        for digits in range(3, 8):
            shown = round(gain, digits)
            least = float(f"{self.gain_min / LN2:.3g}")  # as it is shown
            if shown != least and (shown > least) == (gain > self.gain_min / LN2):
                return digits
        return 8

    def halve(self) -> int:
        """Half the window, not below its start, for a run that diverged. Returns its length."""
        self.context = max(min(self.start, self.context), self.context // 2)
        self.gain = None
        self._clear()
        return self.context

    def state_dict(self) -> dict[str, Any]:
        """Everything a later session goes on from, as plain JSON."""
        return {
            "context": self.context,
            "gain": self.gain,
            "sums": list(self._sums),
            "pieces": list(self._pieces),
            "batch_since": self._batch_since,
            "grown_at": self._grown_at,
        }

    def load_state(self, state: Mapping[str, Any] | None, context: int | None, chars: int) -> None:
        """Go on from `state_dict()`, or from a bare length (`context_now` of a manifest), at `chars`.

        A ceiling lowered since then binds at once. A state that makes no sense counts from here.
        """
        state = state if isinstance(state, Mapping) else {}
        length = _whole(state.get("context"), _whole(context, 0))
        self.context = min(length, self.ceiling) if length > 0 else self.start
        self._clear()
        self.gain = number(state.get("gain"))
        sums, pieces = state.get("sums"), state.get("pieces")
        if isinstance(sums, list) and isinstance(pieces, list) and len(sums) == len(pieces) == 2:
            read = [number(value) for value in sums]
            if None not in read:
                self._sums = [value or 0.0 for value in read]
                self._pieces = [max(0, _whole(value, 0)) for value in pieces]
        self._batch_since = _mark(state.get("batch_since"), chars)
        self._grown_at = _mark(state.get("grown_at"), chars)


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else default


def _mark(value: Any, chars: int) -> int:
    """A count of characters that lies in the past, else now."""
    mark = _whole(value, chars)
    return mark if 0 <= mark <= chars else chars


def window_of(model: Model) -> WindowGrowth:
    """The window that the settings ask for."""
    return WindowGrowth(
        start=model.context_start,
        end=model.context_end,
        step=model.context_step,
        grow_every_chars=model.context_grow_every_chars,
        every_chars=model.context_every_chars,
        gain_min=model.context_gain_min,
    )
