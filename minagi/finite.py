"""Numbers for JSON, which has no NaN and no infinities, and numbers from JSON, which may be anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def finite(value: Any) -> Any:
    """`value` as plain JSON can carry it: numbers that are not finite become null, keys become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def number(value: Any, most: float = 1e300) -> float | None:
    """`value` if it is a number, at most so far from 0, as whatever a manifest holds may not be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= most:
        return None  # also whole numbers that no float can hold
    return float(value)


def count(value: Any, most: int = 2**62) -> int:
    """`value` as a whole number from 0 to `most`; 0 for anything else."""
    found = number(value, most)
    return int(found) if found is not None and found >= 0 else 0
