"""What is kept of a run as it goes: events.jsonl, and pictures drawn anew when samples were written.

The log is everything a run says but its pulse.

One event a line as on the wire, with `at` and `weights` (the model's directory) added where it says
neither: several runs may write to one file. Never a reason to end a run.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from minagi import protocol
from minagi.protocol import Command, Log, Message
from minagi.records import RecordFile, beside
from minagi.training.request import SessionRequest
from minagi.worker.parties import ChannelLike
from minagi.worker.redraw import Redraw

FILE_MAX = 4 * 1024 * 1024  # bytes
KEPT = 3  # such files, beside the one that is written

# What comes many times a second, or answers a command of the moment, is no part of the log.
LOGGED = (
    protocol.Hello, protocol.CorpusFound, protocol.Growth, protocol.Window, protocol.HeldOut, protocol.Rate,
    protocol.Sampled, protocol.Saved, protocol.Reverted, protocol.Log, protocol.Failure, protocol.Goodbye,
)  # fmt: skip


class EventLog:
    """A channel that also keeps what is said over it, and has `redraw` draw it now and then."""

    def __init__(self, channel: ChannelLike, path: Path, weights: str, redraw: Redraw | None = None) -> None:
        self._channel, self._weights, self._redraw = channel, weights, redraw
        self._file = RecordFile(path, FILE_MAX, KEPT)
        self._told: set[str] = set()

    @property
    def closed(self) -> str:
        """Why nobody listens any more, or ""."""
        return self._channel.closed

    def send(self, message: Message) -> None:
        """Pass a message on, after it was kept. What goes wrong with that is told once."""
        trouble = self._keep(message) if isinstance(message, LOGGED) and self._begun(message) else ""
        self._channel.send(message)
        if isinstance(message, protocol.Sampled) and message.path and self._redraw is not None:
            trouble = trouble or self._redraw.start()
        if trouble and trouble not in self._told:
            self._told.add(trouble)
            self._channel.send(Log(at=time.time(), level="warning", topic="worker", text=trouble))

    def poll(self) -> list[Command]:
        """What was asked since the last time."""
        return self._channel.poll()

    def wait(self, seconds: float) -> None:
        """Wait for a command, at most that long."""
        self._channel.wait(seconds)

    def finish(self) -> None:
        """Nothing more will be said."""
        self._channel.finish()

    def _begun(self, message: Message) -> bool:
        """False where a run could not even be opened: that leaves no folder behind."""
        try:
            return not isinstance(message, protocol.Failure) or self._file.path.parent.exists()
        except OSError:  # a folder that is closed to us: the failure says so
            return False

    def _keep(self, message: Message) -> str:
        body = json.loads(protocol.encode(message))
        body |= {"at": body.get("at") or time.time(), "weights": self._weights}
        try:
            self._file.append(json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            path = self._file.path
            return f"The event log could not be written to {path}: {error.strerror or error}."
        return ""


def logged(channel: ChannelLike, request: SessionRequest) -> ChannelLike:
    """`channel` with the log of a run that keeps things; a dry run writes none."""
    if request.dry_run:
        return channel
    settings, weights = request.loaded.settings, str(request.weights.absolute())
    redraw = Redraw(settings.data.history, weights, settings.plots.last) if settings.plots.enabled else None
    return logged_beside(channel, settings.data.history, request.weights, redraw)


def logged_beside(
    channel: ChannelLike, history: Path, weights: Path, redraw: Redraw | None = None
) -> ChannelLike:
    """`channel` with a log in the folder of `history`; without one where the history is kept nowhere."""
    path = beside(history, "events.jsonl")
    return channel if path is None else EventLog(channel, path, str(weights.absolute()), redraw)
