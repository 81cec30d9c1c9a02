"""What a run needs of the two it stands between: whoever computes, and whoever listens and commands."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from minagi import protocol
from minagi.protocol import Command, Continue, Message, Write


class RunLike(Protocol):
    """What a process needs of the run it holds, whatever drives it. Events may be yielded as they happen."""

    dry_run: bool
    guarded: Callable[[], AbstractContextManager[None]]
    """Entered around saving and going back, wherever these happen, so that they are not broken off."""

    @property
    def unsaved_chars(self) -> int:
        """Characters read since the last checkpoint."""
        ...

    @property
    def steps(self) -> int:
        """Optimiser steps of the model's life."""
        ...

    @property
    def chars(self) -> int:
        """Characters read in the model's life."""
        ...

    def greet(self) -> Iterable[Message]:
        """Hello first, then CorpusFound and what else there is to say."""
        ...

    def step(self) -> Iterable[Message]:
        """One training step and whatever was due after it: evaluation, growth, a checkpoint.

        A MinagiError ends the run, which has first gone back to a state worth keeping.
        """
        ...

    def checkpoint(self, name: str = "", kind: str = "asked") -> Iterable[Message]:
        """Save now. kind: asked (by a person) or final; a name keeps it until it is deleted."""
        ...

    def close(self) -> None:
        """Give back the lock, files and memory."""
        ...


class TrainerLike(RunLike, Protocol):
    """What the loop needs of a trainer: a run that can be asked for things. Events are sent at once.

    Methods raise MinagiError for what they refuse; the run then goes on, except when `step` raises it.
    """

    @property
    def phase(self) -> str:
        """What the coming step is: running (training), evaluating or sampling (slices of these)."""
        ...

    def news(self) -> Iterable[Message]:
        """What happened while no step was made: a checkpoint that one began may be complete."""
        ...

    def revert(self, to: str = "") -> Iterable[Message]: ...

    def delete(self, snapshot: str) -> Iterable[Message]:
        """Remove a kept checkpoint, but for the one that the present goes on from."""
        ...

    def evaluate(self) -> Generator[Message, None, None]:
        """Measure held-out text, a Phase for every slice. Closing it breaks the reading off."""
        ...

    def snapshots(self) -> protocol.Snapshots: ...

    def reply(self, command: Write | Continue) -> Generator[Message, None, None]:
        """ReplyStarted, then one ReplyChunk a character, then ReplyEnded; the same again where two replies
        were asked for. Closing it cancels."""
        ...

    def new_chat(self) -> Message:
        """Begin a new conversation: ConversationBegan."""
        ...

    def probe(self, command: protocol.Probe) -> protocol.Probed: ...

    def set(self, key: str, value: float | bool | str | None) -> str:
        """Change a run-time value; returns what changed, as a sentence."""
        ...

    def conclude(self) -> Iterable[Message]:
        """What there is to say when a run ends in order."""
        ...


class ChannelLike(Protocol):
    """Where events go and commands come from: the wire, or a terminal that only listens."""

    @property
    def closed(self) -> str:
        """Why nobody listens any more, or ""."""
        ...

    def send(self, message: Message) -> None: ...

    def poll(self) -> list[Command]: ...

    def wait(self, seconds: float) -> None: ...

    def finish(self) -> None: ...
