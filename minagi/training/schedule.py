"""What a stream does by its step alone: its rate and its window; and by how often it had to go back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minagi.finite import number

FLOOR = 0.1  # of the rate, at the last step
RAMP = 0.35  # share of the steps over which the window grows
WINDOW_STEP = 256  # characters it grows by at a time


@dataclass(frozen=True)
class ScheduledWindow:
    """The window at a step, as a run tells of it first; nothing has to be gained for it to grow."""

    context: int
    start: int
    ceiling: int
    gain_min: float = 0.0


class Schedule:
    """A cosine rate with warm-up, and a window that grows geometrically from `start` to `ceiling` characters.

    `factor` and `window_factor` are what ways back have left of both; 1 until there was one.
    """

    def __init__(self, steps: int, warmup: int, start: int, ceiling: int) -> None:
        """`steps` in all, of which the first `warmup` warm up."""
        self.steps, self.warmup, self.start, self.ceiling = steps, warmup, start, ceiling
        self.factor = self.window_factor = 1.0

    def rate(self, step: int) -> float:
        """The share of the full rate at `step`, counted from 0: up in `warmup` steps, down to a tenth."""
        if step < self.warmup:
            return self.factor * (step + 1) / self.warmup
        done = min((step - self.warmup) / max(self.steps - 1 - self.warmup, 1), 1.0)
        return self.factor * (FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * done)) / 2)

    def window(self, step: int) -> int:
        """Characters in the window at `step`."""
        ramp = self.steps * RAMP
        window = self.ceiling
        if step < ramp:
            grown = self.start * (self.ceiling / self.start) ** (step / ramp) - self.start
            window = min(self.start + int(grown) // WINDOW_STEP * WINDOW_STEP, self.ceiling)
        return max(int(window * self.window_factor), self.start)

    def told(self, step: int) -> ScheduledWindow:
        """The window at `step` and where it goes."""
        return ScheduledWindow(self.window(step), self.start, self.ceiling)

    def halve(self, window: bool) -> None:
        """Half the rate from here on, and half the window (never below its start) where that is asked."""
        self.factor /= 2
        if window:
            self.window_factor /= 2

    def state_dict(self) -> dict[str, float]:
        """What ways back have left, as JSON."""
        return {"factor": self.factor, "window_factor": self.window_factor}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict()`; what makes no sense counts as no way back."""
        self.factor, self.window_factor = (
            value if value is not None and 0 < value <= 1 else 1.0
            for value in (number(state.get("factor")), number(state.get("window_factor")))
        )
