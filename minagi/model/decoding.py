"""Greedy writing with adaptive suppression: what was written lately is held back, no random numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

REACH = 64  # characters of the text that suppression looks back on


class Suppression:
    """Chooses the next symbol of a text from its logits and what the text holds already.

    From each symbol's logit, strength · Σ decay^age over its occurrences among the last 64
    characters is taken off (age 0 = the newest). A repetition penalty r ≠ 1 first divides positive
    and multiplies negative logits of every symbol already present (Keskar et al. 2019).
    """

    def __init__(self, strength: float, decay: float, penalty: float = 1.0) -> None:
        self.strength, self.penalty = strength, penalty
        self._discount = strength * decay ** np.arange(REACH)
        self._recent: list[int] = []  # oldest first
        self._present: set[int] = set()

    def saw(self, ids: Iterable[int]) -> None:
        """These symbols were added to the text."""
        ids = list(ids)
        self._recent = (self._recent + ids)[-REACH:]
        if self.penalty != 1:
            self._present.update(ids)

    def choose(self, logits: np.ndarray) -> int:
        """The next symbol given logits [V]; ties go to the lower id."""
        if self.penalty != 1 and self._present:
            logits = logits.copy()
            present = sorted(self._present)
            held = logits[present]
            logits[present] = np.where(held > 0, held / self.penalty, held * self.penalty)
        if self.strength and self._recent:
            logits = logits - np.bincount(
                self._recent[::-1], weights=self._discount[: len(self._recent)], minlength=len(logits)
            ).astype(logits.dtype)
        return int(logits.argmax())
