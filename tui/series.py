"""A curve of any length in a bounded number of points: the least and the greatest of each bucket.

72 hours of training are a few million readings; a pane has a few hundred columns. Buckets lie on a
fixed grid over x and are merged in pairs when there are too many, so an old peak stays visible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    lies within `span` of the newest reading, on a grid that never coarsens.
    """

    buckets: tuple[Bucket, ...] = ()
    width: float = 0.0
    span: float = 0.0
    capacity: int = CAPACITY

    def __bool__(self) -> bool:
        return bool(self.buckets)

    def add(self, x: float, y: float) -> Series:
        """One more finite reading. An x before the newest (a repeated event) counts as the newest."""
        buckets = self.buckets
        last = buckets[-1] if buckets else None
        width = self.width or (self.span / self.capacity)
        if last is not None and (x <= last.end or (width and x // width == last.x // width)):
            merged = Bucket(last.x, min(last.low, y), max(last.high, y), y, max(x, last.end))
            return Series((*buckets[:-1], merged), self.width, self.span, self.capacity)
        buckets = (*buckets, Bucket(x, y, y, y, x))
        if self.span:
            first = next(place for place, bucket in enumerate(buckets) if bucket.end >= x - self.span)
            return Series(
                buckets[max(first, len(buckets) - self.capacity - 1) :], 0.0, self.span, self.capacity
            )
        if len(buckets) <= self.capacity:
            return Series(buckets, self.width, 0.0, self.capacity)
        width = max(2 * self.width, (x - buckets[0].x) / (self.capacity / 2))
        return Series(merge(buckets, width), width, 0.0, self.capacity)

    def cut(self, x: float) -> Series:
        """Without the readings after `x` (the model is again what it was there)."""
        if not self.buckets or self.buckets[-1].end <= x:
            return self
        kept = (b if b.end <= x else b._replace(end=x) for b in self.buckets if b.x <= x)
        return replace(self, buckets=tuple(kept))

    @property
    def last(self) -> float | None:
        """The newest reading."""
        return self.buckets[-1].last if self.buckets else None

    @property
    def start(self) -> float:
        return self.buckets[0].x if self.buckets else 0.0

    @property
    def end(self) -> float:
        return self.buckets[-1].end if self.buckets else 0.0


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
