"""Charts fit their rectangle, whatever the curves, and tell them apart without colour."""

from __future__ import annotations

import math

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tui.charts import Chart, Curve, Point, bar, chart, spark
from tui.series import Series


def series(readings: list[tuple[float, float]]) -> Series:
    made = Series(capacity=200)
    for x, y in sorted(readings):
        made = made.add(x, y)
    return made


READINGS = st.lists(st.tuples(st.floats(0, 1e12), st.floats(-1e9, 1e9)), max_size=40)


@settings(max_examples=80, deadline=None)
@given(READINGS, READINGS, READINGS, st.integers(1, 130), st.integers(1, 45), st.booleans(), st.booleans())
def test_a_chart_fits_its_rectangle(
    raw: list[tuple[float, float]],
    smooth: list[tuple[float, float]],
    held: list[tuple[float, float]],
    width: int,
    height: int,
    log_x: bool,
    log_y: bool,
) -> None:
    curves = (
        Curve(series(raw).buckets, "cloud", "red"),
        Curve(series(held).buckets, "readings", "green"),
        Curve(series(smooth).buckets, "line", "blue"),
    )
    points = (Point(1e6, None, "▴", ""), Point(5e5, 2.0, "★", ""))
    lines = chart(Chart(curves, points, log_x, log_y), width, height)
    assert len(lines) in (0, height)
    assert all(line.cell_length <= width for line in lines)


def test_the_curves_differ_by_shape() -> None:
    falling = series([(x * 100.0, 5 * math.exp(-x / 30)) for x in range(100)])
    few = series([(x * 100.0, 5 * math.exp(-x / 30) + 0.5) for x in range(0, 100, 20)])
    spec = Chart(
        (Curve(falling.buckets, "line", ""), Curve(few.buckets, "readings", "")), (Point(5e3, None, "▴", ""),)
    )
    text = "\n".join(line.plain for line in chart(spec, 60, 14))
    assert "◆" in text
    assert "▴" in text.splitlines()[-2]
    assert "characters read" in text
    assert "9.90k" in text


CHARS = st.integers(1, 10**12).map(float)  # characters are whole
LOSSES = st.lists(st.tuples(CHARS, st.floats(1e-5, 20)), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(LOSSES, st.integers(14, 130), st.integers(4, 45), st.booleans(), st.booleans(), st.booleans())
@example([(2e6, 1.231), (2e6 + 90, 1.232)], 69, 10, False, False, True)  # a late start, hardly moved
@example([(2e6, 1.2), (3e6, 5.9)], 69, 7, False, False, True)
@example([(1.0, 1e-5), (3e6, 20.0)], 30, 6, True, True, True)
def test_each_axis_has_two_labels_at_least_and_no_two_alike(
    losses: list[tuple[float, float]], width: int, height: int, log_x: bool, log_y: bool, bits: bool
) -> None:
    curve = Curve(series(losses).buckets, "line", "")
    lines = [
        one.plain for one in chart(Chart((curve,), (), log_x, log_y, 1.4427 if bits else 1.0), width, height)
    ]
    if not lines:
        assert width < 40, "only where two figures find no room"
        return
    beside = [text.partition("┤")[0].strip() for text in lines if "┤" in text]
    assert len(beside) >= 2 and len(set(beside)) == len(beside) and all(beside)
    values = [float(label) for label in beside]
    assert values == sorted(values, reverse=True)
    below = lines[-1].replace("characters read", "").split()
    assert len(below) == 2 and below[0] != below[1]


def test_labels_are_in_the_unit_asked_for() -> None:
    flat = series([(x * 100.0, 2.0 + x / 1000) for x in range(100)])
    bits = chart(Chart((Curve(flat.buckets, "line", ""),), unit=1 / math.log(2)), 60, 14)
    assert any(line.plain.strip().startswith("2.9") or line.plain.strip().startswith("3.0") for line in bits)


def test_nothing_to_draw_is_no_chart() -> None:
    assert chart(Chart((Curve((), "line", ""),)), 60, 14) == []


@given(READINGS, st.integers(0, 60), st.integers(0, 6))
def test_sparklines_fit(readings: list[tuple[float, float]], width: int, height: int) -> None:
    lines = spark(series(readings).buckets, width, height)
    assert len(lines) <= height
    assert all(len(line) == width for line in lines)


def test_bars_fill_from_the_left() -> None:
    assert bar(0.0, 4) == ("", "────")
    assert bar(0.5, 4) == ("━━", "──")
    assert bar(1.0, 4) == ("━━━━", "")
    assert bar(7.0, 4) == ("━━━━", "")
    assert bar(0.4, 4) == ("━╸", "──")
