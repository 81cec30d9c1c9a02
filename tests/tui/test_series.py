"""Curves of any length stay bounded and keep their extremes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tui.series import Series

READINGS = st.lists(
    st.tuples(st.integers(0, 10**12), st.floats(-1e6, 1e6, allow_nan=False)), min_size=1, max_size=200
)


@given(READINGS, st.integers(4, 40))
def test_bounded_ordered_and_extremes_kept(readings: list[tuple[int, float]], capacity: int) -> None:
    series = Series(capacity=capacity)
    for x, y in sorted(readings):
        series = series.add(float(x), y)
        assert len(series.buckets) <= capacity + 1
    assert min(b.low for b in series.buckets) == min(y for _, y in readings)
    assert max(b.high for b in series.buckets) == max(y for _, y in readings)
    assert [b.x for b in series.buckets] == sorted(b.x for b in series.buckets)
    assert series.end == max(x for x, _ in readings)


@given(READINGS, st.floats(0, 1e12))
def test_a_cut_leaves_nothing_behind_it(readings: list[tuple[int, float]], x: float) -> None:
    series = Series(capacity=16)
    for at, y in sorted(readings):
        series = series.add(float(at), y)
    assert all(bucket.x <= x for bucket in series.cut(x).buckets)
    assert series.cut(series.end) is series


def test_72_hours_fit_and_a_spike_stays_visible() -> None:
    series = Series()
    for step in range(60_000):
        series = series.add(step * 512.0, 9.0 if step == 31_234 else 2.0)
    assert len(series.buckets) <= series.capacity + 1
    assert max(bucket.high for bucket in series.buckets) == 9.0
    assert series.last == 2.0


def test_a_span_keeps_only_the_recent_stretch() -> None:
    series = Series(span=1000.0, capacity=10)
    for x in range(0, 5000, 10):
        series = series.add(float(x), float(x))
    assert series.start >= series.end - 1100
    assert len(series.buckets) <= 12


def test_an_event_that_comes_twice_changes_no_order() -> None:
    series = Series().add(10.0, 1.0).add(20.0, 2.0).add(10.0, 5.0)
    assert [b.x for b in series.buckets] == [10.0, 20.0]
    assert series.buckets[-1].high == 5.0
