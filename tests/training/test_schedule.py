from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.training.schedule import Schedule


def test_the_rate_rises_then_falls_to_a_tenth() -> None:
    schedule = Schedule(steps=101, warmup=10, start=256, ceiling=256)
    assert [schedule.rate(step) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert schedule.rate(10) == pytest.approx(1.0)
    assert schedule.rate(55) == pytest.approx(0.55)  # halfway down the cosine
    assert schedule.rate(100) == pytest.approx(0.1)
    assert schedule.rate(500) == pytest.approx(0.1)


@given(st.integers(1, 300), st.data())
def test_any_schedule_is_between_nothing_and_the_full_rate(steps: int, data: st.DataObject) -> None:
    warmup = data.draw(st.integers(0, steps))
    start = data.draw(st.integers(8, 3_000))
    ceiling = data.draw(st.integers(start, 9_000))
    schedule = Schedule(steps, warmup, start, ceiling)
    rates = [schedule.rate(step) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    falling = rates[warmup:]
    assert falling == sorted(falling, reverse=True)
    lengths = [schedule.window(step) for step in range(steps)]
    assert lengths == sorted(lengths)
    assert lengths[0] == start or ceiling == start or steps * 0.35 <= 0
    assert all(length in (ceiling, *range(start, ceiling, 256)) for length in lengths)
    assert all(length == ceiling for step, length in enumerate(lengths) if step >= 0.35 * steps)


def test_the_window_grows_geometrically() -> None:
    schedule = Schedule(steps=1_000, warmup=0, start=256, ceiling=4_096)
    assert schedule.window(175) == 1_024  # halfway along the ramp: the geometric mean
    assert schedule.window(349) > 3_500
    assert schedule.window(350) == 4_096


def test_ways_back_halve_and_travel() -> None:
    schedule = Schedule(steps=100, warmup=0, start=256, ceiling=1_024)
    schedule.halve(window=False)
    assert (schedule.rate(0), schedule.window(50)) == (0.5, 1_024)
    schedule.halve(window=True)
    schedule.halve(window=True)
    schedule.halve(window=True)
    assert (schedule.rate(0), schedule.window(50)) == (1 / 16, 256)
    again = Schedule(steps=100, warmup=0, start=256, ceiling=1_024)
    again.load_state(schedule.state_dict())
    assert again.state_dict() == schedule.state_dict()


@pytest.mark.parametrize("value", [0, -1, 2, "x", None, float("nan"), float("inf"), True, []])
def test_a_state_that_makes_no_sense_is_no_way_back(value: object) -> None:
    schedule = Schedule(steps=100, warmup=0, start=256, ceiling=1_024)
    schedule.load_state({"factor": value, "window_factor": value})
    assert schedule.state_dict() == {"factor": 1.0, "window_factor": 1.0}
