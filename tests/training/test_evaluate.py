"""Measuring: every byte once, the same figure every time, and an error that counts windows."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Tiny, case_of, make

from minagi.text.corpus import Corpus, Subject, TextSpan
from minagi.training.evaluate import SHORTEST, Evaluator, Measured, Score


@pytest.fixture
def tiny() -> Tiny:
    return make(case_of(seed=3, experts=5, resident=2))


@pytest.fixture
def evaluator(tiny: Tiny) -> Evaluator:
    return Evaluator(tiny.net, tiny.pool, tiny.case.routing)


def ids_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count).astype(np.uint16)


def finished(reading: Generator[None, None, Measured]) -> tuple[Measured, int]:
    """The measurement, and in how many slices it came."""
    slices = 0
    try:
        while True:
            next(reading)
            slices += 1
    except StopIteration as end:
        return end.value, slices


def corpus_of(folder: Path, sizes: dict[str, list[int]]) -> Corpus:
    subjects = []
    for name, files in sizes.items():
        spans = []
        for number, size in enumerate(files):
            path = folder / f"{name}{number}.txt"
            path.write_bytes(ids_of(size, number).astype(np.uint8).tobytes())
            spans.append(TextSpan(path, 0, size))
        subjects.append(Subject(name, folder, (), tuple(spans)))
    return Corpus(tuple(subjects))


def test_score() -> None:
    score = Score()
    assert score.nats is None and score.stderr is None
    score.add(np.array([1.0, 2.0, 3.0]), 3)
    assert score.nats == 2 and score.stderr is None
    score.add(np.array([4.0]), 1)
    score.add(np.array([]), 0)
    assert (score.nats, score.size, score.windows) == (2.5, 4, [2.0, 4.0])
    assert score.stderr == pytest.approx(math.sqrt(2) / math.sqrt(2))  # of the two windows' means


def test_chunks_go_through_the_cache() -> None:
    """Where everyone asks for every expert, reading in chunks comes to the same as reading at once."""
    tiny = make(case_of(seed=3, experts=4, resident=4, top_k=4))
    evaluator = Evaluator(tiny.net, tiny.pool, tiny.case.routing)
    ids = ids_of(20)
    whole = evaluator.nats(ids, 100)
    assert whole.shape == (19,)
    for chunk in (1, 7, 18):
        np.testing.assert_allclose(evaluator.nats(ids, chunk), whole, rtol=1e-4, atol=1e-4)


def test_too_short_to_measure(evaluator: Evaluator) -> None:
    assert evaluator.nats(ids_of(1), 8).shape == (0,)
    assert evaluator.nats(ids_of(2), 8).shape == (1,)
    assert list(evaluator.every_byte(ids_of(1), 8)) == []
    assert list(evaluator.every_byte(ids_of(0), 8)) == []


def test_the_same_text_gives_the_same_figure_whatever_was_drawn_before(tiny: Tiny) -> None:
    routing = replace(tiny.case.routing, select_temperature=1.0)
    evaluator = Evaluator(tiny.net, tiny.pool, routing)
    first = evaluator.nats(ids_of(12), 5)
    torch.rand(3)
    evaluator.nats(ids_of(9, 1), 5)
    np.testing.assert_array_equal(evaluator.nats(ids_of(12), 5), first)


class Echo(Evaluator):
    """Instead of a loss, each symbol itself; and how much came before it."""

    def __init__(self) -> None:
        self.contexts: list[int] = []

    def nats(self, ids: np.ndarray, chunk: int) -> np.ndarray:
        self.last = ids
        return ids[1:].astype(float)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 60), st.integers(1, 30))
def test_every_byte_after_the_first_is_scored_once_with_half_a_window_before_it(
    count: int, window: int
) -> None:
    echo = Echo()
    text = np.arange(count, dtype=np.uint16)
    scored: list[float] = []
    for fresh, size in echo.every_byte(text, window):
        assert size == len(fresh)
        assert len(echo.last) <= window + 1
        for value in fresh:
            before = int(value) - int(echo.last[0])
            assert before >= min(window // 2, int(value))
        scored += fresh.tolist()
    assert scored == list(range(1, count))


def test_held_out_is_spread_over_every_subject(tmp_path: Path, evaluator: Evaluator) -> None:
    corpus = corpus_of(tmp_path, {"a": [400, 50, 300], "b": [90], "c": []})
    measured, slices = finished(evaluator.held_out(corpus, 200, passage=40, window=16, chunk=16))
    assert set(measured.subjects) == {"a", "b"}
    assert 60 <= measured.subjects["a"].size <= 120
    assert 60 <= measured.subjects["b"].size <= 100
    total = sum(score.size for score in measured.subjects.values())
    assert measured.total.size == total and slices == len(measured.total.windows)
    assert measured.total.stderr is not None and measured.total.stderr > 0


def test_all_there_is_when_there_is_less(tmp_path: Path, evaluator: Evaluator) -> None:
    corpus = corpus_of(tmp_path, {"a": [70, 33]})
    measured, _ = finished(evaluator.held_out(corpus, 10_000, passage=32, window=16, chunk=16))
    passages = [32, 32, 6, 32, 1]  # the first symbol of a passage is given, not scored
    assert measured.total.size == sum(size - 1 for size in passages)


def test_many_small_files_and_many_subjects_cost_what_was_asked_for(
    tmp_path: Path, evaluator: Evaluator
) -> None:
    many = corpus_of(tmp_path, {"a": [19] * 60})
    measured, slices = finished(evaluator.held_out(many, 20, passage=128, window=64, chunk=64))
    assert slices == 1 and measured.total.size == 18
    subjects = corpus_of(tmp_path, {name: [700] for name in "bcdef"})
    measured, _ = finished(evaluator.held_out(subjects, 100, passage=512, window=256, chunk=256))
    assert measured.total.size == 5 * (SHORTEST - 1), "and not five whole passages"


def test_another_window_measures_the_same_passages(tmp_path: Path, evaluator: Evaluator) -> None:
    corpus = corpus_of(tmp_path, {"a": [500]})
    small, _ = finished(evaluator.held_out(corpus, 120, passage=40, window=8, chunk=8))
    large, _ = finished(evaluator.held_out(corpus, 120, passage=40, window=32, chunk=8))
    assert small.total.size == large.total.size


def test_a_file_that_vanished_is_left_out(tmp_path: Path, evaluator: Evaluator) -> None:
    corpus = corpus_of(tmp_path, {"a": [60, 60]})
    (tmp_path / "a0.txt").unlink()
    measured, _ = finished(evaluator.held_out(corpus, 1_000, passage=64, window=64, chunk=64))
    assert measured.total.size == 59
    (tmp_path / "a1.txt").unlink()
    measured, _ = finished(evaluator.held_out(corpus, 1_000, passage=64, window=64, chunk=64))
    assert measured.total.nats is None


def test_measuring_leaves_no_mark_on_the_telemetry(tiny: Tiny, evaluator: Evaluator) -> None:
    before = tiny.pool.telemetry.to_manifest([])
    evaluator.nats(ids_of(30), 10)
    assert tiny.pool.telemetry.to_manifest([]) == before
