from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.training.window import WindowGrowth


def growth(**changes: Any) -> WindowGrowth:
    defaults: dict[str, Any] = {
        "start": 64, "end": 128, "step": 4, "grow_every_chars": 1000, "every_chars": 256,
        "gain_min": 0.015,
    }  # fmt: skip
    return WindowGrowth(**{**defaults, **changes})


def losses(window: int, first: float, deep: float) -> np.ndarray:
    """Nats by position: `first` in the first half, `deep` in the last quarter, something wild between."""
    nats = np.full(window, 50.0)
    nats[: window // 2], nats[window - window // 4 :] = first, deep
    return nats


def feed(window: WindowGrowth, first: float, deep: float, chars: range, chunk: int = 32) -> list:
    moves = [window.observe(losses(window.context, first, deep), chunk, at) for at in chars]
    return [move for move in moves if move is not None]


def test_gain_is_the_first_half_less_the_last_quarter() -> None:
    window = growth()
    moves = feed(window, 2.0, 1.75, range(32, 289, 32))
    assert [move.gain for move in moves] == [0.25]
    assert window.context == 64


def test_a_batch_needs_eight_of_each_and_its_characters() -> None:
    assert feed(growth(every_chars=1), 2, 1, range(32, 32 * 8, 32)) == []
    assert len(feed(growth(every_chars=1), 2, 1, range(32, 32 * 9, 32))) == 1
    assert feed(growth(every_chars=10_000, grow_every_chars=10**6), 2, 1, range(32, 9_999, 32)) == []


def test_whole_chunks_are_counted_where_the_window_has_them() -> None:
    """256 characters in chunks of 16: 8 lie in the first half and 4 in the last quarter of every step."""
    window = growth(start=256, end=512, every_chars=1)
    assert window.observe(losses(256, 2, 1), 16, 16) is None
    move = window.observe(losses(256, 2, 1), 16, 32)
    assert move is not None
    assert move.gain == pytest.approx(1.0)


def test_it_grows_on_the_cadence_while_the_gain_lasts() -> None:
    window = growth()
    moves = feed(window, 2.0, 1.9, range(32, 3001, 32))
    assert [move.context for move in moves if move.grew] == [68, 72]
    assert window.next_at_chars == 3000
    assert "grew by 4" in next(move.sentence for move in moves if move.grew)


@pytest.mark.parametrize("deep", [1.986, 2.0, 3.0])
def test_it_stays_without_gain_and_does_not_make_up_for_it(deep: float) -> None:
    window = growth()
    feed(window, 2.0, deep, range(32, 5000, 32))
    assert window.context == 64
    assert window.gain == pytest.approx(2.0 - deep)
    feed(window, 2.0, 1.0, range(5000, 6100, 32))
    assert window.context == 68


def test_a_gain_that_just_reaches_what_is_needed_is_not_enough() -> None:
    window = growth(gain_min=0.25)
    feed(window, 2.0, 1.75, range(32, 3000, 32))
    assert (window.gain, window.context) == (0.25, 64)


@pytest.mark.parametrize(("deep", "told"), [(1.98504, "+0.02158"), (1.98496, "+0.022"), (1.9, "+0.144")])
def test_the_gain_is_told_with_digits_enough_to_bear_the_sentence_out(deep: float, told: str) -> None:
    (move,) = feed(growth(), 2.0, deep, range(32, 300, 32))
    assert f"(looking back gains {told} bits a character; 0.0216 needed)" in move.sentence


def test_a_cadence_shorter_than_a_step_grows_as_often_as_it_came_due() -> None:
    window = growth(grow_every_chars=10, step=1, end=1000)
    feed(window, 2.0, 1.0, range(32, 1000, 32))
    at = window.context
    feed(window, 2.0, 1.0, range(1000, 1010, 32))
    feed(window, 2.0, 1.0, range(1100, 1101))
    assert window.context == at + 11


def test_the_ceiling_binds_from_the_start() -> None:
    assert growth(start=500, end=128).context == 128
    window = growth(end=70)
    moves = feed(window, 2.0, 1.0, range(32, 4000, 32))
    assert window.context == 70
    assert "ceiling of 70" in moves[-1].sentence


def test_a_lowered_ceiling_binds_on_resume() -> None:
    before = growth()
    before.context = 120
    after = growth(end=96)
    after.load_state(before.state_dict(), 120, 5000)
    assert after.context == 96
    bare = growth(end=96)
    bare.load_state(None, 120, 5000)
    assert bare.context == 96
    assert bare.next_at_chars == 6000


def test_halving_stops_at_the_start() -> None:
    window = growth(start=64, end=512)
    window.context = 200
    assert [window.halve() for _ in range(3)] == [100, 64, 64]
    short = growth(start=64)
    short.load_state(None, 40, 0)
    assert short.halve() == 40, "never made longer"


def test_steps_that_are_not_finite_or_too_short_are_no_evidence() -> None:
    window = growth(every_chars=1)
    for at in range(1, 20):
        assert window.observe(np.full(64, np.nan), 32, at) is None
        assert window.observe([2.0, 2.0, 1.0], 32, at) is None
        assert window.observe([], 32, at) is None
    assert window.gain is None


def test_state_round_trip_goes_on_in_the_middle_of_a_batch() -> None:
    one = growth()
    feed(one, 2.0, 1.8, range(32, 1500, 32))
    two = growth()
    two.load_state(json.loads(json.dumps(one.state_dict())), one.context, 1500)
    assert two.state_dict() == one.state_dict()
    assert feed(one, 2, 1, range(1500, 4000, 32)) == feed(two, 2, 1, range(1500, 4000, 32))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
KEYS = ["context", "gain", "sums", "pieces", "batch_since", "grown_at"]


@given(st.none() | st.dictionaries(st.sampled_from(KEYS), SCALARS | st.lists(st.floats(), max_size=3)))
def test_a_foreign_state_is_borne(state: Any) -> None:
    window = growth()
    window.load_state(state, None, 500)
    feed(window, 2.0, 1.0, range(500, 3000, 32))
    assert 1 <= window.context <= 128
    json.dumps(window.state_dict(), allow_nan=False)
