"""A recorded run in the place of a worker: played at any pace, paused, and wound to any moment.

A recording holds what went over the wire, one JSON object a line, plain or gzipped: the events, and the
commands if they were kept too. `minagi read --json > run.jsonl` makes one.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from minagi import protocol
from minagi.errors import UsageError
from minagi.lines import LineReader
from minagi.protocol import Command, Message, ProtocolError
from tui.client import READ_BYTES, SLICE, Deliver, Source, understand
from tui.state import Asked, Noted, Rewound, WorkerEnded, WorkerStarted

SLOWEST, FASTEST = 0.25, 1024.0  # paces there are keys for
STEP_SECONDS = 0.05  # how soon a key takes effect while nothing happens
SCAN_BYTES = 16 << 20  # a recording longer than this is not searched for its end
_LATEST = 1e11  # no Unix time lies beyond it
_TIME = re.compile(rb'"at":(\d{1,11}(?:\.\d{1,9})?)')
_STAMP = re.compile(rb"\{" + _TIME.pattern + rb",")  # leads a line whose message has no time of its own


class Playing(NamedTuple):
    """Where a recording is, in recorded seconds from its beginning."""

    seconds: float
    total: float | None  # None when it is too long to tell
    speed: float
    paused: bool


@dataclass
class Recording(Source):
    """Plays `path` at `speed` times the pace it was recorded at; 0 is at once.

    Gaps are shortened to `longest_gap` seconds. `sleep` is injected by tests.
    """

    path: Path
    speed: float = 1.0
    longest_gap: float = 2.0
    sleep: Callable[[float], object] = asyncio.sleep
    recorded = True
    _began: float | None = field(default=None, init=False)  # recorded time of the first event
    _ends: float | None = field(default=None, init=False)  # of the last, when it is known
    _goal: float = field(default=0.0, init=False)  # recorded time up to which nothing waits
    _again: bool = field(default=False, init=False)  # the goal lies behind: play from the beginning
    _played: bool = field(default=False, init=False)
    _paused: bool = field(default=False, init=False)
    _deliver: Deliver | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise UsageError(
                f"There is no recording {self.path}: name a file of events, one JSON object a line."
            )

    @property
    def playing(self) -> Playing:
        began = self._began or 0.0
        total = None if self._ends is None else self._ends - began
        return Playing((self.at or began) - began, total, self.speed, self._paused)

    @property
    def winding(self) -> bool:
        """Whether events come faster than anybody can follow."""
        return self.speed <= 0 or self._again or (self.at or 0.0) < self._goal

    # -------------------------------------------------------------------------------------- steering

    def hasten(self, doublings: int) -> None:
        """Twice the pace, or half of it, as often as said."""
        self.speed = max(SLOWEST, min(FASTEST, (self.speed or FASTEST) * 2.0**doublings))

    def seek(self, seconds: float) -> None:
        """Go so many recorded seconds on, or back; `run` must be called again once it is over."""
        now, began = self.at or 0.0, self._began or 0.0
        self._goal = max(began, now + seconds)
        self._again = self._goal < now

    def send(self, command: Command) -> bool:
        """A recording can be paused and resumed; anything else is refused in words."""
        if self._deliver is None or not self.live:
            return False
        ok = isinstance(command, (protocol.Pause, protocol.Resume))
        if ok:
            self._paused = isinstance(command, protocol.Pause)
        text = "" if ok else "This is a recording: it can be looked at, nothing more."
        self._deliver(protocol.Ack(command.id, command.type, ok, text))
        return True

    # --------------------------------------------------------------------------------------- playing

    async def run(self, deliver: Deliver) -> None:
        """Play the file to its end, from its beginning or from where it was wound to."""
        self._deliver, self.live = deliver, True
        if not self._played:
            self._ends = await asyncio.to_thread(self._last_time)
        while True:
            deliver(Rewound() if self._played else WorkerStarted())
            self._played, self._again, self.at = True, False, self._began
            await self._through(deliver)
            if not self._again:
                break
        self.live = False
        deliver(WorkerEnded(0, (), True))

    async def _through(self, deliver: Deliver) -> None:
        reader, breathed = LineReader(), time.monotonic()
        try:
            with self._open() as file:
                while data := file.read(READ_BYTES):
                    for line in reader.feed(data):
                        await self._play(line, deliver)
                        if self._again:
                            return
                        if time.monotonic() - breathed > SLICE:
                            await asyncio.sleep(0)
                            breathed = time.monotonic()
            for line in reader.feed(b"\n"):
                await self._play(line, deliver)
        except (OSError, EOFError, zlib.error, ProtocolError) as error:
            deliver(Noted(f"The recording cannot be played on: {error}", "error"))

    async def _play(self, line: bytes | None, deliver: Deliver) -> None:
        """Deliver what a line says when its time has come."""
        message = _meant(line)
        at = _time_of(line, message)
        if at is not None:
            await self._until(at)
        if message is not None and not self._again:
            deliver(message)

    async def _until(self, at: float) -> None:
        """Let recorded time pass until `at`, unless the pace, a key or a goal further on forbids it."""
        if self._began is None:
            self._began = self.at = at
        now = self.at if self.at is not None else at
        self.at = max(now, at - self.longest_gap * self.speed) if not self.winding else now
        while self.at < at and not self.winding:
            if self._paused:
                await self._pass(STEP_SECONDS)
                continue
            ahead = min(STEP_SECONDS * self.speed, at - self.at)
            await self._pass(ahead / self.speed)
            self.at += ahead
        self.at = max(self.at, at)

    async def _pass(self, seconds: float) -> None:
        waiting = self.sleep(seconds)
        assert asyncio.iscoroutine(waiting)
        await waiting

    def _open(self) -> IO[bytes]:
        with self.path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        return gzip.open(self.path) if zipped else self.path.open("rb")  # type: ignore[return-value]

    def _last_time(self) -> float | None:
        """The recorded time of the last event."""
        try:
            with self._open() as file:
                data = file.read(SCAN_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            return None
        times = [float(found) for found in _TIME.findall(data)]
        return max(times) if times and len(data) <= SCAN_BYTES else None


def _meant(line: bytes | None) -> Message | None:
    """The event on a line, or the command somebody gave."""
    message = understand(line)
    if message is None and line is not None:
        command = protocol.decode_command(line)
        return Asked(command) if command is not None else None
    return message


def _time_of(line: bytes | None, message: Message | None) -> float | None:
    """When a line was recorded; None where nothing says so."""
    stamp = _STAMP.match(line) if line is not None else None
    at = float(stamp[1]) if stamp else getattr(message, "at", 0.0)
    return at if 0.0 < at < _LATEST else None
