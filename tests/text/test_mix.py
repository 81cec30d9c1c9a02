from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.errors import MinagiError, UsageError
from minagi.text import mix
from minagi.text.mix import Mix, MixReader, Place, Source
from minagi.text.packed import TRAIN, VAL, PackedText


def text_of(folder: Path, name: str, length: int) -> PackedText:
    """A text whose every id tells its place, modulo 251."""
    (np.arange(length) % 251).astype("<u2").tofile(folder / name)
    return PackedText(folder / name)


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, PackedText]:
    return {"a": text_of(tmp_path, "a.bin", 2_000), "b": text_of(tmp_path, "b.bin", 40)}


def windows(reader: MixReader, count: int, window: int = 30, burst: int = 10) -> list[tuple[str, list[int]]]:
    opened = [reader.open(window, burst) for _ in range(count)]
    return [(each.source, each.ids.tolist()) for each in opened]


def test_windows_come_by_weight_from_anywhere(sources: dict[str, PackedText]) -> None:
    reader = MixReader(sources, {"a": 3.0, "b": 1.0}, seed=1)
    opened = windows(reader, 800)
    assert 540 < Counter(source for source, _ in opened)["a"] < 660
    assert all(len(ids) == 31 for _, ids in opened)
    starts = {ids[0] for source, ids in opened if source == "b"}
    assert starts == set(range(10)), "every place that leaves room for a window, the last one too"


def test_the_same_seed_reads_the_same_and_another_does_not(sources: dict[str, PackedText]) -> None:
    one, same, other = (windows(MixReader(sources, {"a": 1, "b": 1}, seed), 20) for seed in (4, 4, 5))
    assert one == same != other


def test_a_text_of_just_one_window(tmp_path: Path) -> None:
    text = text_of(tmp_path, "x.bin", 31)
    assert windows(MixReader({"x": text}, {"x": 1.0}, 0), 3) == [("x", list(range(31)))] * 3


def test_replay_reopens_what_was_read(sources: dict[str, PackedText]) -> None:
    reader = MixReader(sources, {"a": 1.0}, seed=2, replay=0.25)
    opened = windows(reader, 1_000)
    short = [ids for _, ids in opened if len(ids) == 11]
    assert 200 < len(short) < 300
    whole = {ids[0] for _, ids in opened if len(ids) == 31}
    assert {ids[0] for ids in short} <= whole
    assert not any(len(ids) == 11 for _, ids in windows(MixReader(sources, {"a": 1.0}, 2), 300))


def test_every_place_is_as_likely_to_be_remembered(
    sources: dict[str, PackedText], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mix, "REMEMBERED", 8)
    reader = MixReader(sources, {"a": 1.0}, seed=3, replay=0.01)
    kept: list[Place] = []
    met: list[Place] = []
    while len(met) < 4_000:
        before = reader._met
        window = reader.open(30, 5)
        if reader._met > before:
            met.append(Place("a", int(window.number)))
        assert len(reader._places) <= 8
    kept = reader._places
    assert len(kept) == 8
    assert reader._met == 4_000


@given(st.integers(0, 40), st.floats(0, 0.9))
def test_a_restored_reader_goes_on_as_it_would_have(tmp_path_factory, steps: int, replay: float) -> None:
    folder = tmp_path_factory.mktemp("mix")
    sources = {"a": text_of(folder, "a.bin", 900), "b": text_of(folder, "b.bin", 100)}
    reader = MixReader(sources, {"a": 1.0, "b": 2.0}, 7, replay)
    windows(reader, steps)
    again = MixReader(sources, {"a": 1.0, "b": 2.0}, 7, replay)
    again.restore(json.loads(json.dumps(reader.state())))
    assert windows(again, 20) == windows(reader, 20)
    for text in sources.values():
        text.close()


@pytest.mark.parametrize(
    "state",
    [
        {}, {"opened": -3}, {"opened": "x", "met": None, "places": 7}, {"opened": True},
        {"places": [["a"], ["z", 1], ["a", -1], ["a", 1_999], ["a", 1.5], ["a", True], 4, None, [[], 1]]},
        {"opened": 10**30, "places": {"a": 1}},
    ],
)  # fmt: skip
def test_a_state_that_makes_no_sense_is_left_out(sources: dict[str, PackedText], state: dict) -> None:
    reader = MixReader(sources, {"a": 1.0}, 0, replay=0.5)
    reader.restore(state)
    assert reader.state() == {"opened": 0, "met": 0, "places": []}


def test_a_place_near_the_end_gives_what_there_is(sources: dict[str, PackedText]) -> None:
    reader = MixReader(sources, {"a": 1.0}, 0, replay=0.999)
    reader.restore({"places": [["b", 37]]})
    assert windows(reader, 1) == [("b", [37, 38, 39])]


def test_a_text_that_shrinks_ends_it_in_words(sources: dict[str, PackedText]) -> None:
    reader = MixReader(sources, {"a": 1.0}, 0)
    os.truncate(sources["a"].path, 10)
    with pytest.raises(MinagiError, match="became shorter"):
        windows(reader, 3)


def test_a_mix_must_hold_a_window(tmp_path: Path) -> None:
    text_of(tmp_path, TRAIN, 100)
    text_of(tmp_path, VAL, 2)
    held = Mix([Source("x", tmp_path, 1.0)])
    held.check(99)
    with pytest.raises(
        UsageError, match=r"holds 100 characters, and at least 101 are needed.*lower --context"
    ):
        held.check(100)
    assert held.corpus.summary()["subjects"] == [{"name": "x", "files": 2, "chars": 100, "held_out_chars": 2}]
    held.close()
    text_of(tmp_path, VAL, 1)
    with pytest.raises(UsageError, match=r"val.bin holds 1 characters"):
        Mix([Source("x", tmp_path, 1.0)]).check(10)
