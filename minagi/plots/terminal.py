"""Charts of a run in characters, by plotext.

Curves are told apart by what they are drawn with, and by colour where there is some.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import plotext

from minagi.plots.run import Curve, Run
from minagi.plots.scale import labels, marks, short
from minagi.steering import harmless

WIDTH_MIN, WIDTH_MAX = 24, 120
ONE_READING = "There is one reading so far.\nFrom the second on there are curves."
SUBJECTS_DRAWN = 6  # the largest changes of the run; the others are counted
_LETTERS = "abcdef"
_COLOURS = ("blue", "orange", "green", "red", "magenta", "cyan")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_ASCII = str.maketrans("┌┐└┘─│┤┬┼├┴", "++++-|+++++")


@dataclass(frozen=True)
class Look:
    """How to draw: columns to use, and what the terminal can show."""

    width: int = 80
    colour: bool = False
    ascii_only: bool = False


@dataclass(frozen=True)
class Part:
    """One curve of a chart."""

    name: str
    curve: Curve
    marker: str  # plotext's name of it, or a character


def drawn(run: Run, look: Look) -> str:
    """Every chart of the run that has something to show, below one another."""
    line = "." if look.ascii_only else "braille"
    charts = [
        _chart(
            "Loss, bits a character", [Part("train", run.train, line), Part("held-out", run.held_out, "o")],
            look, 16, log=True,
        ),
        _subjects(run, look),
        _chart("Experts", [Part("", run.experts, line)], look, 9),
        _chart("Window, characters", [Part("", run.window, line)], look, 9),
        _chart(f"Learning rate{'' if run.stream else ', factor'}", [Part("", run.rate, line)], look, 9),
    ]  # fmt: skip
    told = ONE_READING if run.is_one_reading else ""
    return "\n\n".join(part for part in (told, *charts) if part)


def _subjects(run: Run, look: Look) -> str:
    """Held-out by subject: those that changed most."""
    curves = sorted(run.subjects.items(), key=lambda item: -abs(item[1].y[-1] - item[1].y[0]))
    chosen = sorted(curves[:SUBJECTS_DRAWN])
    parts = [Part(name, curve, letter) for letter, (name, curve) in zip(_LETTERS, chosen, strict=False)]
    left = len(curves) - len(parts)
    more = f", {left} more not drawn" if left else ""
    return _chart(f"Held-out by subject, bits a character{more}", parts, look, 14)


def _chart(title: str, parts: list[Part], look: Look, height: int, log: bool = False) -> str:
    """One chart with its title and, for several curves, what each is drawn with; "" for nothing to draw.

    A single reading is told in words: of one point a chart shows nothing.
    """
    points = {part.name: _points(part.curve, log) for part in parts}
    parts = [part for part in parts if points[part.name][0]]
    if not parts:
        return ""
    width = min(max(look.width, WIDTH_MIN), WIDTH_MAX)
    if all(len(points[part.name][0]) == 1 for part in parts):
        where = " and ".join(dict.fromkeys(short(points[part.name][0][0]) for part in parts))
        return "\n".join([*_heading(title, parts, width), f"  at {where} characters"])
    place = math.log10 if log else float
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, height)
    for number, part in enumerate(parts):
        xs, ys = ([place(value) for value in values] for values in points[part.name])
        colour = _COLOURS[number % len(_COLOURS)] if look.colour else None
        draw: Callable[..., None] = plotext.plot if len(xs) > 1 else plotext.scatter
        draw(xs, ys, marker=part.marker, **({"color": colour} if colour else {}))
    for axis, set_marks, set_limits, about in (
        (0, plotext.xticks, plotext.xlim, width // 12),
        (1, plotext.yticks, plotext.ylim, height // 2),
    ):
        values = [value for part in parts for value in points[part.name][axis]]
        low, high = _widened(min(values), max(values), log)
        at = marks(low, high, about, log)
        set_limits(place(low), place(high))
        set_marks([place(value) for value in at], labels(at))
    picture = "\n".join(line.rstrip() for line in _finished(plotext.build(), look).rstrip().split("\n"))
    return "\n".join([*_heading(title, parts, width), picture])


def _points(curve: Curve, log: bool) -> tuple[list[float], list[float]]:
    """What of a curve can be drawn: on log axes, what is above 0."""
    pairs = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if not log or (x > 0 and y > 0)]
    return [x for x, _ in pairs], [y for _, y in pairs]


def _widened(low: float, high: float, log: bool) -> tuple[float, float]:
    """The range to draw; one value gets some room around it."""
    if high > low:
        return low, high
    return (
        (low / 1.1, high * 1.1)
        if log
        else (low - max(abs(low) * 0.1, 1e-6), high + max(abs(high) * 0.1, 1e-6))
    )


def _heading(title: str, parts: list[Part], width: int) -> list[str]:
    """The title, and one line a curve where there are several: what draws it, and its last value."""
    named = [part for part in parts if part.name]
    shown = {"braille": "⠶"}
    names = [
        f"  {shown.get(part.marker, part.marker)} {harmless(part.name)[: width - 12]}  {part.curve.y[-1]:.3f}"
        for part in named
    ]
    last = "" if named else f": {short(parts[0].curve.y[-1])}"
    return [f"{title}{last}", *names]


def _finished(picture: str, look: Look) -> str:
    if not look.colour:
        picture = _ESCAPES.sub("", picture)
    return picture.translate(_ASCII) if look.ascii_only else picture
