"""What is read again: at what share of the rate, when n-gram rows begin anew for it, and when what began anew
is read with (docs/decisions/cpu-profile.md).

Rows that have seen a text know it by heart: whoever reads it again with them learns to trust them more than
other text deserves. Young rows, but for those of pairs and triples, have seen nothing of what comes before
them in a round through the text, and so the rest of the model learns from all of it again at the full rate. A
model that also knows text which is not read now keeps its rows: young ones would never learn it.
"""

from __future__ import annotations

from typing import Any

from minagi.config import Training
from minagi.finite import count
from minagi.model.ngram import NgramEmbedding
from minagi.text.corpus import Corpus
from minagi.text.lanes import WindowOfText
from minagi.training.progress import Progress

AGAIN_MIN = 0.01  # share of the rate that is left for text read many times
ANEW = (
    "All of the text was read. Read again it would only be recognised, so the tables of n-grams and words "
    "are learned anew; until they know enough, chat and held-out text use those from before."
)
ENOUGH = 0.7  # of what the rows before them learned from: then young rows read better, the rest knowing them


class Renewal:
    """Has the rows, if there are any, ready for every window."""

    def __init__(self, rows: NgramEmbedding | None, training: Training, progress: Progress) -> None:
        self._rows = rows if training.ngram_renew else None
        self._again = training.again_lr_mult
        self._progress = progress
        self._begun = 0  # characters of the model's life after which the rows that learn began
        self._before = 0  # characters that those learned from that were read with when they began
        self._kept = False  # rows that know what is read were kept in this round
        self._told = False

    def prepare(self, text: WindowOfText, corpus: Corpus) -> str:
        """Have the rows ready for `text`, which is of `corpus`; a sentence when they begin anew for the first
        time, else "": a short text is read through many times a minute."""
        rows, chars = self._rows, self._progress.chars
        if rows is None:
            return ""
        if text.begins_round:
            self._kept = not self._all_of_it(corpus)
            if not self._kept:
                self._before, self._begun = chars - self._begun, chars
                rows.begin_anew()
                told, self._told = self._told, True
                return "" if told else ANEW
        if rows.young is None or not (self._kept or chars - self._begun >= ENOUGH * self._before):
            return ""
        self._kept = self._kept or not self._all_of_it(corpus)
        if self._kept:
            rows.have_young(False)
        else:
            rows.take_over()
        return ""

    def share(self, text: WindowOfText) -> float:
        """The share of the rate at which `text` is learnt: less for every time that the rows which learn have
        read it, never nothing."""
        times = text.times if self._rows is None or self._kept else text.again
        return max(AGAIN_MIN, self._again ** min(times, 100))

    def state_dict(self) -> dict[str, int]:
        """As JSON."""
        young = self._rows is not None and self._rows.young is not None
        return {"begun": self._begun, "before": self._before, "kept": int(self._kept), "young": int(young)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken; young rows that it knows nothing of go, and where those it knows of
        are gone, by a run that had no use for them, the others go on knowing what they have read."""
        self._begun = min(count(state.get("begun")), self._progress.chars)
        self._before = count(state.get("before"))
        lost = count(state.get("young")) and (self._rows is None or self._rows.young is None)
        self._kept = bool(count(state.get("kept")) or lost)
        if self._rows is not None and not self._before:
            self._rows.have_young(False)

    def _all_of_it(self, corpus: Corpus) -> bool:
        """Whether all subjects that were ever read are read now."""
        there = {subject.name for subject in corpus.subjects if subject.train}
        return all(name in there for name, known in self._progress.subjects.items() if known.chars)
