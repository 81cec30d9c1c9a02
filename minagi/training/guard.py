"""What a run does when its numbers go wrong: skip the step, go back, or stop. Decisions only, no tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from minagi.units import LN2

SKIPS_RUNNING = 3  # non-finite steps running that send the run back


@dataclass(frozen=True)
class Rescue:
    """What to do next, and the sentence that says why.

    act: `skip` the step; `revert` to `to` with half the rate (and half the window where `halve_window`);
    `stop`: return to `to`, so that what is on disk and in memory is sound, then end the run.
    """

    act: Literal["skip", "revert", "stop"]
    sentence: str
    to: Literal["", "last", "best"] = ""
    halve_window: bool = False


class Guard:
    """Counts non-finite steps, watches held-out for divergence and allows `max_reverts` ways back a run.

    `best` is the lowest held-out reading (nats) known; set it from the model's record, or to None where
    the held-out text itself has changed and old readings mean nothing.
    """

    def __init__(self, revert_factor: float = 1.5, max_reverts: int = 3, best: float | None = None) -> None:
        self.best = best
        self.skipped = 0  # non-finite steps in all
        self.reverts = 0  # ways back taken in this run
        self._factor, self._max_reverts = revert_factor, max_reverts
        self._running = 0

    def finite_step(self) -> None:
        """A step whose loss and gradient were finite."""
        self._running = 0

    def nonfinite_step(self, what: str) -> Rescue:
        """A step whose `what` ("loss", "gradient") was NaN or infinite; it must not be applied."""
        self.skipped += 1
        self._running += 1
        if self._running < SKIPS_RUNNING:
            return Rescue("skip", f"The {what} of a step was not finite; the step was skipped.")
        self._running = 0
        return self._back(f"{SKIPS_RUNNING} steps running had a {what} that was not finite", "last", False)

    def held_out(self, nats: float) -> Rescue | None:
        """Judge a held-out reading. None while all is well; `best` follows a lower one."""
        if self.best is not None and not nats <= self._factor * self.best:
            why = (
                f"held-out went to {nats / LN2:.3f} bits a character, over {self._factor:g} times the best "
                f"of {self.best / LN2:.3f}"
            )
            return self._back(why, "best", True)
        if not math.isfinite(nats):
            return self._back("held-out is not a finite number", "last", True)
        self.best = nats if self.best is None else min(self.best, nats)
        return None

    def _back(self, why: str, to: Literal["last", "best"], halve_window: bool) -> Rescue:
        place = "the last checkpoint" if to == "last" else "the best checkpoint"
        if self.reverts >= self._max_reverts:
            return Rescue(
                "stop",
                f"Stopped, back at {place}: {why}, after {self.reverts} reverts already. Look at the text "
                "being read, or lower the rate (--lr), before going on.",
                to,
            )
        self.reverts += 1
        halved = "rate and window" if halve_window else "rate"
        return Rescue(
            "revert",
            f"Back to {place} with half the {halved}: {why} (revert {self.reverts} of {self._max_reverts}).",
            to,
            halve_window,
        )
