"""Losses are in nats inside, and in bits where a person reads them; sizes are in bytes and read in steps."""

import math

LN2 = math.log(2)  # nats in a bit
_SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(value: float) -> str:
    """512 B, 4.2 MB, 1.3 GB."""
    return scaled(value, _SIZES, " ") if value >= 1000 else f"{value:.0f} B"


def scaled(value: float, units: tuple[tuple[float, str], ...], gap: str) -> str:
    """Three figures and the name of the greatest unit that `value` fills."""
    for step, unit in units:
        if abs(value) >= step * 0.9995:
            shown = value / step
            digits = 2 if abs(shown) < 9.995 else 1 if abs(shown) < 99.95 else 0
            return f"{shown:.{digits}f}{gap}{unit}"
    return f"{value:.0f}{gap}".strip()
