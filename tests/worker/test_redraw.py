from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from worker_fakes import FakeChannel

from minagi import protocol
from minagi.protocol import Log
from minagi.worker.eventlog import EventLog
from minagi.worker.redraw import Redraw


class Processes:
    """Stands in for Popen: every start makes one that ends when it is given a status."""

    def __init__(self) -> None:
        self.started: list[tuple[list[str], dict[str, Any]]] = []
        self.status: int | None = None
        self.fault: OSError | None = None

    def __call__(self, command: list[str], **how: Any) -> Processes:
        if self.fault:
            raise self.fault
        self.started.append((command, how))
        return self

    def poll(self) -> int | None:
        return self.status


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "history.jsonl"
    path.write_text("{}\n")
    return path


def test_it_draws_one_at_a_time_in_a_process_apart(history: Path) -> None:
    processes = Processes()
    redraw = Redraw(history, "/w", 100.0, processes)  # type: ignore[arg-type]
    assert redraw.start() == redraw.start() == ""
    ((command, how),) = processes.started
    assert command == [sys.executable, "-m", "minagi.plots", str(history), "/w", str(history.parent), "100.0"]
    assert how["start_new_session"] and how["stdout"] == how["stderr"] == how["stdin"] == -3
    processes.status = 0
    assert redraw.start() == "" and len(processes.started) == 2


def test_what_went_wrong_is_told_with_the_way_to_find_out(history: Path) -> None:
    processes = Processes()
    redraw = Redraw(history, "/w", 100.0, processes)  # type: ignore[arg-type]
    redraw.start()
    processes.status = 2
    assert f"minagi plot --history {history} --png {history.parent}" in redraw.start()
    processes.fault = OSError(12, "Cannot allocate memory")
    assert "Cannot allocate memory" in redraw.start()


def test_without_matplotlib_or_history_nothing_is_started(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = Processes()
    assert Redraw(history.with_name("none"), "/w", 1.0, processes).start() == ""  # type: ignore[arg-type]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert Redraw(history, "/w", 1.0, processes).start() == ""  # type: ignore[arg-type]
    assert not processes.started


def test_the_run_draws_when_its_samples_grew(tmp_path: Path) -> None:
    started: list[str] = []

    class Fake(Redraw):
        def __init__(self) -> None: ...

        def start(self) -> str:
            started.append("")
            return "It went wrong." if len(started) > 1 else ""

    channel = FakeChannel()
    log = EventLog(channel, tmp_path / "events.jsonl", "w", Fake())
    for message in (protocol.Sampled(), protocol.Saved(), *[protocol.Sampled(path="s.txt")] * 3):
        log.send(message)
    assert len(started) == 3, "a sample that was not kept is no reason"
    assert [m.text for m in channel.sent if isinstance(m, Log)] == ["It went wrong."]
