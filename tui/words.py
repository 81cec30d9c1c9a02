"""Figures in words a person reads at a glance: counts, sizes, times, losses."""

from __future__ import annotations

from minagi.units import scaled
from minagi.units import size as size
from tui.state import BITS

_COUNTS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(value: float) -> str:
    """950, 12.3k, 1.24M: three figures and a letter."""
    return scaled(value, _COUNTS, "") if abs(value) >= 1000 else f"{value:.0f}"


def duration(seconds: float) -> str:
    """45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    seconds = max(0.0, seconds)
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = int((seconds + 30) // 60)  # the nearest: 90 s are not followed by 1 min
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    if days > 999:
        return "years"
    return f"{days} d {hours} h" if hours else f"{days} d"


def clock(seconds: float) -> str:
    """0:07, 12:40, 3:02:15."""
    minutes, left = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def ago(seconds: float) -> str:
    """just now, 12 s ago, 3 min ago."""
    return "just now" if seconds < 5 else f"{duration(seconds)} ago"


def loss(nats: float | None, bits: bool, digits: int = 3) -> str:
    """A loss in the unit chosen; a dash where there is none."""
    if nats is None:
        return "–"
    value = nats * BITS if bits else nats
    if abs(value) >= 1000:
        return "huge"
    return f"{value:.{digits}f}"


def unit(bits: bool) -> str:
    """The name of the unit."""
    return "bits a character" if bits else "nats a character"


def share(value: float | None) -> str:
    """0.4%, 12%, 100%; a dash for none."""
    if value is None:
        return "–"
    percent = 100 * value
    return f"{percent:.1f}%" if 0 < percent < 9.95 else f"{percent:.0f}%"


def plural(number: int, one: str, many: str = "") -> str:
    """1 file, 12 files."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def sentence(text: str) -> str:
    """`text` with a capital in front and a full stop behind."""
    text = text.strip()
    if not text:
        return text
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?…:" else text + "."
