"""Where the marks of an axis go, and how large numbers are written beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

LONG = 8  # largest over smallest, from which a log axis is marked at powers of ten and 2 and 5 times them
_STEPS = (1, 2, 2.5, 5, 10)
_DECADE = (1, 2, 5)


def marks(low: float, high: float, about: int, log: bool = False) -> list[float]:
    """Round numbers from `low` to `high`, about so many; on a long log axis powers of ten."""
    if not high > low:
        return [low]
    if log and low > 0 and high / low > LONG:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        tens = [10.0**power for power in range(first, last + 1)]
        inside = [value for value in tens if low <= value <= high]
        if len(inside) < 4:
            inside = [ten * part for ten in tens for part in _DECADE if low <= ten * part <= high]
        return inside[:: max(1, math.ceil(len(inside) / about))]
    rough = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(part for part in _STEPS if part * power >= rough * 0.7)
    first = math.ceil(low / step - 1e-9)
    return [round(place * step, 12) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def labels(values: Sequence[float]) -> list[str]:
    """What to write beside these marks: as few digits as tell them apart."""
    written: list[str] = []
    for digits in range(4, 12):
        written = [short(value, digits) for value in values]
        if len(set(written)) == len(set(values)):
            break
    return written


def short(value: float, digits: int = 4) -> str:
    """A number in a few characters: 950, 12k, 1.5M, 0.25."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.{digits}g}{letter}"
    return f"{value:.{digits}g}"
