"""Ages, trials and staleness on the text clock, and who is pruned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minagi.pool import Telemetry
from minagi.pool.lifetime import Lifetime, survival_texts


def telemetry(segments: int, born: list[float], seen: list[float]) -> Telemetry:
    made = Telemetry(len(born))
    made.segments = segments
    made.born, made.last_seen = np.array(born, float), np.array(seen, float)
    return made


def test_a_newborn_in_its_trial_is_never_stale() -> None:
    life = Lifetime(telemetry(100, born=[60, 41, 40, 0], seen=[60, 41, 40, 40]), survival=60)
    assert life.in_trial.tolist() == [True, True, False, False]
    np.testing.assert_allclose(life.staleness, [0, 0, 1, 1])
    assert life.dying(0.65).tolist() == [False, False, True, True]
    assert life.to_prune(set()) == [2, 3]


def test_staleness_counts_from_birth_at_most() -> None:
    """An old manifest without last_seen must not make a young expert look ancient."""
    life = Lifetime(telemetry(100, born=[30], seen=[0]), survival=50)
    assert life.unseen.tolist() == [70]
    assert life.staleness.tolist() == [1.4]


def test_one_definition_two_thresholds() -> None:
    life = Lifetime(telemetry(100, born=[0, 0, 0], seen=[36, 35, 0]), survival=100)
    np.testing.assert_allclose(life.staleness, [0.64, 0.65, 1])
    assert life.dying(0.65).tolist() == [False, True, True]
    assert life.to_prune(set()) == [2]


def test_what_is_on_the_card_is_never_pruned_and_one_always_remains() -> None:
    old = telemetry(100, born=[0] * 4, seen=[0, 10, 5, 0])
    assert Lifetime(old, 50).to_prune({0}) == [3, 2, 1]
    assert Lifetime(old, 50).to_prune(set()) == [0, 3, 2]  # the least stale one remains
    assert Lifetime(telemetry(100, [0], [0]), 50).to_prune(set()) == []


def test_the_gate_plays_no_part() -> None:
    made = telemetry(100, born=[0, 0], seen=[99, 0])
    made.gate_seen = np.array([1e-9, 100.0])
    assert Lifetime(made, 50).to_prune(set()) == [1]


def test_recent_experts_that_earn_their_place() -> None:
    survival = 10
    # founder, in trial, recent and used, recent and dying, too old to count
    made = telemetry(100, born=[0, 95, 80, 80, 20], seen=[0, 95, 99, 80, 20])
    assert Lifetime(made, survival).kept_ratio(0.65, recent_mult=4) == 0.5
    assert Lifetime(made, survival).kept_ratio(0.65, recent_mult=9) == pytest.approx(1 / 3)
    assert Lifetime(telemetry(5, [0], [0]), survival).kept_ratio(0.65, 4) == 1.0


def test_survival_in_texts_goes_by_the_pools_own_ratio() -> None:
    assert survival_texts(1_000_000, 2_000, texts=500, steps=500) == 500
    assert survival_texts(1_000_000, 2_000, texts=1_000, steps=500) == 1_000
    assert survival_texts(1_000_000, 2_000, texts=0, steps=0) == 500
    assert survival_texts(10, 2_000, texts=3, steps=3) == 1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.integers(0, 50),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8),
    st.floats(1, 60),
    st.sets(st.integers(0, 8)),
)
def test_pruning_keeps_its_promises(
    now: int, experts: list[tuple[int, int]], survival: float, card: set[int]
) -> None:
    born = [float(min(b, now)) for b, _ in experts]
    seen = [float(min(s, now)) for _, s in experts]
    life = Lifetime(telemetry(now, born, seen), survival)
    doomed = life.to_prune(card)
    assert len(doomed) == len(set(doomed)) < len(experts)
    for place in doomed:
        assert place not in card
        assert now - seen[place] >= survival or now - born[place] >= survival
        assert born[place] == 0 or now - born[place] >= survival
    assert (life.staleness >= 0).all()
