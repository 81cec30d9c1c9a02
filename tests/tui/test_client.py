"""A real child process that greets, dies, hangs, floods and speaks garbage."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import textwrap
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from minagi import protocol as p
from minagi.worker.logfile import FORMAT
from tui.client import SLICE, TAIL_LINES, Deadlines, Worker, tail, understand, worker_command
from tui.state import Closing, Noted, NotUnderstood, WorkerEnded, WorkerStarted

PRELUDE = """
import sys, time, signal, json
def say(**body):
    sys.stdout.write(json.dumps(body) + "\\n"); sys.stdout.flush()
"""
QUICK = Deadlines(stop=0.15, terminate=0.15, kill=5.0)


def child(body: str, deadlines: Deadlines = QUICK) -> Worker:
    return Worker([sys.executable, "-c", PRELUDE + textwrap.dedent(body)], deadlines)


class Heard(list):
    """Everything that was delivered, and a way to wait for a kind."""

    def of(self, kind: type) -> list:
        return [message for message in self if isinstance(message, kind)]

    async def until(self, kind: type, count: int = 1) -> None:
        async with asyncio.timeout(20) if sys.version_info >= (3, 11) else _no_timeout():
            while len(self.of(kind)) < count:
                await asyncio.sleep(0.005)


class _no_timeout:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *exc: object) -> None: ...


async def test_events_come_in_order_and_the_end_is_told() -> None:
    heard = Heard()
    await child("say(type='hello', model='m'); say(type='phase', phase='running'); say(type='novelty')").run(
        heard.append
    )
    assert [type(message) for message in heard] == [WorkerStarted, p.Hello, p.Phase, WorkerEnded]
    assert heard[-1] == WorkerEnded(0, (), False)


async def test_a_death_brings_its_status_and_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("one\n\ntwo\n" + "x\x1b[31m\n" * 40 + "the last line\n")
    heard = Heard()
    worker = child(f"say(type='hello', log={str(log)!r}); sys.stderr.write('early words\\n'); sys.exit(3)")
    await worker.run(heard.append)
    ended = heard[-1]
    assert ended.status == 3
    assert ended.tail[-1] == "the last line"
    assert len(ended.tail) == TAIL_LINES
    assert not worker.live
    assert not worker.send(p.Pause(1))


async def test_a_worker_that_cannot_start_says_why() -> None:
    heard = Heard()
    await Worker(["/nonexistent/python"]).run(heard.append)
    assert heard == [
        WorkerEnded(None, ("/nonexistent/python cannot be started: No such file or directory.",), False)
    ]


async def test_commands_arrive_and_are_acknowledged() -> None:
    worker = child(
        """
        for line in sys.stdin:
            body = json.loads(line)
            say(type='ack', id=body['id'], command=body['type'])
            if body['type'] == 'stop': break
        """
    )
    heard = Heard()
    running = asyncio.create_task(worker.run(heard.append))
    await heard.until(WorkerStarted)
    assert worker.send(p.Pause(1))
    await heard.until(p.Ack)
    await worker.close(heard.append)
    await running
    assert [ack.command for ack in heard.of(p.Ack)] == ["pause", "stop"]
    assert heard[-1] == WorkerEnded(0, (), True)
    assert [rung.rung for rung in heard.of(Closing)] == ["stop"]


async def test_closing_its_stdin_is_enough_to_end_a_worker() -> None:
    worker = child("say(type='hello'); sys.stdin.read()", Deadlines(stop=20))
    heard = Heard()
    running = asyncio.create_task(worker.run(heard.append))
    await heard.until(p.Hello)
    await worker.close(heard.append)
    await running
    assert heard[-1].asked


async def test_the_ladder_terminates_what_does_not_stop() -> None:
    worker = child("say(type='hello'); time.sleep(60)")
    heard = Heard()
    running = asyncio.create_task(worker.run(heard.append))
    await heard.until(p.Hello)
    await worker.close(heard.append)
    await running
    assert [rung.rung for rung in heard.of(Closing)] == ["stop", "terminate"]
    assert heard[-1].status == -15


async def test_the_ladder_kills_what_does_not_terminate() -> None:
    worker = child("signal.signal(signal.SIGTERM, signal.SIG_IGN); say(type='hello'); time.sleep(60)")
    heard = Heard()
    running = asyncio.create_task(worker.run(heard.append))
    await heard.until(p.Hello)
    await worker.close(heard.append)
    await running
    assert [rung.rung for rung in heard.of(Closing)] == ["stop", "terminate", "kill"]
    assert heard[-1].status == -9


async def test_without_saving_it_is_never_terminated_since_that_would_save() -> None:
    worker = child("say(type='hello'); time.sleep(60)")
    heard = Heard()
    running = asyncio.create_task(worker.run(heard.append))
    await heard.until(p.Hello)
    await worker.close(heard.append, save=False)
    await running
    assert [rung.rung for rung in heard.of(Closing)] == ["stop", "kill"]


async def test_impatience_takes_the_next_rung_at_once() -> None:
    worker = child("say(type='hello'); time.sleep(60)", Deadlines(stop=600, terminate=600))
    heard = Heard()
    running = asyncio.create_task(worker.run(heard.append))
    await heard.until(p.Hello)
    closing = asyncio.create_task(worker.close(heard.append))
    await heard.until(Closing)
    worker.hurry()
    await closing
    await running
    assert heard[-1].status == -15


async def test_it_can_be_started_again() -> None:
    worker = child("say(type='hello')")
    heard = Heard()
    await worker.run(heard.append)
    await worker.run(heard.append)
    assert len(heard.of(p.Hello)) == 2


async def test_garbage_becomes_few_complaints_and_stops_nothing() -> None:
    heard = Heard()
    await child(
        """
        sys.stdout.buffer.write(b"\\xff\\x00 not json\\n" * 5000 + b'{"type": "metrics", "step": ""}\\n[]\\n')
        sys.stdout.flush()
        say(type='phase', phase='running')
        """
    ).run(heard.append)
    assert sum(message.lines for message in heard.of(NotUnderstood)) == 5002
    assert len(heard.of(NotUnderstood)) < 200
    assert p.Phase("running") in heard


async def test_a_flood_leaves_the_event_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a tenth of a turn at each look, few messages are folded in one."""
    looks = count()
    monkeypatch.setattr("tui.client.time.monotonic", lambda: next(looks) * SLICE / 10)
    worker = child(
        "line = json.dumps(dict(type='metrics', step=1, loss=2.0)) + '\\n'\nsys.stdout.write(line * 20000)"
    )
    turns, told = 0, []

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    await worker.run(lambda message: told.append(turns))
    beating.cancel()
    assert len(told) > 20_000
    assert max(Counter(told).values()) <= 40


async def test_another_version_is_refused_in_words() -> None:
    heard = Heard()
    await child("say(type='hello', version=99); time.sleep(60)").run(heard.append)
    assert "version 99" in heard.of(Noted)[0].text
    assert not heard.of(p.Hello)


def test_a_line_that_was_too_long_is_a_complaint() -> None:
    assert isinstance(understand(None), NotUnderstood)


def test_the_tail_survives_a_missing_log() -> None:
    assert tail("/nonexistent/log", io.BytesIO(b"a\nb\n"), 1) == ("a", "b")
    assert tail("bad\0path", io.BytesIO(b""), 1) == ()


def test_the_tail_is_of_this_worker_from_its_first_line_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    logger = logging.Logger("any")
    handler = logging.FileHandler(log)
    handler.setFormatter(logging.Formatter(FORMAT))

    def said(process: int, text: str, level: int = logging.INFO) -> None:
        record = logger.makeRecord("any", level, "", 0, text, (), None)
        record.process = process
        handler.handle(record)

    said(7, "Worker 7 starts: of yesterday, which had the same number")
    said(6, "Worker 6 starts: x")
    said(7, "Worker 7 starts: y")
    said(6, "It ended in a defect.\nTraceback:\n  its line", logging.ERROR)
    said(7, "It went wrong.\nTraceback:\n  a line", logging.ERROR)
    said(6, "Going on.")
    handler.close()
    with log.open("a") as file:
        file.write("terminate called after throwing an instance\n")
    shown = tail(str(log), io.BytesIO(b"early\n"), 7)
    assert shown[0] == "early" and shown[1].endswith(" 7 INFO Worker 7 starts: y")
    assert shown[2].endswith("It went wrong.")
    assert shown[3:] == ("Traceback:", "  a line", "terminate called after throwing an instance")


def test_the_worker_runs_in_the_python_of_the_app() -> None:
    assert worker_command(["--", "x"]) == [sys.executable, "-m", "minagi.worker", "--", "x"]
