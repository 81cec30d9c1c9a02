"""Everything the worker and its reader say to each other: newline-delimited JSON, one object a line.

EVENTS go from the worker to whoever shows the run (the app, `minagi read --json`, a log, a replay);
COMMANDS go the other way and are acknowledged by id with `Ack`. One line is one frozen dataclass of
this package: `{"type": "held_out", "step": 640, …}`. The first event is always `Hello`, and carries
`version`.

Rules both sides keep: unknown fields are ignored, an unknown `type` gives None from `decode`, another
major `version` is refused in words. Numbers may be null where a figure does not exist yet; they are
never NaN or infinity on the wire (`encode` writes null for those).
Losses are in nats per byte unless a name says otherwise, times in seconds, sizes in bytes,
`at` is Unix time. This package imports nothing heavy: the app uses it without torch.
"""

from minagi.protocol.commands import (
    COMMANDS,
    Cancel,
    Checkpoint,
    Command,
    Continue,
    Delete,
    Evaluate,
    ListSnapshots,
    NewChat,
    Pause,
    Probe,
    Resume,
    Revert,
    Set,
    Stop,
    Write,
)
from minagi.protocol.events import (
    EVENTS,
    SNAPSHOT_KINDS,
    Ack,
    CorpusFound,
    Failure,
    Goodbye,
    Growth,
    HeldOut,
    Hello,
    Log,
    Memory,
    Metrics,
    Past,
    Phase,
    Pool,
    Rate,
    Reverted,
    Sampled,
    Saved,
    Snapshots,
    Subjects,
    Window,
)
from minagi.protocol.message import VERSION, Message
from minagi.protocol.talk import (
    ConversationBegan,
    Probed,
    Remembered,
    ReplyChunk,
    ReplyEnded,
    ReplyStarted,
)
from minagi.protocol.wire import MAX_LINE, ProtocolError, decode_command, decode_event, encode

__all__ = [
    "COMMANDS", "EVENTS", "MAX_LINE", "SNAPSHOT_KINDS", "VERSION", "Ack", "Cancel", "Checkpoint",
    "Command", "Continue", "ConversationBegan", "CorpusFound", "Delete", "Evaluate", "Failure", "Goodbye",
    "Growth", "HeldOut", "Hello", "ListSnapshots", "Log", "Memory", "Message", "Metrics", "NewChat",
    "Past", "Pause", "Phase", "Pool", "Probe", "Probed", "ProtocolError", "Rate", "Remembered",
    "ReplyChunk", "ReplyEnded", "ReplyStarted", "Resume", "Revert", "Reverted", "Sampled", "Saved", "Set",
    "Snapshots", "Stop", "Subjects", "Window", "Write", "decode_command", "decode_event", "encode",
]  # fmt: skip
