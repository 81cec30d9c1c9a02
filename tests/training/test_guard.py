from __future__ import annotations

import math

import pytest

from minagi.training.guard import Guard


def test_two_bad_steps_are_skipped_and_the_third_running_goes_back() -> None:
    guard = Guard()
    assert [guard.nonfinite_step("loss").act for _ in range(2)] == ["skip", "skip"]
    guard.finite_step()
    acts = [guard.nonfinite_step("gradient") for _ in range(3)]
    assert [rescue.act for rescue in acts] == ["skip", "skip", "revert"]
    assert acts[-1].to == "last"
    assert not acts[-1].halve_window
    assert "half the rate" in acts[-1].sentence
    assert guard.skipped == 5


def test_it_stops_after_the_reverts_allowed() -> None:
    guard = Guard(max_reverts=3, best=1.0)
    acts = [guard.held_out(9.0) for _ in range(4)]
    assert [rescue.act for rescue in acts if rescue] == ["revert", "revert", "revert", "stop"]
    last = acts[-1]
    assert last is not None
    assert last.to == "best"
    assert "3 reverts already" in last.sentence


def test_none_allowed_stops_at_once() -> None:
    rescue = Guard(max_reverts=0, best=1.0).held_out(2.0)
    assert rescue is not None
    assert rescue.act == "stop"


@pytest.mark.parametrize(("nats", "diverged"), [(1.4, False), (1.5, False), (1.51, True), (math.nan, True)])
def test_divergence_is_over_the_factor_times_the_best(nats: float, diverged: bool) -> None:
    guard = Guard(best=1.0)
    rescue = guard.held_out(nats)
    assert (rescue is not None) == diverged
    if rescue:
        assert (rescue.act, rescue.to, rescue.halve_window) == ("revert", "best", True)
        assert "half the rate and window" in rescue.sentence
    assert guard.best == 1.0


def test_best_follows_the_lowest() -> None:
    guard = Guard()
    assert [guard.held_out(nats) for nats in (3.0, 2.0, 2.5)] == [None] * 3
    assert guard.best == 2.0


def test_a_first_reading_that_is_not_finite_goes_back_to_the_last() -> None:
    guard = Guard()
    rescue = guard.held_out(math.inf)
    assert rescue is not None
    assert (rescue.act, rescue.to) == ("revert", "last")
    assert guard.best is None
