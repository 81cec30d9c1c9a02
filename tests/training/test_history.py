from __future__ import annotations

import errno
import itertools
import json
import math
import os
from pathlib import Path

import pytest

from minagi.training import history, report
from minagi.training.course import POINTS as POINTS_OF_A_ROW
from minagi.training.history import History
from minagi.training.past import POINTS, past
from minagi.training.progress import Progress

MODEL = "/models/mine"


def row(step: int) -> dict[str, object]:
    return {"step": step, "model": MODEL}


def life(step: int, other_text_until: int = -1) -> Progress:
    """The counters of a model that stands at `step`."""
    progress = Progress()
    progress.step, progress.chars, progress.other_text_until = step, 100 * step, other_text_until
    return progress


def steps(log: History) -> list[int]:
    return [found["step"] for found in log.rows()]


@pytest.fixture
def log(tmp_path: Path) -> History:
    log = History(tmp_path / "runs" / "history.jsonl")
    for step in (10, 20, 30):
        assert log.append({**row(step), "val": 1.5, "use": [0.5, math.nan]}) == ""
    return log


def test_one_plain_json_line_a_row(log: History) -> None:
    lines = log.path.read_text().splitlines()
    assert json.loads(lines[0]) == {**row(10), "val": 1.5, "use": [0.5, None]}
    assert len(lines) == 3


def test_rows_past_the_point_are_dropped(log: History) -> None:
    assert log.drop_after(20, MODEL) == ""
    assert steps(log) == [10, 20]
    assert [path.name for path in log.path.parent.iterdir()] == ["history.jsonl"]
    log.append(row(25))
    assert steps(log) == [10, 20, 25]


def test_another_models_rows_stay(log: History) -> None:
    log.append({"step": 99, "model": "/models/other"})
    assert log.drop_after(10, MODEL) == ""
    assert steps(log) == [10, 99]


def test_nothing_past_the_point_leaves_the_file_alone(log: History) -> None:
    before = log.path.stat()
    assert log.drop_after(30, MODEL) == ""
    after = log.path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_torn_last_line_costs_only_itself(log: History) -> None:
    with log.path.open("ab") as file:
        file.write(b'{"step": 40, "va')
    log.append(row(50))
    assert steps(log) == [10, 20, 30, 50]
    log.drop_after(30, MODEL)
    assert steps(log) == [10, 20, 30]


HOSTILE = [
    b"\x00\xff\xfe", b"[1, 2]", b'"step"', b"null", b"{" * 100_000, b'{"step": "x"}', b'{"step": true}',
    b'{"step": 1e999}', b'{"step": NaN}', b"1" * 10_000, b"",
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines_are_passed_over(log: History, line: bytes) -> None:
    with log.path.open("ab") as file:
        file.write(line + b"\n")
    log.append(row(40))
    assert log.drop_after(20, MODEL) == ""
    assert [r["step"] for r in log.rows() if isinstance(r["step"], int) and r["step"] > 1] == [10, 20]


def test_a_line_longer_than_any_of_ours_is_not_held(log: History, monkeypatch: pytest.MonkeyPatch) -> None:
    with log.path.open("ab") as file:
        file.write(b'{"step": 35, "x": "' + b"y" * 5000 + b'"}\n')
    log.append(row(40))
    monkeypatch.setattr(history, "LINE_MAX", 100)
    assert steps(log) == [10, 20, 30, 40]


def test_faults_of_the_file_system_are_sentences(tmp_path: Path) -> None:
    folder = tmp_path / "history.jsonl"
    folder.mkdir()
    log = History(folder)
    assert str(folder) in log.append(row(1))
    assert list(log.rows()) == []
    assert log.drop_after(0, MODEL) == ""
    (tmp_path / "file").write_text("")
    assert "could not be written" in History(tmp_path / "file" / "history.jsonl").append({"step": 1})
    assert History(tmp_path / "none.jsonl").drop_after(0, MODEL) == ""


def test_a_rewrite_that_fails_leaves_the_rows(log: History) -> None:
    log.path.with_name("history.jsonl.new").mkdir()
    assert "could not be removed" in log.drop_after(10, MODEL)
    assert steps(log) == [10, 20, 30]


def test_a_folder_that_is_closed_to_us_holds_nothing(log: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", closed)
    assert list(log.rows()) == list(log.tail(1_000)) == []
    assert log.drop_after(0, MODEL) == ""


def test_a_pipe_or_a_device_in_its_place_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        history = History(tmp_path / name)
        assert list(history.rows()) == []
        assert history.drop_after(0, "m") == ""


HOSTILE = (
    b"[]", b"{", b"\xff\xfe", b"[" * 9_000, b'{"step": NaN}', b"9" * 9_000, b"x" * 100_000,
    b'{"step": 1e400, "model": "/models/mine"}', b'{"step": -5, "model": "/models/mine", "loss": 9.5}',
    b'{"step": 8, "model": "/models/mine", "chars": {}, "loss": [], "val": NaN, "subjects": [1]}',
    b'{"step": 8, "model": "/models/mine", "chars": 9007199254740992, "loss": 9.5}',
    b'{"step": 9, "model": "/models/mine", "loss": "many", "val": true, "subjects": {"a": 3, "b": {}}}',
)  # fmt: skip


def test_the_way_between_checkpoints_is_kept_in_few_points(log: History) -> None:
    progress = life(0)
    log.path.unlink()
    for step in range(1, 3001):
        progress.step = step
        progress.took("a", 100, 5.0 - step / 1e3, 0.1, 0, 0.0)
        if step % 400 == 0:
            progress.course.measured(progress.chars, 5.0 - step / 1e3)
        if step in (1000, 2000):
            fresh = report.life(progress, 256, 1.0, None)
            assert POINTS_OF_A_ROW // 2 <= len(fresh["course"]) < 2 * POINTS_OF_A_ROW
            log.append({"model": MODEL, "step": step, "chars": progress.chars, "val": None, **fresh})
            progress.saved_chars = progress.chars
    course = [[240_000, 2.5], [1, 9.0], [999_999, 9.0], "x", [None, []]]
    old = {"val": 3.0, "val_chars": None, "course": course, "readings": {}}
    log.append({"model": MODEL, "step": 2500, "chars": 250_000, "loss": 2.4, **old})
    told = past(log, MODEL, life(3000))
    losses = [point[0] for point in told.points if point[1] is not None]
    assert losses[0] == 100.0 and losses[-2:] == [240_000.0, 250_000.0] and losses == sorted(set(losses))
    assert max(b - a for a, b in itertools.pairwise(losses[:-2])) <= 3_200, "no long straight line"
    readings = [point[3] for point in told.points if point[2] is not None]
    assert readings == [40_000.0, 80_000.0, 120_000.0, 160_000.0, 200_000.0], "each where it was made"
    progress.forget_readings()
    assert report.life(progress, 256, 1.0, None)["readings"] == []


def test_the_life_before_this_start_is_bounded_and_survives_any_line(
    log: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.path.write_bytes(b"\n".join(HOSTILE) + b"\n")
    for step in range(10, 1010):
        subjects = {"a": {"val": 3.0 - step / 1e3, "stderr": 0.1}, "b": {"val": None}}
        figures = {
            "chars": 100 * step,
            "loss": 2.0,
            "val": 1.5,
            "val_chars": 100 * step - 50,
            "subjects": subjects,
        }
        log.append({**row(step), **figures})
        log.append({**row(step), "model": "/models/other", "loss": 7.0})
    told = past(log, MODEL, life(1000, other_text_until=20))
    losses = [point[:2] for point in told.points if point[1] is not None]
    readings = [point[2:] for point in told.points if point[2] is not None]
    assert len(losses) == len(readings) == POINTS and told.checkpoints >= 991
    assert [losses[0], losses[-1]] == [[1_000.0, 2.0], [100_000.0, 2.0]], "from its beginning to its end"
    assert [readings[0], readings[-1]] == [[1.5, 2_050.0], [1.5, 99_950.0]]
    assert {loss for _, loss in losses} == {2.0}
    assert told.subjects == {"a": {"nats": 3.0 - 21 / 1e3, "stderr": 0.1}}, "the first of the text read now"
    assert all(point[2] is None for point in past(log, MODEL, life(20, 20)).points)
    monkeypatch.setattr("minagi.training.past.TAIL_BYTES", 1_000)
    assert 0 < len(past(log, MODEL, life(2000)).points) < 9
    log.path.unlink()
    assert past(log, MODEL, life(2000)).points == []
    log.path.mkdir()
    assert past(log, MODEL, life(2000)).points == []
