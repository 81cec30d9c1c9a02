"""Charts drawn with characters: a braille line chart, sparklines and bars, as styled lines of text.

Curves are told apart without colour: single readings are a cloud of dots, the smoothed curve an
unbroken line, held-out readings diamonds on a dashed line. A chart of 120×40 from full series costs
4 ms to draw and 5 to style on one slow core; plotext took 14 to draw and cannot layer glyphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from textual.content import Content

from tui import words
from tui.series import Bucket
from tui.styles import MUTED

BLOCKS = " ▁▂▃▄▅▆▇█"
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # [column][row] of a braille cell
_LABEL = 6  # columns of the y axis, its line included
_FINER = 6  # steps between labels that are tried
_LEAST = 0.002  # y between the ends of the axis: less cannot be told apart in a label
Run = tuple[str, str]  # text and style


@dataclass(frozen=True)
class Curve:
    """One curve; `kind` is cloud | line | readings."""

    buckets: Sequence[Bucket]
    kind: str
    style: str


@dataclass(frozen=True)
class Point:
    """A glyph on the chart, or under it when `y` is None."""

    x: float
    y: float | None
    glyph: str
    style: str


@dataclass(frozen=True)
class Chart:
    """What is drawn, in data units; `unit` is what one y is multiplied by for its labels."""

    curves: Sequence[Curve]
    points: Sequence[Point] = ()
    log_x: bool = False
    log_y: bool = False
    unit: float = 1.0
    axis: str = MUTED


@dataclass
class Canvas:
    """Braille dots and whole glyphs of `width` × `height` cells; the last one to draw owns a cell's style."""

    width: int
    height: int
    bits: dict[tuple[int, int], int] = field(default_factory=dict)
    styles: dict[tuple[int, int], str] = field(default_factory=dict)
    glyphs: dict[tuple[int, int], Run] = field(default_factory=dict)

    def dot(self, x: int, y: int, style: str) -> None:
        """One dot at (x, y) in dots, y downwards; outside is ignored."""
        cell = (x >> 1, y >> 2)
        if 0 <= cell[0] < self.width and 0 <= cell[1] < self.height:
            before = self.bits.get(cell, 0) if self.styles.get(cell) == style else 0
            self.bits[cell] = before | _DOTS[x & 1][y & 3]
            self.styles[cell] = style

    def glyph(self, x: int, y: int, text: str, style: str) -> None:
        """A whole glyph in the cell of the dot (x, y)."""
        column = max(0, min(self.width - 1, x >> 1))
        row = max(0, min(self.height - 1, y >> 2))
        self.glyphs[column, row] = (text, style)

    def row(self, row: int) -> list[Run]:
        """One line of cells as runs of one style."""
        runs: list[Run] = []
        for column in range(self.width):
            cell = (column, row)
            if cell in self.glyphs:
                text, style = self.glyphs[cell]
            elif cell in self.bits:
                text, style = chr(0x2800 + self.bits[cell]), self.styles[cell]
            else:
                text, style = " ", ""
            if runs and (style == runs[-1][1] or text == " "):
                runs[-1] = (runs[-1][0] + text, runs[-1][1])
            else:
                runs.append((text, style))
        return runs


def chart(spec: Chart, width: int, height: int) -> list[Content]:
    """The chart in `height` lines of `width` cells, axes included; empty when there is nothing to draw."""
    plot_width, plot_height = width - _LABEL, height - 2
    bounds = _bounds(spec)
    if bounds is None or plot_width < 8 or plot_height < 2:
        return []
    (x_low, x_high), (y_low, y_high) = bounds
    ends = _ends(x_low, x_high)
    if len(" ".join(ends)) > plot_width:
        return []
    columns, rows = 2 * plot_width - 1, 4 * plot_height - 1
    to_x = _scale(x_low, x_high, columns, spec.log_x)
    down = _scale(y_low, y_high, rows, spec.log_y)

    def to_y(value: float) -> int:
        return rows - down(value)

    canvas = Canvas(plot_width, plot_height)
    for curve in spec.curves:
        _DRAW[curve.kind](canvas, curve, to_x, to_y)
    for point in spec.points:
        if point.y is not None:
            canvas.glyph(to_x(point.x), to_y(point.y), point.glyph, point.style)
    labels = _y_labels(y_low, y_high, spec, to_y, plot_height)
    lines = []
    for row in range(plot_height):
        label = labels.get(row, "")
        edge = "┤" if label else "│"
        lines.append(Content.assemble((f"{label:>{_LABEL - 1}}{edge}", spec.axis), *canvas.row(row)))
    under = {to_x(p.x) >> 1: p for p in spec.points if p.y is None and x_low <= p.x <= x_high}
    lines.append(_floor(under, plot_width, spec.axis))
    lines.append(_x_labels(ends, plot_width, spec.axis))
    return lines


def _bounds(spec: Chart) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The ranges of x and y. Lone spikes of single readings do not stretch the chart."""
    shown = [curve for curve in spec.curves if curve.buckets]
    if not shown:
        return None
    x_low = min(curve.buckets[0].x for curve in shown)
    x_high = max(curve.buckets[-1].end for curve in shown)
    lows, highs = [], []
    for curve in shown:
        low = sorted(bucket.low for bucket in curve.buckets)
        high = sorted(bucket.high for bucket in curve.buckets)
        spare = len(low) // 50 if curve.kind == "cloud" else 0
        lows.append(low[spare])
        highs.append(high[-1 - spare])
    y_low, y_high = min(lows), max(highs)
    y_high = max(y_high, y_low + _LEAST)
    room = max((y_high - y_low) * 0.04, abs(y_high) * 0.005, 1e-6)
    if spec.log_y:
        y_low = max(y_low, 1e-4)
        y_high = max(y_high, y_low)
        return (x_low, max(x_high, x_low + 1.0)), (y_low * 0.98, y_high * 1.02)
    return (x_low, max(x_high, x_low + 1.0)), (y_low - room, y_high + room)


def _scale(low: float, high: float, cells: int, log: bool) -> Callable[[float], int]:
    """Where a value lies among `cells`, on a linear or a logarithmic axis."""
    if not log:
        factor = cells / (high - low)
        return lambda value: round((value - low) * factor)
    floor = max(low, high * 1e-6, 1e-9)
    factor = cells / max(math.log(high / floor), 1e-9)
    return lambda value: round(math.log(max(value, floor) / floor) * factor)


def _cloud(canvas: Canvas, curve: Curve, to_x: Callable, to_y: Callable) -> None:
    for bucket in curve.buckets:
        # only the ends: a whole bar would drown the curve
        canvas.dot(to_x(bucket.x), to_y(bucket.high), curve.style)
        canvas.dot(to_x(bucket.x), to_y(bucket.low), curve.style)


def _line(canvas: Canvas, curve: Curve, to_x: Callable, to_y: Callable, gap: int = 0) -> None:
    before: tuple[int, int] | None = None
    for bucket in curve.buckets:
        here = (to_x(bucket.x), to_y(bucket.last))
        for x, y in _between(before or here, here, canvas):
            if not gap:
                canvas.dot(x, y + 1, curve.style)  # two dots thick
                canvas.dot(x, y, curve.style)
            elif x % gap < gap - 2:
                canvas.dot(x, y, curve.style)
        before = here


def _between(start: tuple[int, int], end: tuple[int, int], canvas: Canvas) -> Iterable[tuple[int, int]]:
    """Every dot of a line from `start` to `end`, steep parts filled."""
    (x0, y0), (x1, y1) = start, end
    steps = max(abs(x1 - x0), abs(y1 - y0), 1)
    if steps > 8 * (canvas.width + canvas.height):  # far outside: the ends will do
        return (start, end)
    return ((x0 + (x1 - x0) * i // steps, y0 + (y1 - y0) * i // steps) for i in range(steps + 1))


def _readings(canvas: Canvas, curve: Curve, to_x: Callable, to_y: Callable) -> None:
    _line(canvas, curve, to_x, to_y, gap=6)
    apart = -4
    for bucket in curve.buckets:
        x = to_x(bucket.x)
        if x - apart >= 8 or bucket is curve.buckets[-1]:
            canvas.glyph(x, to_y(bucket.last), "◆", curve.style)
            apart = x


_DRAW = {"cloud": _cloud, "line": _line, "readings": _readings}


def _y_labels(low: float, high: float, spec: Chart, to_y: Callable, height: int) -> dict[int, str]:
    """Row -> label, at round values of the unit shown: at least two, and no two alike. Where round values are
    too far apart for that, the ends are labelled."""
    low, high = low * spec.unit, high * spec.unit
    step = _nice((high - low) / max(3.0, height / 4))
    for _ in range(_FINER):
        labels: dict[int, str] = {}
        for value in _multiples(step, low, high):
            row = to_y(value / spec.unit) >> 2
            near = {row - 1, row, row + 1} if height > 3 else {row}
            if not near & labels.keys() and 0 <= row < height:
                labels[row] = _label(value, step)
        if len(labels) >= 2 and len({*labels.values()}) == len(labels):
            return labels
        step = _nice(step * 0.45)
    step = _nice((high - low) / 4)
    return {0: _label(high, step), height - 1: _label(low, step)}


def _multiples(step: float, low: float, high: float) -> Iterable[float]:
    first = math.ceil(low / step)
    return (step * n for n in range(first, first + 40) if step * n <= high)


def _label(value: float, step: float) -> str:
    """`value` to the digits of `step`, in the columns there are for it."""
    digits = next((n for n in range(6) if abs(round(step, n) - step) < step * 1e-6), 6)
    text = f"{value:.{digits}f}"
    if len(text) >= _LABEL and text.startswith("0."):
        text = text[1:]
    return text if len(text) < _LABEL else words.count(value)[: _LABEL - 1]


def _nice(step: float) -> float:
    """The round step not below `step`: 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(step, 1e-9)))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= step * 0.999)


def _floor(under: dict[int, Point], width: int, axis: str) -> Content:
    """The x axis with its ticks."""
    runs: list[Run] = [(" " * (_LABEL - 1) + "└", axis)]
    for column in range(width):
        point = under.get(column)
        runs.append((point.glyph, point.style) if point else ("─", axis))
    return Content.assemble(*runs)


def _ends(low: float, high: float) -> tuple[str, str]:
    """The ends of the x axis in words, in as many figures as tell them apart."""
    short = words.count(low), words.count(high)
    return short if short[0] != short[1] else (f"{low:,.0f}", f"{high:,.0f}")


def _x_labels(ends: tuple[str, str], width: int, axis: str) -> Content:
    left, right = ends
    middle = "characters read"
    line = list(" " * width)
    for text, at in ((middle, (width - len(middle)) // 2), (left, 0), (right, width - len(right))):
        if at >= 0:
            line[at : at + len(text)] = text
    if width < len(left) + len(middle) + len(right) + 4:
        line = list(left + " " * (width - len(left) - len(right)) + right)
    return Content.assemble((" " * _LABEL + "".join(line), axis))


# ------------------------------------------------------------------------------------------ small ones


def spark(buckets: Sequence[Bucket], width: int, height: int = 1, top: float | None = None) -> list[str]:
    """A curve as bars of eighths in `height` lines of at most `width`; `top` is the value of a full bar."""
    if not buckets or width < 1 or height < 1:
        return []
    start, end = buckets[0].x, buckets[-1].end
    per = max((end - start) / width, 1e-9)
    cells: list[float | None] = [None] * width
    for bucket in buckets:
        place = min(width - 1, int((bucket.x - start) / per))
        cells[place] = max(bucket.high, cells[place] or 0.0)
    filled = 0.0
    values = []
    for value in cells:
        filled = filled if value is None else value
        values.append(filled)
    low, high = 0.0, max(values)
    if top is not None:
        high = top
    else:
        low = min(values)
        low = max(0.0, low - (high - low) * 0.2)
    eighths = [round(8 * height * max(0.0, min(1.0, (v - low) / (high - low or 1.0)))) for v in values]
    return [
        "".join(BLOCKS[max(0, min(8, e - 8 * row))] if (e or row) else BLOCKS[1] for e in eighths)
        for row in range(height - 1, -1, -1)
    ]


def bar(share: float, width: int) -> tuple[str, str]:
    """A horizontal bar: what is filled, and the rest."""
    share = max(0.0, min(1.0, share))
    cells = share * width
    whole = int(cells)
    half = cells - whole >= 0.5 and whole < width
    return "━" * whole + ("╸" if half else ""), "─" * (width - whole - half)
