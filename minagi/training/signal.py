"""GradSNR: how much of the trunk's gradient points the same way from step to step. Shown, never acted on.

It is |mean g|² / mean|g|² over exponentially weighted means of the gradient g, both corrected for their
short history. Near 0 the steps are noise around nothing, near 1 every step says the same. The caller
keeps the running mean of g (it is as large as the trunk) and hands over its squared length:

    if signal.due(step):
        keep = signal.begin(key)                     # 0.0: the mean starts over
        mean.mul_(keep).add_(g, alpha=1 - DECAY)     # all trunk gradients as one vector
        signal.observe(mean · mean, g · g)
    metrics.signal = signal.value
"""

from __future__ import annotations

import math
from collections.abc import Hashable

EVERY = 8  # steps
DECAY = 0.98
READINGS_MIN = 8


class GradSignal:
    """Bookkeeping of the ratio. `value` is None until enough readings are in, then 0..1."""

    def __init__(self) -> None:
        self.value: float | None = None
        self._key: Hashable = None
        self._readings = 0
        self._mean_square = 0.0  # running mean of |g|²

    @staticmethod
    def due(step: int) -> bool:
        """Whether the gradient of optimiser step `step` is measured."""
        return step % EVERY == 0

    def begin(self, key: Hashable) -> float:
        """What the caller's running mean is multiplied by before (1 − DECAY)·g is added.

        key: whatever names the set of gradients (which parameters have one, and their shapes). When it
        changes the means describe something else: everything starts over, and the answer is 0.
        """
        if key != self._key or self._readings == 0:
            self._key, self._readings, self._mean_square, self.value = key, 0, 0.0, None
            return 0.0
        return DECAY

    def observe(self, square_of_mean: float, square: float) -> float | None:
        """Take |running mean|² and |g|², both of this reading's g. Returns `value`.

        A reading that is not finite starts everything over: it stays in the caller's mean for ever.
        """
        if not (math.isfinite(square_of_mean) and math.isfinite(square)):
            self._readings, self.value = 0, None
            return None
        self._readings += 1
        self._mean_square = DECAY * self._mean_square + (1 - DECAY) * square
        if self._readings < READINGS_MIN or self._mean_square <= 0:
            self.value = None
            return None
        correction = 1 - DECAY**self._readings
        ratio = (square_of_mean / correction**2) / (self._mean_square / correction)
        self.value = min(max(ratio, 0.0), 1.0)
        return self.value
