"""Shades the theme has no name for, and its own made legible. Of those take $text-warning, not $warning."""

from __future__ import annotations

from collections.abc import Mapping

from textual.color import BLACK, WHITE, Color, ColorParseError

MUTED = "$foreground 75%"  # what may be passed over
FAINT = "$foreground 25%"  # rules and empty parts of bars
LEAST_CONTRAST = 4.5  # of texts, as the WCAG ask for
_TEXTS = tuple(f"text-{kind}" for kind in ("primary", "secondary", "accent", "success", "warning", "error"))
_GROUNDS = ("background", "surface", "panel")
_STEPS = 20


def legible(variables: Mapping[str, str]) -> dict[str, str]:
    """A theme's variables, its colours of texts moved away from every ground until they can be read on it."""
    grounds = [color for color in (_color(variables.get(name)) for name in _GROUNDS) if color is not None]
    changed = dict(variables)
    for name in _TEXTS:
        text = _color(variables.get(name))
        if text is not None and grounds:
            changed[name] = _moved(text, grounds).hex
    return changed


def _color(text: str | None) -> Color | None:
    """A colour with known parts; None for one that the terminal or its ground decides."""
    try:
        color = Color.parse(text or "")
    except ColorParseError:
        return None
    return color if color.ansi is None and color.auto is False and color.a == 1.0 else None


def _moved(text: Color, grounds: list[Color]) -> Color:
    """`text`, or the nearest to it on its way to black or white that stands out from all `grounds`."""
    end = max((BLACK, WHITE), key=lambda pole: min(contrast(pole, ground) for ground in grounds))
    steps = (text.blend(end, step / _STEPS) for step in range(_STEPS + 1))
    return next((c for c in steps if min(contrast(c, g) for g in grounds) >= LEAST_CONTRAST), end)


def contrast(one: Color, other: Color) -> float:
    """How far two colours are apart, from 1 to 21, as the WCAG reckon it."""
    low, high = sorted((_light(one), _light(other)))
    return (high + 0.05) / (low + 0.05)


def _light(color: Color) -> float:
    """Relative luminance, 0 to 1."""
    parts = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
