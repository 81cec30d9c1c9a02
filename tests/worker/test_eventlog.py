from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from worker_fakes import FakeChannel

from minagi import protocol
from minagi.config import load_settings
from minagi.protocol import Failure, Log, decode_event
from minagi.training.request import SessionRequest
from minagi.worker import eventlog
from minagi.worker.eventlog import EventLog, logged

STORY = [
    protocol.Hello(model="w"), protocol.Phase(phase="running"), protocol.Metrics(step=1),
    protocol.HeldOut(at=5.0, nats=float("nan")), protocol.Pool(), protocol.Subjects(), protocol.Memory(),
    protocol.Window(context=9), protocol.ReplyChunk(data="secret"), protocol.Log(at=6.0, text="Grew."),
    protocol.Sampled(path="x"), protocol.Goodbye(reason="over"),
]  # fmt: skip


def request(tmp_path: Path, **changes: Any) -> SessionRequest:
    given = {"data.history": str(tmp_path / "runs" / "history.jsonl")}
    loaded = load_settings(given, environ={}, cwd=tmp_path, user_dir=tmp_path / "user")
    asked = SessionRequest(paths=(tmp_path,), weights=tmp_path / "w", loaded=loaded, dry_run=False)
    return replace(asked, **changes)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_everything_is_passed_on_and_the_discrete_is_kept(tmp_path: Path) -> None:
    channel = FakeChannel([protocol.Pause(id=1)])
    log = logged(channel, request(tmp_path))
    for message in STORY:
        log.send(message)
    assert channel.sent == STORY
    assert log.poll() == [protocol.Pause(id=1)] and log.closed == "" and log.poll() == []
    assert log.closed == channel.closed != ""
    log.finish()
    assert channel.finished
    kept = rows(tmp_path / "runs" / "events.jsonl")
    assert [row["type"] for row in kept] == ["hello", "held_out", "window", "log", "sampled", "goodbye"]
    assert all(row["at"] > 0 for row in kept) and kept[1]["at"] == 5.0
    assert {row["weights"] for row in kept} == {str(tmp_path / "w")}
    assert kept[1]["nats"] is None, "plain JSON has no NaN"


def test_what_is_kept_can_be_replayed(tmp_path: Path) -> None:
    log = EventLog(FakeChannel(), tmp_path / "events.jsonl", "w")
    for message in STORY:
        log.send(message)
    events = [decode_event(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    assert [type(event) for event in events] == [type(m) for m in STORY if isinstance(m, eventlog.LOGGED)]


def test_a_dry_run_keeps_nothing(tmp_path: Path) -> None:
    channel = FakeChannel()
    assert logged(channel, request(tmp_path, dry_run=True)) is channel


def test_it_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventlog, "FILE_MAX", 1000)
    log = EventLog(FakeChannel(), tmp_path / "events.jsonl", "w")
    for number in range(100):
        log.send(Log(text=f"{number}"))
    assert len(list(tmp_path.iterdir())) == 1 + eventlog.KEPT
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert rows(tmp_path / "events.jsonl")[-1]["text"] == "99"


def test_trouble_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    channel = FakeChannel()
    log = EventLog(channel, tmp_path / "events.jsonl", "w")
    for message in STORY:
        log.send(message)
    (told,) = [m for m in channel.sent if isinstance(m, Log) and m.level == "warning"]
    assert str(tmp_path / "events.jsonl") in told.text
    assert [m for m in channel.sent if m is not told] == STORY


def test_a_folder_that_is_closed_to_us_hides_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "permission denied", str(path))

    monkeypatch.setattr(Path, "exists", closed)
    channel = FakeChannel()
    EventLog(channel, tmp_path / "in" / "events.jsonl", "w").send(Failure(text="No."))
    assert channel.sent == [Failure(text="No.")]


def test_pictures_are_a_setting(tmp_path: Path) -> None:
    for wanted in (True, False):
        given = {"data.history": str(tmp_path / "history.jsonl"), "plots.enabled": wanted}
        loaded = load_settings(given, environ={}, cwd=tmp_path, user_dir=tmp_path / "user")
        log = logged(FakeChannel(), request(tmp_path, loaded=loaded))
        assert isinstance(log, EventLog) and (log._redraw is not None) is wanted
