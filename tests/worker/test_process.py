"""The worker as a real process, speaking its protocol over real pipes, with a trainer without a model."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minagi import protocol
from minagi.protocol import (
    Ack,
    Failure,
    Goodbye,
    Hello,
    Log,
    Message,
    Metrics,
    Pause,
    Phase,
    Resume,
    Saved,
    Stop,
    Write,
    decode_event,
    encode,
)

PROGRAM = Path(__file__).with_name("worker_process.py")
PATIENCE = 30.0


class Worker:
    def __init__(self, mode: str, folder: Path, *flags: str) -> None:
        self.log = folder / "worker.log"
        text = folder / "text.txt"
        text.write_text("some text to read\n" * 500)
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), mode, "--log", str(self.log), "--weights", str(folder / "weights"),
             *flags, str(text)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
            env={**os.environ, "XDG_DATA_HOME": str(folder / "data")},
        )  # fmt: skip
        self.heard: list[Message] = []
        self._rest = b""

    def say(self, *commands: protocol.Command) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"".join(map(encode, commands)))
        self.process.stdin.flush()

    def listen_for(self, kind: type[Message], among: Callable[[Message], bool] = lambda m: True) -> Message:
        """Read on until such an event has come; fails when the worker goes or is silent."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = [message for message in self.of(kind) if among(message)]
            if found:
                return found[0]
            assert self._read(), f"the worker ended without {kind.__name__}: {self.log.read_text()}"
        raise AssertionError(f"no {kind.__name__} came")

    def _read(self) -> bool:
        """Take in what there is; False at the end."""
        assert self.process.stdout
        if select.select([self.process.stdout], [], [], 0.5)[0]:
            data = os.read(self.process.stdout.fileno(), 65_536)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.heard += [message for message in map(decode_event, lines) if message is not None]
            return bool(data)
        return True

    def end(self) -> int:
        """Read everything to the end, stdin left open; returns the exit status."""
        deadline = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < deadline, "the worker does not end"
        return self.process.wait(PATIENCE)

    def of(self, kind: type[Message]) -> list:
        return [message for message in self.heard if isinstance(message, kind)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def starter(mode: str = "plain", *flags: str) -> Worker:
        workers.append(Worker(mode, tmp_path, *flags))
        return workers[-1]

    yield starter
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()


def test_a_whole_life(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.listen_for(Metrics)
    assert isinstance(worker.of(Hello)[0], Hello)
    worker.say(Pause(id=1))
    worker.listen_for(Ack)
    worker.listen_for(Phase, lambda m: isinstance(m, Phase) and m.phase == "paused")
    worker.say(Write(id=2, prompt="hi"))
    worker.listen_for(protocol.ReplyEnded)
    assert "".join(chunk.data for chunk in worker.of(protocol.ReplyChunk)) == "hello"
    worker.say(Resume(id=3), Stop(id=4))
    assert worker.end() == 0
    assert [ack.id for ack in worker.of(Ack)] == [1, 2, 3, 4]
    assert isinstance(worker.heard[-1], Goodbye)
    assert worker.heard[-1].saved
    assert "Worker" in worker.log.read_text()


def test_stray_output_goes_to_the_log(start: Callable[..., Worker]) -> None:
    worker = start("printing", "--steps", "3")
    assert worker.end() == 0
    log = worker.log.read_text()
    for stray in ("stray print", "stray echo", "stray error", "stray bytes", "nothing to read here"):
        assert stray in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("paused", [False, True])
def test_a_signal_saves_and_leaves(
    start: Callable[..., Worker], number: signal.Signals, paused: bool
) -> None:
    worker = start()
    worker.listen_for(Metrics)
    if paused:
        worker.say(Pause(id=1))
        worker.listen_for(Ack)
    began = time.monotonic()
    worker.process.send_signal(number)
    assert worker.end() == 130
    assert time.monotonic() - began < 5
    assert worker.of(Saved)[-1].kind == "final"
    assert worker.heard[-1].saved  # type: ignore[attr-defined]


def test_the_end_of_stdin_saves_and_leaves(start: Callable[..., Worker]) -> None:
    worker = start("slow")
    worker.listen_for(Metrics)
    assert worker.process.stdin
    worker.process.stdin.close()
    worker.process.stdin = None
    assert worker.end() == 0
    assert worker.heard[-1].saved  # type: ignore[attr-defined]


def test_a_dead_reader_saves_and_leaves(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.listen_for(Metrics)
    assert worker.process.stdout
    worker.process.stdout.close()
    assert worker.process.wait(PATIENCE) == 0


def test_a_dry_run_saves_nothing(start: Callable[..., Worker]) -> None:
    worker = start("plain", "--dry-run", "--steps", "5")
    assert worker.end() == 0
    assert not worker.of(Saved)
    assert not worker.heard[-1].saved  # type: ignore[attr-defined]


def test_a_garbage_speaking_parent_gets_sentences(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.listen_for(Hello)
    assert worker.process.stdin
    worker.process.stdin.write(os.urandom(300_000).replace(b"\n", b"") + b"\n" + b"rubbish\n" * 20_000)
    worker.say(Stop(id=77))
    assert worker.end() == 0
    assert worker.of(Log)
    assert worker.of(Ack)[-1].id == 77


def test_a_parent_that_does_not_read_holds_nothing_up(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.listen_for(Hello)
    worker.say(*[Pause(id=n) for n in range(6_000)])  # more acknowledgements than a pipe holds
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE) == 130


def test_a_defect_is_a_sentence_and_its_traceback_in_the_log(start: Callable[..., Worker]) -> None:
    worker = start("crash")
    assert worker.end() == 1
    failure = worker.heard[-1]
    assert isinstance(failure, Failure)
    assert str(worker.log) in failure.text
    assert "Traceback" in worker.log.read_text()


@pytest.mark.parametrize(
    ("mode", "flags", "status", "words"),
    [
        ("locked", (), 4, "process 12"),
        ("plain", ("--no-such-flag",), 2, "no flag --no-such-flag"),
        ("plain", ("--top-k", "many"), 2, "pool.top_k"),
        ("plain", ("/no/such/folder",), 2, "/no/such/folder"),
        ("plain", ("--config", "/no/such.yaml"), 2, "/no/such.yaml"),
    ],
)
def test_what_cannot_start_says_so_on_the_wire(
    start: Callable[..., Worker], mode: str, flags: tuple[str, ...], status: int, words: str
) -> None:
    worker = start(mode, *flags)
    assert worker.end() == status
    (failure,) = worker.of(Failure)
    assert words in failure.text
    assert failure.exit_status == status


def test_help_is_for_people() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "minagi.worker", "--help"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert shown.returncode == 0
    assert "--trunk-lr-mult" in shown.stdout


def test_a_log_that_cannot_be_kept_ends_nothing(start: Callable[..., Worker]) -> None:
    worker = start("plain", "--steps", "2", "--log", "/proc/no/such.log")
    assert worker.end() == 0
    assert isinstance(worker.heard[-1], Goodbye)
