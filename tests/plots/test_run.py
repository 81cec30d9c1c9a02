from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plot_rows import HOSTILE, read_rows, stream_rows

from minagi.plots import run as module
from minagi.plots.run import Curve, Run, runs_of
from minagi.plots.scale import labels, marks, short
from minagi.units import LN2


def only(rows: list) -> Run:
    (run,) = runs_of(rows).values()
    return run


def test_a_run_of_read() -> None:
    run = only(read_rows(12))
    assert (run.model, run.stream, run.rows, run.chars) == ("/models/mine", False, 12, 600_000)
    assert run.held_out.y[0] == pytest.approx(3.5 * 50_000**-0.06 / LN2)
    assert len(run.train) == len(run.rate) == len(run.window) == len(run.memory) == 12
    assert run.experts.y[-1] == 5 and run.rate.y[-1] == pytest.approx(0.988)
    assert set(run.subjects) == {"letters", "logbook"}
    assert run.subjects["letters"].error[0] == pytest.approx(0.01 / LN2)
    assert run.pool["uid"] == [0, 1, 2, 3, 4]


def test_a_run_of_stream() -> None:
    """A reading is a reading once, however many rows repeat it."""
    run = only(stream_rows())
    assert run.stream
    assert run.train.y == pytest.approx([2.0 / LN2, 1.8 / LN2])
    assert run.held_out.y == pytest.approx([1.9 / LN2, 1.7 / LN2])
    assert run.subjects["books"].y == pytest.approx([1.9 / LN2])
    assert run.rate.y == [3e-4, 2e-4]
    assert run.pool["use"] == [0.5, 0.5]


def test_a_reading_stands_where_it_was_made_however_often_it_is_repeated() -> None:
    """Checkpoints come oftener than readings, and a resumed run has none of its own at first."""
    rows = read_rows(4)
    for row in rows[1:3]:
        row |= {"val_chars": 50_000, "val": rows[0]["val"]}
    rows[3]["val_chars"] = None
    run = only(rows)
    assert run.held_out.x == run.subjects["letters"].x == [50_000]
    assert len(run.train) == 4
    for row in rows:
        del row["val_chars"]
    assert len(only(rows).held_out) == 4, "written elsewhere: where the row stands"


def test_models_are_told_apart_and_the_last_written_is_last() -> None:
    rows = [*read_rows(3, "a"), *read_rows(2, "b"), *read_rows(1, "a")]
    runs = runs_of(rows)
    assert list(runs) == ["b", "a"]
    assert runs["a"].rows == 4


def test_models_without_end_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MODELS_MAX", 3)
    assert list(runs_of(row for n in range(9) for row in read_rows(1, str(n)))) == ["6", "7", "8"]


def test_subjects_without_end_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBJECTS_MAX", 2)
    rows = [{"chars": 1, "subjects": {str(n): {"val": 1.0} for n in range(5)}}] * 3
    run = only(rows)
    assert {name: len(curve) for name, curve in run.subjects.items()} == {"0": 3, "1": 3}


@pytest.mark.parametrize("row", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_rows_make_no_curve_and_no_trouble(row: dict) -> None:
    run = only([*read_rows(2), {"model": "/models/mine", **row}]) if "model" not in row else Run()
    for curve in (
        run.train,
        run.held_out,
        run.experts,
        run.window,
        run.rate,
        run.memory,
        *run.subjects.values(),
    ):
        assert all(map(math.isfinite, (*curve.x, *curve.y, *curve.error)))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("kind", "model", "chars", "loss", "val", "stderr", "experts", "context", "rate", "lr", "subjects",
        "uid", "use", "gate", "memory")  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6), max_size=6))
def test_any_json_is_a_run(rows: list) -> None:
    for run in runs_of(rows).values():
        assert math.isfinite(run.chars)


def test_a_long_curve_is_bounded_and_keeps_its_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POINTS_MAX", 64)
    curve = Curve()
    for x in range(10_000):
        curve.add(x, 1000.0 if x == 1234 else -1000.0 if x == 7777 else float(x % 7))
    assert len(curve) < 128
    assert curve.x == sorted(curve.x) and curve.x[0] == 0 and curve.x[-1] == 9999
    assert max(curve.y) == 1000 and min(curve.y) == -1000
    assert curve.since(5000).x[0] >= 5000


# --------------------------------------------------------------------------------------------- axes


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e15), st.integers(1, 20), st.booleans())
def test_marks_lie_within_and_are_few(low: float, span: float, about: int, log: bool) -> None:
    high = low + span
    found = marks(low, high, about, log)
    assert found == sorted(found) and len(found) <= 3 * about + 3
    slack = (high - low) * 1e-6
    assert all(low - slack <= value <= high + slack for value in found)


def test_round_numbers() -> None:
    assert marks(0.0, 10.0, 5) == [0, 2.5, 5, 7.5, 10] or marks(0.0, 10.0, 5) == [0, 2, 4, 6, 8, 10]
    assert marks(5.0, 5.0, 5) == [5.0]
    assert marks(1e3, 1e7, 9, log=True) == [1e3, 1e4, 1e5, 1e6, 1e7]
    assert marks(2e4, 9e5, 9, log=True) == [2e4, 5e4, 1e5, 2e5, 5e5]


def test_marks_close_together_are_told_apart() -> None:
    assert labels([5.3585, 5.359, 5.3595]) == ["5.3585", "5.359", "5.3595"]
    assert labels([1.0, 2.0]) == ["1", "2"] and labels([]) == []
    assert len(set(labels([1e15, 1e15 + 1]))) == 1, "past any digits there are"


def test_short_numbers() -> None:
    assert [short(v) for v in (950, 12_000, 1.5e6, 2e9, 3e12, 0.25, 0, -4000)] == [
        "950", "12k", "1.5M", "2G", "3T", "0.25", "0", "-4k",
    ]  # fmt: skip
