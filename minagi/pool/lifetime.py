"""How old and how stale an expert is, on the text clock. One definition, two thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minagi.pool.telemetry import Telemetry


@dataclass(frozen=True)
class Lifetime:
    """Ages and staleness of every expert now.

    `survival` is how many texts an expert may go unadmitted, and as long is a newborn's trial.
    Founders (born with the model) have no trial.
    """

    telemetry: Telemetry
    survival: float

    @property
    def age(self) -> np.ndarray:
        """[E] texts since birth."""
        return self.telemetry.segments - self.telemetry.born

    @property
    def unseen(self) -> np.ndarray:
        """[E] texts since last admitted, never more than since birth."""
        return np.minimum(self.telemetry.segments - self.telemetry.last_seen, self.age)

    @property
    def in_trial(self) -> np.ndarray:
        """[E] newborn that cannot be pruned yet."""
        return (self.telemetry.born > 0) & (self.age < self.survival)

    @property
    def staleness(self) -> np.ndarray:
        """[E] unseen over survival, 0 for a newborn in its trial."""
        return np.where(self.in_trial, 0.0, self.unseen / self.survival)

    def dying(self, at: float) -> np.ndarray:
        """[E] whether an expert counts as dying for the growth brake."""
        return self.staleness >= at

    def kept_ratio(self, at: float, recent_mult: float) -> float:
        """Share not dying, of experts past their trial and younger than `recent_mult` trials; 1 if none."""
        born = self.telemetry.born > 0
        recent = born & (self.age >= self.survival) & (self.age < recent_mult * self.survival)
        return float(1 - self.dying(at)[recent].mean()) if recent.any() else 1.0

    def to_prune(self, on_card: set[int]) -> list[int]:
        """Places of experts no forward admitted for `survival` texts, stalest first; one always remains."""
        stale = self.staleness
        places = [p for p in np.flatnonzero(stale >= 1) if self.telemetry.uid[p] not in on_card]
        places.sort(key=lambda place: (-stale[place], place))
        return [int(place) for place in places[: len(self.telemetry) - 1]]


def survival_texts(survival_chars: float, chunk: int, texts: int, steps: int) -> float:
    """A survival in characters as texts: steps of `chunk`, times the pool's own texts a step."""
    per_step = texts / steps if steps and texts else 1.0
    return max(survival_chars / chunk * per_step, 1.0)
