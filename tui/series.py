"""A curve of any length in a bounded number of points: the least and the greatest of each bucket.

72 hours of training are a few million readings; a pane has a few hundred columns. Buckets lie on a
fixed grid over x and are merged in pairs when there are too many, so an old peak stays visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

CAPACITY = 600  # twice the columns of a wide chart


class Bucket(NamedTuple):
    """The readings between two points of the grid."""

    x: float  # of the first reading
    low: float
    high: float
    last: float  # the newest reading
    end: float  # its x


@dataclass(frozen=True)
class Series:
    """Readings in order of x. Immutable: `add` and `cut` make another.

    `width` is the grid's spacing, 0 until the first merge. With a `span` the series keeps only what
    lies within `span` of the newest reading, on a grid that never coarsens. The newest bucket stands
    by itself: nearly every reading changes it alone, and the hundreds before it are not copied.
    """

    closed: tuple[Bucket, ...] = ()
    newest: Bucket | None = None
    width: float = 0.0
    span: float = 0.0
    capacity: int = CAPACITY

    def __bool__(self) -> bool:
        return self.newest is not None

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """All of them, in order of x."""
        return (*self.closed, self.newest) if self.newest is not None else ()

    def add(self, x: float, y: float) -> Series:
        """One more finite reading. An x before the newest (a repeated event) counts as the newest."""
        last = self.newest
        width = self.width or (self.span / self.capacity)
        if last is None:
            return self._with((), Bucket(x, y, y, y, x), self.width)
        if x <= last.end or (width and x // width == last.x // width):
            merged = Bucket(last.x, min(last.low, y), max(last.high, y), y, max(x, last.end))
            return self._with(self.closed, merged, self.width)
        closed, newest = (*self.closed, last), Bucket(x, y, y, y, x)
        if self.span:
            first = next((n for n, bucket in enumerate(closed) if bucket.end >= x - self.span), len(closed))
            return self._with(closed[max(first, len(closed) - self.capacity) :], newest, self.width)
        if len(closed) < self.capacity:
            return self._with(closed, newest, self.width)
        width = max(2 * self.width, (x - closed[0].x) / (self.capacity / 2))
        *closed_now, newest = merge((*closed, newest), width)
        return self._with(tuple(closed_now), newest, width)

    def _with(self, closed: tuple[Bucket, ...], newest: Bucket | None, width: float) -> Series:
        return Series(closed, newest, width, self.span, self.capacity)

    def cut(self, x: float) -> Series:
        """Without the readings after `x` (the model is again what it was there)."""
        if self.end <= x:
            return self
        kept = tuple(b if b.end <= x else b._replace(end=x) for b in self.buckets if b.x <= x)
        return self._with(kept[:-1], kept[-1] if kept else None, self.width)

    @property
    def last(self) -> float | None:
        """The newest reading."""
        return self.newest.last if self.newest is not None else None

    @property
    def start(self) -> float:
        """The x of the first reading."""
        first = self.closed[0] if self.closed else self.newest
        return first.x if first is not None else 0.0

    @property
    def end(self) -> float:
        """The x of the newest."""
        return self.newest.end if self.newest is not None else 0.0


def merge(buckets: tuple[Bucket, ...], width: float) -> tuple[Bucket, ...]:
    """The buckets on a grid of `width`, neighbours of one grid cell merged."""
    merged: list[Bucket] = []
    for bucket in buckets:
        if merged and width and bucket.x // width == merged[-1].x // width:
            one = merged[-1]
            merged[-1] = Bucket(
                one.x, min(one.low, bucket.low), max(one.high, bucket.high), bucket.last, bucket.end
            )
        else:
            merged.append(bucket)
    return tuple(merged)
