"""Where a checkpoint comes from: the ways of reading that led to it, oldest first.

Going back and reading on begins another way. A way is named by the number of its first snapshot and told
with the step and the characters at which it was left, or at which the checkpoint itself stands: ((3, 40,
5120), (9, 60, 7680)) was read to step 40 on way 3 and from there on way 9. So what two checkpoints have in
common can be told after every snapshot between them is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any

from minagi.finite import count

KEPT = 64  # the newest of a checkpoint
Ways = tuple[tuple[int, int, int], ...]


def read(held: Mapping[str, Any]) -> Ways:
    """The ways that a meta.json tells of; () where it tells of none, or they make no sense."""
    ways = held.get("ways")
    if not isinstance(ways, (list, tuple)) or not all(
        isinstance(way, (list, tuple)) and len(way) == 3 for way in ways
    ):
        return ()
    return tuple(starmap(lambda way, step, chars: (count(way), count(step), count(chars)), ways[-KEPT:]))


def reached(before: Ways, base: int, number: int, step: int, chars: int) -> Ways:
    """The ways of a new snapshot `number`, which goes on from snapshot `base` with the ways `before`.

    Where a snapshot was taken between the two, it went another way: `base` was gone back to.
    """
    if base + 1 == number and before:
        return (*before[:-1], (before[-1][0], step, chars))
    return (*before, (number, step, chars))[-KEPT:]
