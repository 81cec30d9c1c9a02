"""A run as its history tells it: curves over characters read. Any file gives a run, if only an empty one.

The histories of `minagi read` (one row a checkpoint) and of `minagi stream` (rows of several kinds) are read
alike: whatever figures a row has are taken, whatever makes no sense is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minagi.finite import number
from minagi.units import LN2

POINTS_MAX = 4_096  # of a curve; one that is longer keeps the least and greatest of neighbours
SUBJECTS_MAX = 200
MODELS_MAX = 200  # in one file, the last ones written
HUGE = 1e15  # no figure of a run is larger


class Curve:
    """Readings as they were made: `x` characters read, `y` the figure, `error` its standard error."""

    def __init__(self) -> None:
        self.x: list[float] = []
        self.y: list[float] = []
        self.error: list[float] = []

    def __len__(self) -> int:
        return len(self.x)

    def add(self, x: float | None, y: float | None, error: float | None = None) -> None:
        """One more reading, unless it is none."""
        if x is None or y is None:
            return
        self.x.append(x)
        self.y.append(y)
        self.error.append(error or 0.0)
        if len(self) >= 2 * POINTS_MAX:
            self._thin()

    def since(self, x: float) -> Curve:
        """The readings from `x` on."""
        later = Curve()
        for point in zip(self.x, self.y, self.error, strict=True):
            if point[0] >= x:
                later.add(*point)
        return later

    def _thin(self) -> None:
        """Of every four neighbours keep the least and the greatest, in their order; the ends stay."""
        kept = {0, len(self) - 1}
        for start in range(0, len(self), 4):
            places = range(start, min(start + 4, len(self)))
            kept |= {min(places, key=self.y.__getitem__), max(places, key=self.y.__getitem__)}
        for values in (self.x, self.y, self.error):
            values[:] = [values[place] for place in sorted(kept)]


@dataclass
class Run:
    """One model's rows. Losses are in bits a character, as the app shows them."""

    model: str = ""
    stream: bool = False
    rows: int = 0
    train: Curve = field(default_factory=Curve)
    held_out: Curve = field(default_factory=Curve)
    subjects: dict[str, Curve] = field(default_factory=dict)  # held-out
    experts: Curve = field(default_factory=Curve)
    window: Curve = field(default_factory=Curve)  # characters
    rate: Curve = field(default_factory=Curve)  # read: the factor on the rate; stream: the rate itself
    memory: Curve = field(default_factory=Curve)  # bytes
    pool: dict[str, list[float]] = field(default_factory=dict)  # the last row's uid, use and gate

    @property
    def chars(self) -> float:
        """Characters read by the last reading there is."""
        curves = (self.train, self.held_out, self.experts, self.window)
        return max((curve.x[-1] for curve in curves if len(curve)), default=0.0)

    @property
    def is_one_reading(self) -> bool:
        """Nothing was read off twice: there is a point of each curve, and no line."""
        curves = (self.train, self.held_out, *self.subjects.values(), self.experts, self.window, self.rate)
        return max(map(len, curves)) == 1

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a row of the history."""
        self.rows += 1
        self.stream = self.stream or isinstance(row.get("kind"), str)
        x = figure(row.get("chars"))
        x = x if x is not None and x >= 0 else None
        if row.get("kind") in (None, "step"):  # elsewhere a stream's is smoothed, and of another time
            self.train.add(x, _loss(row.get("loss")))
        if row.get("kind") in (None, "val", "done"):  # what else a stream tells repeats its last reading
            measured = figure(row["val_chars"]) if "val_chars" in row else x
            if not self.held_out.x or self.held_out.x[-1] != measured:  # as rows between two readings do
                self.held_out.add(measured, _loss(row.get("val")), bits(row.get("stderr")))
                self._add_subjects(measured, row.get("subjects"))
        self.experts.add(x, figure(row.get("experts")))
        self.window.add(x, figure(row.get("context")))
        self.rate.add(x, figure(row.get("lr" if self.stream else "rate")))
        self.memory.add(x, figure(row.get("memory")))
        pool = {name: _figures(row.get(name)) for name in ("uid", "use", "gate")}
        if pool["uid"] and len({len(values) for values in pool.values()}) == 1:
            self.pool = pool

    def _add_subjects(self, x: float | None, subjects: Any) -> None:
        if not isinstance(subjects, dict):
            return
        for name, score in subjects.items():
            value = score if isinstance(score, dict) else {}
            loss = _loss(value.get("val", value.get("nats")))
            if loss is not None and (name in self.subjects or len(self.subjects) < SUBJECTS_MAX):
                self.subjects.setdefault(name, Curve()).add(x, loss, bits(value.get("stderr")))


def runs_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Run]:
    """The runs in a history, by model; the one that was written last comes last."""
    runs: dict[str, Run] = {}
    for row in rows:
        model = row.get("model")
        name = model if isinstance(model, str) else ""
        run = runs.pop(name, None) or Run(name)
        run.add(row)
        runs[name] = run
        if len(runs) > MODELS_MAX:
            del runs[next(iter(runs))]
    return runs


def figure(value: Any) -> float | None:
    """`value` if it is a number that a run can have."""
    return number(value, HUGE)


def bits(nats: Any) -> float | None:
    """Bits of a figure in nats."""
    value = figure(nats)
    return None if value is None else value / LN2


def _loss(nats: Any) -> float | None:
    """A loss in bits; there is none of nothing or less."""
    value = bits(nats)
    return value if value is not None and value > 0 else None


def _figures(values: Any) -> list[float]:
    """A list of figures, or an empty one for anything else."""
    if not isinstance(values, list):
        return []
    found = [figure(value) for value in values]
    return [] if None in found else [value for value in found if value is not None]
