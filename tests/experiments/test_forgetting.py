"""The arithmetic of what was gained, lost and retained."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.errors import MinagiError
from minagi.experiments.forgetting import CHANCE, Point, Scored, cost, report


def scored(*windows: float) -> Scored:
    return Scored(sum(windows) / len(windows), windows)


def point(chars: int, new: Scored, **known: Scored) -> Point:
    return Point(chars, chars, new, known)


def test_chance_is_every_byte_alike() -> None:
    assert pytest.approx(5.545, abs=0.001) == CHANCE


def test_the_published_figures_fit_the_definitions() -> None:
    """1.26 lost for 0.31 gained is 74 % retained, 0.13 for 0.42 is 97 % and 3.25 learned per nat lost."""
    before = point(0, scored(2.0), old=scored(0.70))
    fast = cost(before, point(9, scored(2.0 - 0.31), old=scored(0.70 + 1.26)))
    slow = cost(before, point(9, scored(2.0 - 0.42), old=scored(0.70 + 0.13)))
    assert fast.retained == pytest.approx(0.74, abs=0.005)
    assert slow.retained == pytest.approx(0.97, abs=0.005)
    assert slow.gained_per_lost == pytest.approx(3.25, abs=0.05)


def test_subjects_count_alike_whatever_their_size() -> None:
    before = point(0, scored(3.0), a=scored(1.0), b=scored(*[2.0] * 50))
    after = point(9, scored(2.5), a=scored(1.4), b=scored(*[2.0] * 50))
    found = cost(before, after)
    assert found.lost.nats == pytest.approx(0.2)
    assert found.subjects["a"].nats == pytest.approx(0.4) and found.subjects["b"].nats == 0
    assert found.gained.nats == pytest.approx(0.5)
    assert found.retained == pytest.approx((CHANCE - 1.7) / (CHANCE - 1.5))


def test_errors_are_of_the_differences_window_by_window() -> None:
    """Windows that differ widely from each other but changed alike leave no doubt about the change."""
    before = point(0, scored(1.0, 5.0, 9.0), a=scored(1.0, 5.0), b=scored(2.0, 4.0))
    after = point(9, scored(0.5, 4.5, 8.5), a=scored(1.1, 5.3), b=scored(2.4, 4.0))
    found = cost(before, after)
    assert found.gained.stderr == pytest.approx(0, abs=1e-12)
    assert found.subjects["a"].stderr == pytest.approx(0.1)
    assert found.subjects["b"].stderr == pytest.approx(0.2)
    assert found.lost.stderr == pytest.approx(math.hypot(0.1, 0.2) / 2)
    assert (
        cost(point(0, scored(1.0), a=scored(1.0)), point(1, scored(1.0), a=scored(1.0))).lost.stderr is None
    )


def test_a_loss_within_its_error_is_no_loss_to_divide_by() -> None:
    before = point(0, scored(3.0, 3.0), a=scored(1.0, 1.0))
    assert cost(before, point(9, scored(2.0, 2.0), a=scored(0.9, 1.11))).gained_per_lost is None
    assert cost(before, point(9, scored(2.0, 2.0), a=scored(0.9, 0.9))).gained_per_lost is None
    assert cost(before, point(9, scored(2.0, 2.0), a=scored(1.1, 1.11))).gained_per_lost is not None


def test_text_known_no_better_than_chance_can_not_be_retained() -> None:
    before = point(0, scored(3.0), a=scored(6.0))
    assert cost(before, point(9, scored(2.0), a=scored(7.0))).retained is None


def test_texts_that_differ_are_refused_in_words() -> None:
    before = point(0, scored(3.0), a=scored(1.0, 2.0))
    for after in (point(9, scored(3.0), a=scored(1.0)), point(9, scored(3.0), b=scored(1.0, 2.0))):
        with pytest.raises(MinagiError, match="changed while it was measured"):
            cost(before, after)


NATS = st.floats(0.1, 8)


@given(NATS, NATS, NATS, NATS)
def test_the_report_adds_up(new: float, newer: float, old: float, older: float) -> None:
    points = [point(0, scored(new), a=scored(old)), point(7, scored(newer), a=scored(older))]
    first, last = json.loads(json.dumps(report(points, "n"), allow_nan=False))
    assert first["gained"] == first["lost"] == 0
    assert str(first["gained"]) == "0.0", "and not minus zero"
    assert last["gained"] == pytest.approx(new - newer) and last["lost"] == pytest.approx(older - old)
    assert (last["chars"], last["new"], last["known"]) == (7, {"n": newer}, {"a": older})
    if last["retained"] is not None and old < CHANCE - 0.01:
        assert last["retained"] == pytest.approx(1 - last["lost"] / (CHANCE - old))
