from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import case_of, make

from minagi import protocol
from minagi.text.packed import PackedText
from minagi.training.evaluate import Evaluator
from minagi.training.packed_reading import PackedReading, passages
from minagi.training.progress import Progress


@given(st.integers(2, 5_000), st.integers(1, 9_000), st.integers(1, 700))
def test_passages_lie_evenly_within_the_text(available: int, chars: int, passage: int) -> None:
    length, starts = passages(available, chars, passage)
    assert 1 <= length <= passage
    assert starts == sorted(set(starts)), "none twice"
    assert starts[0] == 0 and starts[-1] + length + 1 <= available
    assert len(starts) * length <= max(chars, length)
    if len(starts) > 1:
        gaps = np.diff(starts)
        assert gaps.min() >= length and gaps.max() - gaps.min() <= 1


def text_of(path: Path, ids: np.ndarray) -> PackedText:
    ids.astype("<u2").tofile(path)
    return PackedText(path)


def read(reading: PackedReading, evaluator: Evaluator, window: int, chunk: int) -> protocol.HeldOut:
    reading.begin(evaluator, window, chunk)
    while True:
        assert reading.open
        found = reading.go_on(0.0, Progress())
        if found is not None:
            assert not reading.open
            return found


def test_a_reading_is_the_weighted_mean_of_what_the_evaluator_says(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tiny = make(case_of(max_steps=2))
    evaluator = Evaluator(tiny.net, tiny.pool, tiny.case.routing)
    texts = {name: text_of(tmp_path / name, rng.integers(0, 256, 90)) for name in "ab"}
    now = iter(range(10**6))
    reading = PackedReading(texts, {"a": 3.0, "b": 1.0}, 40, 20, lambda: float(next(now)))
    found = read(reading, evaluator, 10, 5)
    means = {}
    for name, text in texts.items():
        ids = [text.ids(start, 11) for start in (0, 10, 69, 79)]
        each = [float(evaluator.nats(part, 5).mean()) for part in ids]
        means[name] = np.mean(each)
        assert found.subjects[name]["nats"] == pytest.approx(means[name])
        assert found.subjects[name]["stderr"] == pytest.approx(np.std(each, ddof=1) / 2)
        assert found.subjects[name]["bytes"] == 40
    assert found.nats == pytest.approx(0.75 * means["a"] + 0.25 * means["b"])
    assert found.bits_per_byte == pytest.approx(found.nats / math.log(2))
    errors = [found.subjects[name]["stderr"] or 0 for name in "ab"]
    assert found.stderr == pytest.approx(math.hypot(0.75 * errors[0], 0.25 * errors[1]))


def test_readings_of_the_same_text_are_comparable_and_others_not(tmp_path: Path) -> None:
    texts = {"a": text_of(tmp_path / "a", np.ones(90)), "b": text_of(tmp_path / "b", np.ones(90))}

    def identity(weights: dict[str, float], chars: int = 40, passage: int = 20) -> str:
        return PackedReading(texts, weights, chars, passage).identity

    one = identity({"a": 1, "b": 1})
    assert one == identity({"a": 2, "b": 2})
    others = {identity({"a": 1, "b": 2}), identity({"a": 1, "b": 1}, 50), identity({"a": 1, "b": 1}, 40, 10)}
    assert len({one, *others}) == 4


def test_giving_up_ends_a_reading(tmp_path: Path) -> None:
    tiny = make(case_of())
    texts = {"a": text_of(tmp_path / "a", np.ones(90))}
    reading = PackedReading(texts, {"a": 1.0}, 40, 20)
    reading.begin(Evaluator(tiny.net, tiny.pool, tiny.case.routing), 10, 5)
    reading.give_up()
    assert not reading.open
