"""Where events come from and commands go: a worker process, or (`tui.recording`) a recording of one.

The app needs no more than `Source`; tests hand it a scripted one. Everything a source has to say,
the death of its worker included, comes as a message through `deliver`, in the app's own event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from minagi import protocol
from minagi.lines import LineReader
from minagi.protocol import Command, Hello, Message, ProtocolError
from minagi.worker.logfile import lines_of
from tui.state import Closing, Noted, NotUnderstood, WorkerEnded, WorkerStarted

Deliver = Callable[[Message], None]
TAIL_BYTES = 16_384
TAIL_LINES = 12
READ_BYTES = 1 << 16
SLICE = 0.008  # seconds of folding events before the screen and the keyboard get their turn


@dataclass(frozen=True)
class Deadlines:
    """How long each rung of the quit ladder waits, in seconds, before the next one."""

    stop: float = 120.0  # the step in flight, and a save of a large model
    terminate: float = 30.0
    kill: float = 10.0


class Source(ABC):
    """One run to show. `run` may be called again after it has returned, to start anew."""

    live = False  # a worker is running, so that commands go somewhere
    recorded = False  # nothing said to it changes a model
    at: float | None = None  # Unix time of the run that is shown, when it is not the present

    @abstractmethod
    async def run(self, deliver: Deliver) -> None:
        """Deliver events until there are no more; the last is `WorkerEnded`."""

    @abstractmethod
    def send(self, command: Command) -> bool:
        """Pass a command on; False when nobody is there to take it."""

    async def close(self, deliver: Deliver, save: bool = True) -> None:
        """End the run; with `save` the model is kept first. Returns when it is over."""
        return

    def hurry(self) -> None:
        """Stop waiting on the present rung of the ladder and take the next."""
        return


def understand(line: bytes | None) -> Message | None:
    """The message on a line, or the complaint about it; None for kinds this version does not know.

    Raises ProtocolError only for a worker of another version.
    """
    if line is None:
        return NotUnderstood(1, f"a line of more than {protocol.MAX_LINE} bytes")
    try:
        return protocol.decode_event(line)
    except ProtocolError as error:
        if _of_another_version(line):
            raise
        return NotUnderstood(1, str(error) if line.startswith(b"{") else line[:80].decode("utf-8", "replace"))


def _of_another_version(line: bytes) -> bool:
    """Whether the line is a greeting that only its version makes unreadable."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("type") == "hello" and body.get("version") != protocol.VERSION


async def fold(lines: Sequence[bytes | None], deliver: Deliver) -> None:
    """Deliver what the lines say, garbage counted together, without holding the event loop for long."""
    garbage: NotUnderstood | None = None
    began = time.monotonic()
    for line in lines:
        message = understand(line)
        if isinstance(message, NotUnderstood):
            garbage = NotUnderstood(message.lines + (garbage.lines if garbage else 0), message.sample)
        elif message is not None:
            deliver(message)
        if time.monotonic() - began > SLICE:
            await asyncio.sleep(0)
            began = time.monotonic()
    if garbage is not None:
        deliver(garbage)


@dataclass
class Worker(Source):
    """`python -m minagi.worker …` as a child process in a session of its own."""

    command: Sequence[str]
    deadlines: Deadlines = field(default_factory=Deadlines)
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)
    _hurry: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _asked: bool = field(default=False, init=False)
    _log: str = field(default="", init=False)

    async def run(self, deliver: Deliver) -> None:
        """Start the worker and deliver what it says until it is gone."""
        self._asked, self._log = False, ""
        # what it says before it has opened its own log: an import that fails, above all
        with tempfile.TemporaryFile() as early:
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *self.command, stdin=PIPE, stdout=PIPE, stderr=early, start_new_session=True,
                    limit=READ_BYTES,
                )  # fmt: skip
            except OSError as error:
                reason = f"{self.command[0]} cannot be started: {error.strerror or error}."
                deliver(WorkerEnded(None, (reason,), False))
                return
            self.live = True
            deliver(WorkerStarted())
            try:
                await self._listen(process, deliver)
            except ProtocolError as error:
                deliver(Noted(str(error), "error", "worker"))
                self._signal(signal.SIGTERM)
            status = await process.wait()
            self.live = False
            deliver(WorkerEnded(status, tail(self._log, early, process.pid), self._asked))

    async def _listen(self, process: asyncio.subprocess.Process, deliver: Deliver) -> None:
        stream, reader = process.stdout, LineReader()
        assert stream is not None  # it was asked for

        def note(message: Message) -> None:
            if isinstance(message, Hello):
                self._log = message.log
            deliver(message)

        while data := await stream.read(READ_BYTES):
            await fold(reader.feed(data), note)

    def send(self, command: Command) -> bool:
        """Write a command to the worker; never waits."""
        pipe = self._process.stdin if self._process is not None and self.live else None
        if pipe is None or pipe.is_closing():
            return False
        pipe.write(protocol.encode(command))
        return True

    def hurry(self) -> None:
        """Take the next rung now."""
        self._hurry.set()

    async def close(self, deliver: Deliver, save: bool = True) -> None:
        """The quit ladder: ask it to stop, then terminate it, then kill it.

        Terminating saves as well, so without `save` that rung is left out; a kill leaves the last
        completed checkpoint whole.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._asked = True
        self.send(protocol.Stop(save=save))
        if save and process.stdin is not None:
            process.stdin.close()  # to the worker the end of its commands also means: save and leave
        deliver(Closing("stop"))
        if await self._gone(process, self.deadlines.stop):
            return
        if save:
            deliver(Closing("terminate"))
            self._signal(signal.SIGTERM)
            if await self._gone(process, self.deadlines.terminate):
                return
        deliver(Closing("kill"))
        self._signal(signal.SIGKILL)
        await self._gone(process, self.deadlines.kill)

    async def _gone(self, process: asyncio.subprocess.Process, seconds: float) -> bool:
        """Wait for the process to end; False when time, or the user's patience, is over."""
        self._hurry.clear()
        waiters = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(self._hurry.wait())]
        try:
            done, _ = await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return waiters[0] in done
        finally:
            for waiter in waiters:
                waiter.cancel()

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


def tail(log: str, early: IO[bytes], process: int) -> tuple[str, ...]:
    """The last lines a worker left: what it said before it had a log, and the end of its part of that."""
    size = early.seek(0, os.SEEK_END)
    early.seek(max(0, size - TAIL_BYTES))
    lines = early.read().decode("utf-8", "replace").splitlines()
    if log:
        with contextlib.suppress(OSError, ValueError), Path(log).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines += lines_of(process, file.read().decode("utf-8", "replace").splitlines())
    return tuple([line for line in lines if line.strip()][-TAIL_LINES:])


def worker_command(arguments: Sequence[str]) -> list[str]:
    """The command line of a worker in the Python that runs the app."""
    return [sys.executable, "-m", "minagi.worker", *arguments]
