"""What reading a new subject costs what was known: the arithmetic, without a model.

GAINED is what the new subject's loss fell by, LOST what the known subjects' losses rose by on average (every
subject counts alike), both in nats a byte of held-out text. RETAINED is the share of the known subjects'
lead over chance that is left: (chance − after) / (chance − before), chance being a guess that takes every
byte for as likely as any other, ln 256 = 5.545 nats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minagi.config import LoadedSettings
from minagi.errors import MinagiError

CHANCE = math.log(256)
CHARS = 100_000  # of the new subject, where nothing else is said


@dataclass(frozen=True)
class ForgetRequest:
    """One measurement: what is read, how, and when it is scored."""

    new: Path  # a file or folder: one subject, however many folders it has
    weights: Path
    loaded: LoadedSettings
    old: tuple[Path, ...] = ()  # the known subjects' text; () takes what is recorded with the model
    chars: int = CHARS  # characters of the new subject to read
    points: tuple[int, ...] = ()  # of these, after which everything is scored; start and end always are
    interleave: float = 0.0  # share of all reading that is old text
    plain: bool = False  # plain fine-tuning, see `minagi.experiments.study`
    seed: int | None = None  # None takes data.shuffle_seed
    device: str = "auto"


@dataclass(frozen=True)
class Scored:
    """One subject's held-out text. `windows` are the means of its windows, in their order."""

    nats: float
    windows: tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """Scores by subject when `chars` characters of the new subject, and `read` in all, had been read."""

    chars: int
    read: int
    new: Scored
    known: Mapping[str, Scored]

    @property
    def known_nats(self) -> float:
        """Mean over the known subjects."""
        return sum(scored.nats for scored in self.known.values()) / len(self.known)


@dataclass(frozen=True)
class Change:
    """Nats a byte by which a loss rose, and its standard error over windows (None with fewer than two)."""

    nats: float
    stderr: float | None


@dataclass(frozen=True)
class Cost:
    """A point against the first one."""

    gained: Change  # nats a byte by which the new subject's loss FELL
    lost: Change
    subjects: Mapping[str, Change]  # of the known ones
    retained: float | None  # None where nothing was known: the old text was at chance or worse

    @property
    def gained_per_lost(self) -> float | None:
        """Nats gained for each nat lost; None where no more was lost than its own standard error."""
        lost = self.lost.nats
        return self.gained.nats / lost if lost > (self.lost.stderr or 0) else None


def cost(before: Point, after: Point) -> Cost:
    """What was gained and lost from `before` to `after`. Raises MinagiError when their texts differ."""
    gained = _change(after.new, before.new)
    known = {name: _change(scored, after.known.get(name)) for name, scored in before.known.items()}
    lead = CHANCE - before.known_nats
    return Cost(
        gained=gained,
        lost=_mean(list(known.values())),
        subjects=known,
        retained=(CHANCE - after.known_nats) / lead if lead > 0 else None,
    )


def _change(before: Scored, after: Scored | None) -> Change:
    """Window against window: the same text is scored twice, so its own variety does not count."""
    if after is None or len(after.windows) != len(before.windows):
        raise MinagiError(
            "Held-out text changed while it was measured, so the scores cannot be compared. "
            "Measure again while nobody writes to these files."
        )
    differences = np.subtract(after.windows, before.windows)
    few = len(differences) < 2
    stderr = None if few else float(differences.std(ddof=1) / math.sqrt(len(differences)))
    return Change(after.nats - before.nats, stderr)


def _mean(changes: list[Change]) -> Change:
    """The mean of independent changes."""
    errors = [change.stderr for change in changes]
    known = [error for error in errors if error is not None]
    stderr = math.sqrt(sum(e * e for e in known)) / len(known) if len(known) == len(errors) else None
    return Change(sum(change.nats for change in changes) / len(changes), stderr)


def report(points: list[Point], new: str) -> list[dict[str, Any]]:
    """Every point as plain JSON, costs counted from the first; `new` is the new subject's name."""
    rows = []
    for point in points:
        found = cost(points[0], point)
        rows.append(
            {
                "chars": point.chars,
                "read": point.read,
                "gained": found.gained.nats,
                "gained_stderr": found.gained.stderr,
                "lost": found.lost.nats,
                "lost_stderr": found.lost.stderr,
                "gained_per_lost": found.gained_per_lost,
                "retained": found.retained,
                "new": {new: point.new.nats},
                "known": {name: scored.nats for name, scored in point.known.items()},
            }
        )
    return rows
