"""What the worker tells of a conversation and of a text that it was given to look into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from minagi.protocol.message import Message


@dataclass(frozen=True)
class ReplyStarted(Message):
    """The model begins to answer command `id`, or goes on with its last answer (`goes_on`)."""

    type: ClassVar[str] = "reply_started"
    id: int = 0
    variant: str = "adapted"  # adapted | raw
    prompt: str = ""  # what is answered, for those who did not ask
    strength: float = 0.0  # of the suppression
    unread: int = 0  # characters at the prompt's beginning that the window has no room for
    goes_on: bool = False


@dataclass(frozen=True)
class ReplyChunk(Message):
    """Characters of a reply. `data` holds raw bytes, one code point (0..255) each; markers spelled out."""

    type: ClassVar[str] = "reply_chunk"
    id: int = 0
    data: str = ""
    rows: list[int] = field(default_factory=list)  # rows taken, one each a character
    loads: int = 0  # experts loaded onto the card for them
    variant: str = "adapted"


@dataclass(frozen=True)
class ReplyEnded(Message):
    """A reply is over: finished (`</bot>`), length, cancelled, or failed."""

    type: ClassVar[str] = "reply_ended"
    id: int = 0
    reason: str = "finished"
    chars: int = 0  # written for this command
    seconds: float = 0.0
    variant: str = "adapted"


@dataclass(frozen=True)
class Remembered(Message):
    """One exchange of an earlier session with this model, oldest first; a line of its chat history."""

    type: ClassVar[str] = "remembered"
    at: float = 0.0
    prompt: str = ""
    reply: str = ""  # markers spelled out; bytes that are no UTF-8 as lone surrogates (surrogateescape)
    variant: str = "adapted"
    strength: float = 0.0
    reason: str = "finished"  # as in ReplyEnded
    chars: int = 0  # of the reply, markers spelled out
    rows: int = 0  # sum over the characters
    loads: int = 0
    seconds: float = 0.0
    goes_on: bool = False  # stands in the place of the one before, which was cut short
    beside: bool = False  # a second answer to the prompt before, no part of the conversation
    over: bool = False  # the conversation was ended since


@dataclass(frozen=True)
class ConversationBegan(Message):
    """What was said before is no part of the conversation any more."""

    type: ClassVar[str] = "conversation_began"
    at: float = 0.0


@dataclass(frozen=True)
class Probed(Message):
    """Answer to `probe`: how each character of a text was read."""

    type: ClassVar[str] = "probed"
    id: int = 0
    data: str = ""  # the bytes that were read, as in ReplyChunk
    rows: list[int] = field(default_factory=list)
    nats: list[float | None] = field(default_factory=list)  # surprise at each character; null for the first
    experts: list[list[int]] = field(default_factory=list)  # uids of the first row, best first
    weights: list[list[float]] = field(default_factory=list)
    # what would be written after each character, as bytes like `data`: greedy, and with suppression
    raw: list[str] = field(default_factory=list)
    adapted: list[str] = field(default_factory=list)
    unread: int = 0  # bytes at the text's end that there was no room for
