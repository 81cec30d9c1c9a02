"""Everything the app knows, as one immutable value. Panes draw it; `tui.reducers.reduce` makes the next.

Where an event of the protocol already says what a pane needs, the state keeps that event itself.
The LOCAL events at the end come from the app and its source, never over the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from minagi.protocol import (
    Command,
    CorpusFound,
    Growth,
    HeldOut,
    Hello,
    Memory,
    Message,
    Metrics,
    Phase,
    Rate,
    Reverted,
    Saved,
    Window,
)
from minagi.units import LN2
from tui.series import Series

LOG_LIMIT = 1_000  # lines
CHAT_LIMIT = 100  # exchanges
PROMPT_LIMIT = 100  # prompts that can be brought back
PROMPT_TEXT_LIMIT = 100_000  # characters of one of them; a longer one is not kept
SAID_LIMIT = 20_000  # characters of one side's words
MARK_LIMIT = 200
ALERT_LIMIT = 32
PENDING_LIMIT = 64
WORSE_READINGS = 4  # held-out, in a row, before it is said
SUBJECT_LIMIT = 500
SNAPSHOT_LIMIT = 500
WAYS_LIMIT = 64  # of a snapshot
PARENTS_LIMIT = 512
BITS = 1 / LN2  # in a nat

QUIET_WORDS = {  # what is said while a command waits for its acknowledgement
    "pause": "pausing…",
    "resume": "resuming…",
    "checkpoint": "saving…",
    "revert": "reverting…",
    "delete": "deleting…",
    "evaluate": "measuring…",
    "snapshots?": "listing…",
    "stop": "stopping…",
}


class LogLine(NamedTuple):
    """One sentence of the log; `times` tells how often it came in a row."""

    serial: int
    at: float
    level: str  # info | warning | error
    topic: str
    text: str
    times: int = 1


class Alert(NamedTuple):
    """Something worth saying at once; `bell` when it should be heard from another window."""

    serial: int
    level: str
    text: str
    bell: bool = False


class Mark(NamedTuple):
    """A tick on the loss chart."""

    x: float  # characters read
    kind: str  # started | saved | reverted | born | pruned
    label: str = ""


class Pending(NamedTuple):
    """A command without its acknowledgement."""

    command: Command
    at: float


@dataclass(frozen=True)
class Curves:
    """Losses in nats over characters read; `recent_*` span the last stretch on a finer grid."""

    raw: Series = field(default_factory=Series)
    smooth: Series = field(default_factory=Series)
    held: Series = field(default_factory=Series)
    recent_raw: Series = field(default_factory=Series)
    recent_smooth: Series = field(default_factory=Series)
    recent_held: Series = field(default_factory=Series)
    best: tuple[float, float] | None = None  # characters, nats
    best_ever: bool = False  # the worker called it the model's best; else it is that of this session
    sparse: bool = False  # the life before this start is known by hardly more than a point a checkpoint
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Gauges:
    """Smaller curves: memory over time, the others over characters read."""

    memory: Series = field(default_factory=Series)
    context: Series = field(default_factory=Series)
    rows: Series = field(default_factory=Series)


class Expert(NamedTuple):
    """One cell of the pool's map."""

    uid: int
    tier: str  # R resident | M in RAM | D on disk
    life: str  # n newborn | d dying | .
    use: float  # share of recent admissions
    gate: float
    age: int  # characters read since birth
    unseen: int  # texts since last admitted
    admitted: bool  # by the last step
    arrived: bool  # loaded onto the card by the last step
    left: bool  # on the card at the event before, not now


@dataclass(frozen=True)
class PoolView:
    """The pool as last told, and what changed since the time before."""

    experts: tuple[Expert, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)  # resident, ram, disk, newborn, dying
    arrived: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    loads_per_step: float | None = None
    ram_hit_rate: float | None = None
    dropped_share: float | None = None
    parents: dict[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """One line of the subjects pane."""

    name: str
    chars: int = 0  # in the corpus
    read: int = 0  # in the model's life
    train: float | None = None  # smoothed nats
    held: float | None = None
    before: float | None = None  # held-out when it was first read, as far as the history tells
    noise: float | None = None  # standard error of the change since then
    first: tuple[float, float] | None = None  # its first reading that is known, of an earlier session; error
    here: bool = False  # it is read now; else the model knows it from before


@dataclass(frozen=True)
class Reply:
    """One answer of the model. `phase`: waiting, writing, or how it ended."""

    variant: str = "adapted"  # adapted | raw
    strength: float = 0.0  # of the suppression
    phase: str = "waiting"  # waiting | writing | finished | length | cancelled | failed | lost
    was: str = ""  # the phase before it was asked to go on
    text: str = ""
    unfinished: bytes = b""  # of a character cut in the middle
    chars: int = 0
    rows: int = 0  # sum over the characters
    last_rows: int = 0
    loads: int = 0  # experts loaded onto the card
    seconds: float = 0.0

    @property
    def open(self) -> bool:
        return self.phase in ("waiting", "writing")


class Sign(NamedTuple):
    """One character of an inspected text, as it stands on the screen."""

    text: str
    breaks: bool  # a line ends with it
    bytes: int
    rows: int  # the most that one of its bytes took
    nats: float | None  # surprise, summed over its bytes
    experts: tuple[tuple[int, float], ...]  # uid and weight in the first row, best first
    raw: str  # what would be written after it
    adapted: str  # the same with adaptive suppression


class Inspected(NamedTuple):
    """The text that was last probed; `id` of the command."""

    id: int
    signs: tuple[Sign, ...]
    bytes: int
    unread: int  # bytes of the text that were left out at its end


@dataclass(frozen=True)
class Exchange:
    """What was said to the model, and its answer, or two of them: the adapted first, the raw beside it."""

    serial: int  # in the order of the conversation
    id: int  # of the command being answered; 0 for one of an earlier session
    prompt: str
    size: int = 0  # characters of the whole prompt
    unread: int = 0  # of them, those the window had no room for
    replies: tuple[Reply, ...] = (Reply(),)

    @property
    def open(self) -> bool:
        return any(reply.open for reply in self.replies)

    @property
    def can_go_on(self) -> bool:
        """The answer the conversation keeps was cut short, and nothing is being written."""
        return self.replies[0].phase in ("length", "cancelled") and not self.open


class Snapshot(NamedTuple):
    """One line of the revert picker."""

    id: str
    name: str
    kind: str
    at: float
    step: int
    chars: int
    held_out: float | None
    experts: int
    bytes_freed: int
    held_out_step: int | None = None  # when held-out was read
    ways: tuple[tuple[int, int, int], ...] = ()  # how it came about: name, step and characters of each way


class Kept(NamedTuple):
    """The checkpoint that the present goes on from."""

    step: int
    chars: int


class Ending(NamedTuple):
    """How the worker went."""

    status: int | None  # exit status, negative for a signal
    tail: tuple[str, ...]  # the last lines of its log
    asked: bool  # it was told to


@dataclass(frozen=True)
class AppState:
    """The whole; `link` is starting | live | ended | died."""

    link: str = "starting"
    heard_at: float = 0.0  # when the worker last said anything
    hello: Hello | None = None
    corpus: CorpusFound | None = None
    phase: Phase = field(default_factory=Phase)
    metrics: Metrics = field(default_factory=Metrics)
    diverged: bool = False
    memory: Memory | None = None
    window: Window | None = None
    growth: Growth | None = None  # the last decision
    births: tuple[Growth, ...] = ()  # the last few that changed the pool
    rate: Rate | None = None
    held_out: HeldOut | None = None
    worse: int = 0  # held-out readings in a row that lie above the best by more than their error
    curves: Curves = field(default_factory=Curves)
    gauges: Gauges = field(default_factory=Gauges)
    pool: PoolView = field(default_factory=PoolView)
    subjects: tuple[Subject, ...] = ()
    chat: tuple[Exchange, ...] = ()
    prompts: tuple[str, ...] = ()  # said before, for the text field to bring back
    learning: bool = False  # finished exchanges are read
    log: tuple[LogLine, ...] = ()
    inspected: Inspected | None = None
    snapshots: tuple[Snapshot, ...] | None = None
    present: str = ""  # id of the one of them that the present goes on from
    saved: Saved | None = None
    saved_at: float | None = None
    kept: Kept | None = None  # what leaving without saving goes back to; None where nothing was ever saved
    passed_at: float = 0.0  # when a finished pass was last told
    reverted: Reverted | None = None
    reverts: tuple[int, ...] = ()  # the steps gone back to in this session, the last of them
    pending: tuple[Pending, ...] = ()
    alerts: tuple[Alert, ...] = ()
    serial: int = 0  # of the newest log line or alert
    ending: Ending | None = None
    failure: str = ""  # the worker's own last sentence
    failure_saved: bool = False
    parting: str = ""  # what is left to say when the screen is given back
    rung: str = ""  # of the quit ladder: stop | terminate | kill

    @property
    def reply(self) -> Reply | None:
        """The reply that is being written, or waited for."""
        last = self.chat[-1].replies if self.chat else ()
        return next((reply for reply in last if reply.open), None)


def initial(now: float, recent_span: float = 0.0) -> AppState:
    """The state before the worker's first word. `recent_span`: characters of the chart's recent view."""
    if not recent_span:
        return AppState(heard_at=now)
    recent = Series(span=recent_span)
    curves = Curves(recent_raw=recent, recent_smooth=recent, recent_held=recent)
    return AppState(heard_at=now, curves=curves)


# ----------------------------------------------------------------------------------------- local events


@dataclass(frozen=True)
class WorkerStarted(Message):
    """A worker process was started; nothing was heard of it yet."""

    type: ClassVar[str] = "local.started"


@dataclass(frozen=True)
class WorkerEnded(Message):
    """The worker process is gone (or the recording is over)."""

    type: ClassVar[str] = "local.ended"
    status: int | None = None
    tail: tuple[str, ...] = ()
    asked: bool = False


@dataclass(frozen=True)
class Rewound(Message):
    """A recording begins again."""

    type: ClassVar[str] = "local.rewound"


@dataclass(frozen=True)
class NotUnderstood(Message):
    """Lines that were no messages."""

    type: ClassVar[str] = "local.garbage"
    lines: int = 1
    sample: str = ""


@dataclass(frozen=True)
class Asked(Message):
    """The app sent a command."""

    type: ClassVar[str] = "local.asked"
    command: Command = field(default_factory=Command)


@dataclass(frozen=True)
class Closing(Message):
    """A rung of the quit ladder was reached."""

    type: ClassVar[str] = "local.closing"
    rung: str = "stop"


@dataclass(frozen=True)
class Noted(Message):
    """A sentence of the app's own for the log."""

    type: ClassVar[str] = "local.noted"
    text: str = ""
    level: str = "info"
    topic: str = "app"
