"""How losses went between two checkpoints: what a row of the history keeps of it, in few points."""

from __future__ import annotations

from typing import Any

POINTS = 64  # of the train loss that a checkpoint keeps; with some luck twice as many, less one
READINGS = 64  # held-out readings, of which there are far fewer


class Course:
    """Train loss (smoothed) and held-out readings over characters read, since the last checkpoint.

    However long it is until the next one, the points stay few: each time there are twice as many, every other
    one goes, and from then on every other step is left out.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []  # characters, nats
        self.readings: list[tuple[int, float]] = []
        self._every, self._steps = 1, 0

    def read(self, chars: int, nats: float | None) -> None:
        """A step was made, at `chars` characters of the model's life."""
        self._steps += 1
        if nats is None or self._steps % self._every:
            return
        self.points.append((chars, nats))
        if len(self.points) >= 2 * POINTS:
            del self.points[1::2]
            self._every *= 2

    def measured(self, chars: int, nats: float) -> None:
        """The held-out text was read."""
        self.readings = [*self.readings[1 - READINGS :], (chars, nats)]

    def since(self, chars: int) -> dict[str, Any]:
        """What came after `chars`, the last checkpoint, as a row of the history has it. What lies before is
        forgotten, and what comes after is taken down step by step again."""
        self.points = [point for point in self.points if point[0] > chars]
        self.readings = [reading for reading in self.readings if reading[0] > chars]
        self._every = 1
        return {
            "course": [[at, round(nats, 4)] for at, nats in self.points],
            "readings": [[at, round(nats, 4)] for at, nats in self.readings],
        }
