"""What is asked of the worker; each command is acknowledged by id with `Ack`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from minagi.protocol.message import Message


@dataclass(frozen=True)
class Command(Message):
    """Base of what is asked of the worker; `id` comes back in its Ack."""

    id: int = 0


@dataclass(frozen=True)
class Pause(Command):
    """Stop training after the step in flight."""

    type: ClassVar[str] = "pause"


@dataclass(frozen=True)
class Resume(Command):
    """Go on training."""

    type: ClassVar[str] = "resume"


@dataclass(frozen=True)
class Checkpoint(Command):
    """Save now; a name keeps the snapshot until it is deleted."""

    type: ClassVar[str] = "checkpoint"
    name: str = ""


@dataclass(frozen=True)
class ListSnapshots(Command):
    """Ask for `Snapshots`."""

    type: ClassVar[str] = "snapshots?"


@dataclass(frozen=True)
class Revert(Command):
    """Become snapshot `to` again; "" means the last checkpoint."""

    type: ClassVar[str] = "revert"
    to: str = ""


@dataclass(frozen=True)
class Delete(Command):
    """Remove a kept checkpoint, given by id or by name. The present never changes by that."""

    type: ClassVar[str] = "delete"
    snapshot: str = ""


@dataclass(frozen=True)
class Write(Command):
    """Answer a prompt. `chat` wraps it in the conversation's markers and answers the whole conversation:
    as much of its end as the window holds is read again for each reply."""

    type: ClassVar[str] = "write"
    prompt: str = ""
    chars: int = 400  # at most
    raw: bool = False  # no adaptive suppression
    strength: float | None = None  # of the suppression; None = the setting
    chat: bool = True
    both: bool = False  # answer twice: adapted, which the conversation keeps, then raw beside it


@dataclass(frozen=True)
class Continue(Command):
    """Go on with the last reply from where it stopped, in the manner it was begun."""

    type: ClassVar[str] = "continue"
    chars: int = 400  # at most


@dataclass(frozen=True)
class NewChat(Command):
    """Forget the conversation so far; the next Write begins a new text."""

    type: ClassVar[str] = "new_chat"


@dataclass(frozen=True)
class Cancel(Command):
    """Stop the reply that is being written, or the measurement that was asked for."""

    type: ClassVar[str] = "cancel"


@dataclass(frozen=True)
class Probe(Command):
    """Read a text and tell rows and experts a character (`Probed`)."""

    type: ClassVar[str] = "probe"
    text: str = ""
    strength: float | None = None  # of the suppression in `Probed.adapted`; None = the setting


@dataclass(frozen=True)
class Evaluate(Command):
    """Measure the held-out text now."""

    type: ClassVar[str] = "evaluate"


@dataclass(frozen=True)
class Set(Command):
    """Change a run-time value: rate_reset (its value does not matter) or learn_from_chat (true or false)."""

    type: ClassVar[str] = "set"
    key: str = ""
    value: float | bool | str | None = None


@dataclass(frozen=True)
class Stop(Command):
    """Finish: save first unless told not to, then leave."""

    type: ClassVar[str] = "stop"
    save: bool = True


COMMANDS: dict[str, type[Command]] = {
    cls.type: cls
    for cls in (
        Pause, Resume, Checkpoint, ListSnapshots, Revert, Delete, Write, Continue, NewChat, Cancel, Probe,
        Evaluate, Set, Stop,
    )
}  # fmt: skip
