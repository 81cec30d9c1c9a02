"""The worker's end of the wire: events out, commands in, over two file descriptors of its own.

Nothing here ever waits for the other side, except `wait` and `finish`, which are told how long. A
reader that is slow or stopped costs nothing but a bounded backlog; one that is gone is noticed.
Figures that only the latest matters of are thinned out here, so that whoever makes them need not care.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from minagi.lines import LineReader
from minagi.protocol import (
    COMMANDS,
    MAX_LINE,
    Ack,
    Command,
    Failure,
    Goodbye,
    Log,
    Memory,
    Message,
    Metrics,
    Pool,
    ProtocolError,
    ReplyChunk,
    Reverted,
    Saved,
    Subjects,
    decode_command,
    encode,
)

# Seconds between two events of a kind; in between the latest waits. Characters of a reply are joined.
INTERVALS: dict[type[Message], float] = {
    Metrics: 0.1, Memory: 0.5, Pool: 0.5, Subjects: 1.0, ReplyChunk: 0.05,
}  # fmt: skip
BACKLOG_MAX = 8 * 1024 * 1024  # bytes of events that wait for a slow reader; beyond it the oldest are lost
READ_MAX = 1024 * 1024  # bytes of commands taken in at a time
COMMANDS_MAX = 256  # handed over at a time
COMPLAINT_INTERVAL = 1.0  # seconds between two sentences about lines that are no commands
FINISH_SECONDS = 2.0


class Channel:
    """Newline-JSON over `write_fd` and, when there is one to command us, `read_fd`.

    `closed` is "" while somebody listens, else why not. `wake_fd` is one more descriptor that ends a
    `wait` when it becomes readable (signals).
    """

    def __init__(
        self,
        read_fd: int | None,
        write_fd: int,
        wake_fd: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.closed = ""
        self._unheard = False  # the reader is gone; the end of our input alone does not mean that
        self._read_fd, self._write_fd, self._wake_fd, self._clock = read_fd, write_fd, wake_fd, clock
        self._head = b""  # what is left of the line being written
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._lost = 0  # events dropped since it was last told
        self._sent_at: dict[type[Message], float] = {}
        self._held: dict[type[Message], Message] = {}
        self._lines = LineReader(MAX_LINE)
        self._commands: deque[Command] = deque()
        self._complaints = 0
        self._complaint = ""
        self._complained_at = -COMPLAINT_INTERVAL

    # ------------------------------------------------------------------------------------------ out

    def send(self, message: Message) -> None:
        """Send an event now, or in its turn where its kind is thinned out."""
        kind = type(message)
        if kind in (Goodbye, Failure):
            self._release_all()  # these are last words
            self._queue(message)
        elif kind not in INTERVALS:
            self._release(ReplyChunk)  # a reply's characters stay ahead of what was said after them
            if kind in (Saved, Reverted):
                self._release(Metrics)  # figures from before it would contradict it afterwards
            self._queue(message)
        elif kind in self._held or not self._is_due(kind):
            waiting = self._held.get(kind)
            joined = _join(waiting, message)
            if joined is None:
                self._release(kind)
            self._held[kind] = joined or message
        else:
            self._sent_at[kind] = self._clock()
            self._queue(message)
        self._pump(0.0)

    def finish(self, seconds: float = FINISH_SECONDS) -> None:
        """Send everything that waits, but give up on a reader that does not take it in time."""
        self._release_all()
        deadline = self._clock() + seconds
        while not self._unheard and (self._head or self._backlog) and self._clock() < deadline:
            self._pump(max(0.0, deadline - self._clock()))

    def _is_due(self, kind: type[Message]) -> bool:
        return self._clock() - self._sent_at.get(kind, -1e9) >= INTERVALS[kind]

    def _release(self, kind: type[Message]) -> None:
        message = self._held.pop(kind, None)
        if message is not None:
            self._sent_at[kind] = self._clock()
            self._queue(message)

    def _release_all(self) -> None:
        for kind in list(self._held):
            self._release(kind)

    def _queue(self, message: Message) -> None:
        line = encode(message)
        self._backlog.append(line)
        self._backlog_bytes += len(line)
        while self._backlog_bytes > BACKLOG_MAX and len(self._backlog) > 1:
            self._backlog_bytes -= len(self._backlog.popleft())
            self._lost += 1

    def _pump(self, seconds: float) -> None:
        """Write what can be written; wait at most `seconds` for the first of it."""
        for kind in [kind for kind in self._held if self._is_due(kind)]:
            self._release(kind)
        while not self._unheard and (self._head or self._next_head()):
            if not select.select([], [self._write_fd], [], seconds)[1]:
                return
            try:
                # A pipe that select calls writable takes this much without blocking, no matter how
                # full it is. Making the descriptor non-blocking would also change it for its sharers.
                written = os.write(self._write_fd, self._head[: select.PIPE_BUF])
            except OSError as error:
                self._unheard = True
                self.closed = f"nobody reads the events any more ({error.strerror})"
                return
            self._head = self._head[written:]
            seconds = 0.0

    def _next_head(self) -> bool:
        if self._lost and not self._backlog:
            lost, self._lost = self._lost, 0
            self._queue(_log(f"{lost} events were lost because they were not read in time."))
        if not self._backlog:
            return False
        self._head = self._backlog.popleft()
        self._backlog_bytes -= len(self._head)
        return True

    # ------------------------------------------------------------------------------------------- in

    def poll(self) -> list[Command]:
        """The commands that have arrived. Lines that are none are answered in words here."""
        self._pump(0.0)
        if len(self._commands) < COMMANDS_MAX:
            self._take_in()
        self._complain()
        return [self._commands.popleft() for _ in range(min(COMMANDS_MAX, len(self._commands)))]

    def wait(self, seconds: float) -> None:
        """Return when a command or a signal arrives or the other side goes, at the latest after `seconds`."""
        deadline = self._clock() + seconds
        readers = [fd for fd in (self._read_fd, self._wake_fd) if fd is not None]
        while not self.closed and not self._commands:
            self._pump(0.0)
            left = deadline - self._clock()
            if left <= 0:
                return
            waiting = [INTERVALS[kind] for kind in self._held]
            writers = [self._write_fd] if self._head else []
            if select.select(readers, writers, [], min([left, *waiting]))[0]:
                return

    def _take_in(self) -> None:
        taken = 0
        while self._read_fd is not None and not self.closed and taken < READ_MAX:
            if not select.select([self._read_fd], [], [], 0)[0]:
                return
            try:
                data = os.read(self._read_fd, 65_536)
            except OSError:
                data = b""
            if not data:
                self.closed = "the other side has closed the connection"
                return
            taken += len(data)
            self._split(data)

    def _split(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                self._note(f"A command longer than {MAX_LINE} bytes was refused.")
            else:
                self._understand(line)

    def _understand(self, line: bytes) -> None:
        try:
            command = decode_command(line)
            sentence = "" if command else "There is no such command."
        except ProtocolError as error:
            command, sentence = None, str(error)
        if command is not None:
            self._commands.append(command)
            return
        number, name = _who(line)
        if number is None:
            self._note(sentence)
        else:
            self._queue(Ack(id=number, command=name, ok=False, text=sentence))

    def _note(self, sentence: str) -> None:
        self._complaint = self._complaint or sentence
        self._complaints += 1

    def _complain(self) -> None:
        """One sentence a second about lines that were no commands, however many there were."""
        if self._complaints and self._clock() - self._complained_at >= COMPLAINT_INTERVAL:
            more = f" ({self._complaints - 1} more like it.)" if self._complaints > 1 else ""
            self._queue(_log(self._complaint + more))
            self._complained_at = self._clock()
            self._complaints, self._complaint = 0, ""


def _join(waiting: Message | None, message: Message) -> Message | None:
    """What may be sent in the place of both; None when both must be sent."""
    if not isinstance(message, ReplyChunk) or not isinstance(waiting, ReplyChunk):
        return message
    if (waiting.id, waiting.variant) != (message.id, message.variant):
        return None
    return replace(
        message,
        data=waiting.data + message.data,
        rows=waiting.rows + message.rows,
        loads=waiting.loads + message.loads,
    )


def _who(line: bytes) -> tuple[int | None, str]:
    """Id and name of a line that is no command of ours, as far as it has them."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None, ""
    number, name = (body.get("id"), body.get("type")) if isinstance(body, dict) else (None, None)
    plain = isinstance(number, int) and not isinstance(number, bool)
    return number if plain else None, name if isinstance(name, str) and name in COMMANDS else ""


def _log(text: str) -> Log:
    return Log(at=time.time(), level="warning", topic="worker", text=text)
