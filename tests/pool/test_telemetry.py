"""What is known of every expert: counted, saved, and read back from manifests of any kind."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minagi.pool import Telemetry


def lived() -> Telemetry:
    telemetry = Telemetry(3)
    for experts in ([0, 1], [1], [2, 1]):
        telemetry.begin_forward()
        telemetry.admitted(experts)
    return telemetry


def test_counting() -> None:
    telemetry = lived()
    assert telemetry.segments == 3
    assert telemetry.admits.tolist() == [1, 3, 1]
    assert telemetry.last_seen.tolist() == [1, 3, 3]
    assert telemetry.ever.all()
    share = telemetry.share()
    assert share.sum() == pytest.approx(1) and share.argmax() == 1


def test_what_is_chosen_shows_in_use() -> None:
    telemetry = Telemetry(3)
    for _ in range(2000):
        telemetry.chosen({0: 30, 2: 10})
    assert telemetry.use.tolist() == pytest.approx([0.75, 0.0, 0.25], abs=0.15)
    assert telemetry.use[0] == pytest.approx(3 * telemetry.use[2])


def test_the_running_share() -> None:
    """Decay 1 − 1/1000 when a forward begins, + 1/1000 for each expert it admits."""
    telemetry = Telemetry(2)
    assert telemetry.share().tolist() == [0.5, 0.5]
    telemetry.begin_forward()
    assert telemetry.share().tolist() == [0.5, 0.5]  # taken before the admissions of its own forward
    telemetry.admitted([0])
    telemetry.begin_forward()
    assert telemetry.recent.tolist() == [0.001 * 0.999, 0]
    telemetry.admitted([1, 0])
    assert telemetry.recent[0] == pytest.approx(0.001 * 0.999 + 0.001)


def test_births_and_deaths_keep_names() -> None:
    telemetry = lived()
    assert telemetry.append() == 3
    assert (telemetry.born[-1], telemetry.last_seen[-1], telemetry.recent[-1]) == (3, 3, 0)
    assert not telemetry.ever[-1]
    telemetry.keep([1, 3])
    assert telemetry.uid == [1, 3] and telemetry.admits.tolist() == [3, 0]
    assert telemetry.append() == 4


def test_round_trip_through_a_manifest() -> None:
    telemetry = lived()
    telemetry.append()
    telemetry.keep([0, 2, 3])
    saved = json.loads(json.dumps(telemetry.to_manifest([1.0, 0.5, 0.001])))
    again = Telemetry.from_manifest(saved, saved["uid"])
    assert again.to_manifest([1.0, 0.5, 0.001]) == telemetry.to_manifest([1.0, 0.5, 0.001])


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "gate",
    "gate_seen",
    "use",
    "admits",
    "born",
    "last_seen",
    "recent",
    "ever",
    "uid",
    "next_uid",
    "segments",
]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.sampled_from(KEYS), ANYTHING | st.lists(st.floats(), min_size=3, max_size=3))
    | ANYTHING
)
def test_hostile_manifests_give_a_sound_telemetry(saved: Any) -> None:
    telemetry = Telemetry.from_manifest(saved, [4, 7, 2])
    assert telemetry.uid == [4, 7, 2] and 8 <= telemetry.next_uid <= 10**12
    assert 0 <= telemetry.segments <= 10**12
    for name in ("gate_seen", "use", "admits", "born", "last_seen", "recent"):
        array = getattr(telemetry, name)
        assert array.shape == (3,) and np.isfinite(array).all()
        assert name == "gate_seen" or (array >= 0).all()
    assert (telemetry.born <= telemetry.segments).all()
    assert (telemetry.last_seen <= telemetry.segments).all()
    assert telemetry.ever.shape == (3,) and telemetry.ever.dtype == bool
    assert math.isclose(telemetry.share().sum(), 1)
    telemetry.begin_forward()
    telemetry.admitted([1])
    assert telemetry.append() >= 8


def test_one_bad_figure_spoils_no_other() -> None:
    saved = lived().to_manifest([1.0] * 3) | {"born": [0, math.nan, 0], "use": "none", "ever": [1, 0]}
    telemetry = Telemetry.from_manifest(saved, [0, 1, 2])
    assert telemetry.admits.tolist() == [1, 3, 1]
    assert telemetry.born.tolist() == [0, 0, 0]
