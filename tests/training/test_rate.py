"""The learning-rate controller against recorded sequences, each with the move it must give."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minagi.training.rate import (
    FACTOR_MAX,
    FACTOR_MIN,
    FAST_DECAY,
    SLOW_DECAY,
    Fit,
    RateControl,
    RateMove,
    fall_of,
    rise_of,
)


def feed(control: RateControl, readings: list[float], stderr: float = 0.01) -> list[RateMove]:
    return [control.observe(nats, stderr, 100) for nats in readings]


def sequence(shape: Callable[[int], float], length: int, noise: float, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [shape(i) + rng.gauss(0, noise) for i in range(length)]


def kinds(moves: list[RateMove]) -> Counter[str]:
    return Counter(move.kind for move in moves)


# name, readings, the kinds of move that must occur, those that must not, and whether the factor ends
# above, below or at its 0.5
TABLE = [
    ("improving", sequence(lambda i: 3 - 0.005 * i, 80, 0.005), {"rise"}, {"fall", "ease", "regime"}, 1),
    ("improving slowly", sequence(lambda i: 3 - 0.0003 * i, 80, 0.005), {"rise"}, {"fall", "regime"}, 1),
    ("flat, not for long", sequence(lambda i: 2, 36, 0.01), {"hold"}, {"rise", "fall", "ease"}, 0),
    ("flat for long", sequence(lambda i: 2, 120, 0.01), {"ease"}, {"rise", "fall", "regime"}, -1),
    ("noisy", sequence(lambda i: 2, 36, 0.2, 0), {"hold"}, {"rise", "fall", "ease"}, 0),
    ("harm", sequence(lambda i: 2 + 0.002 * i, 60, 0.01), {"fall"}, {"rise", "ease", "regime"}, -1),
    ("slow harm", sequence(lambda i: 2 + 0.0002 * i, 200, 0.01), {"fall"}, {"rise", "regime"}, -1),
    ("all alike", [2.0] * 60, {"hold"}, {"rise", "fall", "ease"}, 0),
    ("a ruler", [2 - 0.01 * i for i in range(60)], {"hold"}, {"rise", "fall", "ease"}, 0),
]


@pytest.mark.parametrize(("name", "readings", "must", "must_not", "goes"), TABLE)
def test_recorded_sequences(
    name: str, readings: list[float], must: set[str], must_not: set[str], goes: int
) -> None:
    control = RateControl(0.5)
    seen = kinds(feed(control, readings, stderr=0.2 if name == "noisy" else 0.01))
    assert must <= set(seen)
    assert not must_not & set(seen)
    assert (control.factor > 0.5) - (control.factor < 0.5) == goes


def test_weighted_fit_is_numpys() -> None:
    readings = sequence(lambda i: 3 - 0.01 * i, 50, 0.05)
    for decay in (SLOW_DECAY, FAST_DECAY):
        fit = Fit(decay)
        for x, y in enumerate(readings):
            fit.add(x, y)
        weights = decay ** np.arange(49, -1, -1.0)
        slope, level = np.polyfit(np.arange(50), readings, 1, w=np.sqrt(weights))
        n = weights.sum() ** 2 / (weights**2).sum()
        residual = np.asarray(readings) - (level + slope * np.arange(50))
        scatter = math.sqrt((weights * residual**2).sum() / weights.sum() * n / (n - 2))
        trend = fit.trend()
        assert fit.slope == pytest.approx(slope, rel=1e-9)
        assert trend.n == pytest.approx(n, rel=1e-12)
        assert trend.e == pytest.approx(-slope / scatter, rel=1e-9)
        spread = (weights * (np.arange(50) - fit.x) ** 2).sum() / weights.sum()
        assert trend.t == pytest.approx(-slope / (scatter / math.sqrt(n * spread)), rel=1e-9)


def test_sizes_of_moves_are_the_designs() -> None:
    assert rise_of(1.0) == 0
    assert rise_of(1.6) == pytest.approx(0.002)
    assert rise_of(2.2) == pytest.approx(0.004)
    assert rise_of(2.95) == pytest.approx(0.004 + 0.005 * math.tanh(1))
    assert rise_of(50) == pytest.approx(0.009)
    assert rise_of(-3) == 0
    assert fall_of(-3.8) == pytest.approx(0.025 * math.tanh(1))


def test_nothing_moves_before_twelve_effective_readings() -> None:
    moves = feed(RateControl(0.5), sequence(lambda i: 3 - 0.05 * i, 14, 0.005))
    assert [move.kind for move in moves[:12]] == ["hold"] * 12
    assert moves[12].kind == "rise"


def test_a_rise_is_sized_by_the_weakest_of_four_verdicts() -> None:
    control = RateControl(0.5)
    moves = feed(control, sequence(lambda i: 3 - 0.001 * i, 60, 0.004, 5))
    for i in range(12, len(moves)):
        weakest = min(move.verdict for move in moves[i - 3 : i + 1] if move.verdict is not None)
        expected = math.exp(rise_of(weakest))
        assert moves[i].factor == pytest.approx(moves[i - 1].factor * expected)


def test_a_fall_needs_harm_twice_running_and_is_followed_by_rest() -> None:
    control = RateControl(0.5)
    feed(control, sequence(lambda i: 2, 30, 0.01, 2))
    moves = feed(control, [2.05 + 0.02 * i for i in range(6)])
    first = next(i for i, move in enumerate(moves) if move.kind == "fall")
    assert first >= 1
    assert moves[first - 1].kind == "hold"
    assert "getting worse" in moves[first].sentence
    assert moves[first].notable
    last = max(i for i, move in enumerate(moves) if move.kind == "fall")
    recovery = moves[last + 1 :] + feed(control, [1.9 - 0.02 * i for i in range(40)])
    rises = [i for i, move in enumerate(recovery) if move.kind == "rise"]
    assert rises
    assert min(rises) >= 12


def test_one_broken_reading_is_dropped() -> None:
    readings = sequence(lambda i: 3 - 0.004 * i, 40, 0.005)
    clean, broken = RateControl(0.5), RateControl(0.5)
    feed(clean, readings)
    feed(broken, readings[:25])
    aside = broken.observe(readings[24] + 2.0, 0.01, 100)
    after = broken.observe(readings[25], 0.01, 100)
    feed(broken, readings[26:])
    assert aside.kind == "set-aside"
    assert aside.notable
    assert "bad measurement" in after.sentence
    assert after.notable
    assert broken.factor == clean.factor


@pytest.mark.parametrize("rise", [0.2, 0.26])
def test_a_jump_is_more_than_a_quarter_nat_over_the_reading_before(rise: float) -> None:
    control = RateControl()
    feed(control, [2.0] * 5)
    assert (control.observe(2.0 + rise, 0.01, 100).kind == "set-aside") == (rise > 0.25)


def test_a_jump_is_measured_in_standard_errors_where_they_are_large() -> None:
    control = RateControl()
    feed(control, [2.0] * 5, stderr=0.1)
    assert control.observe(2.35, 0.1, 100).kind == "hold"
    assert control.observe(2.80, 0.1, 100).kind == "set-aside"


@pytest.mark.parametrize(("factor", "then"), [(0.2, 0.4), (0.8, 1.0)])
def test_a_jump_that_stays_is_a_new_regime(factor: float, then: float) -> None:
    control = RateControl(factor)
    feed(control, [2.0, 2.01, 1.99, 2.0])
    assert control.observe(2.9, 0.01, 100).kind == "set-aside"
    move = control.observe(2.7, 0.01, 100)
    assert (move.kind, move.notable, move.factor) == ("regime", True, then)
    assert kinds(feed(control, sequence(lambda i: 2.7 - 0.01 * i, 11, 0.005))) == {"hold": 11}


def test_readings_too_few_steps_apart_are_no_evidence() -> None:
    readings = sequence(lambda i: 3 - 0.005 * i, 40, 0.005)
    plain, between = RateControl(0.5), RateControl(0.5)
    feed(plain, readings)
    for nats in readings:
        between.observe(nats, 0.01, 32)
        assert between.observe(9.0, 0.01, 31).kind == "no-evidence"
        assert between.observe(nats, 0.01, 0).kind == "no-evidence"
    assert between.state_dict() == plain.state_dict()


@pytest.mark.parametrize("nats", [math.nan, math.inf, -math.inf])
def test_a_reading_that_is_not_finite_never_is_evidence(nats: float) -> None:
    control = RateControl(0.5)
    feed(control, [2.0, 1.9, 2.0])
    before = control.state_dict()
    assert control.observe(nats, 0.01, 100).kind == "no-evidence"
    assert control.state_dict() == before


@pytest.mark.parametrize("stderr", [0.0, -1.0, math.nan, math.inf])
def test_an_unknown_standard_error_is_borne(stderr: float) -> None:
    control = RateControl(0.5)
    feed(control, sequence(lambda i: 3 - 0.005 * i, 40, 0.005), stderr=stderr)
    assert 0.5 < control.factor <= 1


@pytest.mark.parametrize("steps", [0, 100])
@pytest.mark.parametrize("step", [0.8, -0.8, 0.0])
def test_a_restart_with_a_step_is_not_held_against_the_rate(steps: int, step: float) -> None:
    readings = sequence(lambda i: 3 - 0.004 * i, 60, 0.005)
    control = RateControl(0.5)
    feed(control, readings[:30])
    resumed = RateControl()
    resumed.load_state(json.loads(json.dumps(control.state_dict())))
    assert resumed.factor == control.factor
    slope, scatter = resumed._slow.slope, resumed._slow.trend().e
    first = resumed.observe(readings[30] + step, 0.01, steps)
    assert first.kind == "relevel"
    assert first.notable == (step != 0)
    assert (resumed._slow.slope, resumed._slow.trend().e) == (slope, scatter)
    after = feed(resumed, [reading + step for reading in readings[31:]])
    assert not {"fall", "regime", "set-aside"} & set(kinds(after))
    assert resumed.factor > control.factor


def test_a_jump_waiting_when_the_run_ended_is_forgotten() -> None:
    control = RateControl(0.5)
    feed(control, [2.0, 2.0, 3.0])
    resumed = RateControl()
    resumed.load_state(control.state_dict())
    assert resumed.observe(3.0, 0.01, 100).kind == "relevel"
    assert resumed.observe(3.01, 0.01, 100).kind == "hold"


def test_restarts_with_no_reading_in_between_are_one_restart() -> None:
    readings = sequence(lambda i: 3 - 0.004 * i, 40, 0.005)
    once, thrice = RateControl(0.5), RateControl()
    feed(once, readings[:25])
    thrice.load_state(once.state_dict())
    for _ in range(2):
        again = RateControl()
        again.load_state(json.loads(json.dumps(thrice.state_dict())))
        thrice = again
    once.load_state(once.state_dict())
    assert feed(once, readings[25:]) == feed(thrice, readings[25:])
    assert once.state_dict() == thrice.state_dict()


def test_a_run_that_goes_back_goes_on_as_it_went_on_then() -> None:
    """Not a restart: the same text is measured, so nothing is re-levelled."""
    readings = sequence(lambda i: 3 - 0.004 * i, 40, 0.005)
    straight, back = RateControl(0.5), RateControl(0.5)
    feed(straight, readings[:25])
    back.load_state(straight.state_dict(), restarted=False)
    gone = [[(m.kind, m.factor, m.verdict) for m in feed(c, readings[25:])] for c in (straight, back)]
    assert gone[0] == gone[1]
    assert straight.state_dict() == back.state_dict()


def test_a_plateau_eases_after_36_readings_and_rests_as_long() -> None:
    control = RateControl(0.5)
    moves = feed(control, sequence(lambda i: 2, 90, 0.01))
    eased = [i for i, move in enumerate(moves) if move.kind == "ease"]
    assert eased[0] == 12 + 35
    assert moves[eased[0]].factor == pytest.approx(0.5 * math.exp(-0.002))
    assert moves[eased[0]].notable
    assert not moves[eased[0] + 1].notable
    after = feed(control, sequence(lambda i: 1.9 - 0.02 * i, 60, 0.01))
    last = max(i for i, move in enumerate(after) if move.kind == "ease") if "ease" in kinds(after) else -1
    assert min(i for i, move in enumerate(after) if move.kind == "rise") - last > 36


def test_the_factor_stays_in_its_bounds() -> None:
    low, high = RateControl(0.011), RateControl(0.99)
    down = feed(low, sequence(lambda i: 2 + 0.01 * i, 80, 0.01))
    up = feed(high, sequence(lambda i: 3 - 0.01 * i, 80, 0.01))
    assert low.factor == FACTOR_MIN
    assert high.factor == FACTOR_MAX
    for moves in (down, up):
        assert sum(move.notable for move in moves) < 5, "a bound is told once, not at every reading"


def test_warmup_spans_the_first_hundred_steps_of_a_life() -> None:
    assert RateControl.warmup(0) == pytest.approx(0.01)
    assert RateControl.warmup(49) == pytest.approx(0.5)
    assert RateControl.warmup(99) == RateControl.warmup(10**9) == 1.0


def test_halve_and_reset() -> None:
    control = RateControl(0.8)
    feed(control, [2.0, 1.9, 1.8])
    control.halve()
    assert control.factor == 0.4
    for _ in range(10):
        control.halve()
    assert control.factor == FACTOR_MIN
    control.reset()
    assert control.state_dict() == RateControl().state_dict()


def test_state_survives_json_to_the_last_digit() -> None:
    readings = sequence(lambda i: 2, 50, 0.01, 2)
    one, two = RateControl(0.5), RateControl()
    feed(one, readings)
    two.load_state(json.loads(json.dumps(one.state_dict())))
    assert two.state_dict() == one.state_dict()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
KEYS = ("factor", "slow", "fast", "index", "last", "errors", "verdicts", "harmful", "settled", "rest")


@settings(max_examples=200, deadline=None)
@given(st.one_of(JSON, st.dictionaries(st.sampled_from(KEYS), JSON)), st.lists(st.floats(), max_size=8))
def test_a_foreign_state_and_any_readings_are_borne(state: object, readings: list[float]) -> None:
    control = RateControl()
    control.load_state(state)  # type: ignore[arg-type]
    for nats in readings:
        move = control.observe(nats, 0.01, 100)
        assert FACTOR_MIN <= move.factor <= FACTOR_MAX
        assert move.verdict is None or abs(move.verdict) <= 50
        json.dumps(control.state_dict())


def test_a_fit_from_elsewhere_is_not_trusted() -> None:
    control = RateControl(0.5)
    feed(control, [2.0, 1.9, 1.8])
    state = control.state_dict()
    state["slow"]["sxx"] = -1.0
    resumed = RateControl()
    resumed.load_state(state)
    assert resumed.factor == 0.5
    assert resumed.observe(7.0, 0.01, 100).kind == "hold"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 6), st.floats(0, 0.3), st.integers(0, 200)), max_size=60),
    st.integers(0, 59),
)
def test_every_reading_gives_one_sentence_and_a_bounded_move(readings: list, cut: int) -> None:
    control = RateControl(0.5)
    for i, (nats, stderr, steps) in enumerate(readings):
        if i == cut:
            resumed = RateControl()
            resumed.load_state(control.state_dict())
            control = resumed
        before = control.factor
        move = control.observe(nats, stderr, steps)
        assert move.sentence.endswith((".", ")."))
        assert abs(math.log(move.factor / before)) <= (math.log(2) if move.kind == "regime" else 0.025) + 1e-9
