"""What the worker tells. The first event is always `Hello`, and carries `version`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from minagi.protocol.message import VERSION, Message
from minagi.protocol.talk import (
    ConversationBegan,
    Probed,
    Remembered,
    ReplyChunk,
    ReplyEnded,
    ReplyStarted,
)


@dataclass(frozen=True)
class Hello(Message):
    """First words of a worker: what it is running and where it goes on from."""

    type: ClassVar[str] = "hello"
    version: int = VERSION
    at: float = 0.0
    pid: int = 0
    model: str = ""  # the weights directory's name, or that of what is read where it has none of its own
    weights: str = ""  # its full path
    log: str = ""  # path of the worker's log file
    profile: str = ""  # "cpu", … or "" when none was chosen
    notice: str = ""  # one sentence when something was decided for the user (a profile, a precision)
    fresh: bool = False  # the model was made just now
    dry_run: bool = False
    device: str = "cpu"  # "cpu", "cuda:0"
    device_name: str = ""
    precision: str = "fp32"
    threads: int = 1
    parameters: int = 0  # trunk and all experts
    d_model: int = 0
    experts: int = 0
    resident: int = 0  # slots on the card
    max_rows: int = 0
    step: int = 0
    chars: int = 0  # characters read in the model's life
    context: int = 0  # characters in the window now
    context_start: int = 0
    context_end: int = 0
    clip: float = 1.0
    gain_min: float = 0.0
    memory_budget: int = 0  # bytes the budget of growth measures against
    best: float | None = None  # lowest held-out reading of the model, nats
    best_step: int = 0  # when that was read; 0 where it is not known
    best_chars: int = 0


@dataclass(frozen=True)
class Past(Message):
    """What is known of the model's life before this start, from its history. Sent after Hello, and again when
    other held-out text is measured from now on."""

    type: ClassVar[str] = "past"
    # oldest first: characters read, train loss, held-out and the characters it was read at; null if unknown
    points: list[list[float | None]] = field(default_factory=list)
    checkpoints: int = 0  # that they come from; older ones told of one point each
    # name -> {"nats", "stderr"}: each subject's first held-out reading that later ones compare with
    subjects: dict[str, dict[str, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class CorpusFound(Message):
    """What is there to read. Sent after Hello, and again when watching finds a change."""

    type: ClassVar[str] = "corpus"
    files: int = 0
    chars: int = 0  # characters to read in one pass, held-out excluded
    held_out_chars: int = 0
    # name, files, chars (to read), held_out_chars
    subjects: list[dict[str, Any]] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)  # reason in words -> files


@dataclass(frozen=True)
class Phase(Message):
    """What the worker is doing now."""

    type: ClassVar[str] = "phase"
    # starting | running | paused | saving | evaluating | sampling | writing | reverting | stopping
    phase: str = "starting"
    reason: str = ""


@dataclass(frozen=True)
class Metrics(Message):
    """The pulse of training, at most ten a second; figures are of the last step unless they say else."""

    type: ClassVar[str] = "metrics"
    at: float = 0.0
    step: int = 0
    chars: int = 0  # characters read in the model's life
    session_chars: int = 0  # characters read since this worker started
    loss: float | None = None  # mean cross-entropy at the depth read at, nats a byte
    loss_smooth: float | None = None
    chars_per_second: float | None = None
    subject: str = ""  # the subject of this step
    rows: float | None = None  # mean rows a character
    rows_run: int = 0  # rows this step could use
    grad_norm: float | None = None  # before clipping
    signal: float | None = None  # GradSNR of the trunk, 0..1
    rate_factor: float = 1.0
    lr: float = 0.0  # the pool's rate now
    again: float = 1.0  # share of the rate that is in `lr`, because this text was read before
    context: int = 0
    skipped_steps: int = 0  # non-finite steps skipped so far
    unsaved_chars: int = 0
    corpus_share: float | None = None  # characters read of this corpus, ever, over its size; 1.0 = a pass


@dataclass(frozen=True)
class Memory(Message):
    """Where the bytes are. On a CPU `used` is the process's memory, and `kind` says so."""

    type: ClassVar[str] = "memory"
    at: float = 0.0
    kind: str = "process"  # "card" | "process"
    used: int = 0
    peak: int = 0
    budget: int = 0
    ram_experts: int = 0  # experts held in the RAM tier
    ram_bytes: int = 0
    disk_bytes: int = 0  # the weights directory


@dataclass(frozen=True)
class Pool(Message):
    """The expert pool, one entry an expert in pool order. At most two a second."""

    type: ClassVar[str] = "pool"
    at: float = 0.0
    uids: list[int] = field(default_factory=list)
    # one letter an expert: R resident on the card, M in RAM, D on disk only
    tier: str = ""
    # one letter an expert: n newborn in its trial, d dying, . neither
    life: str = ""
    use: list[float] = field(default_factory=list)  # share of recent admissions, sums to 1
    gate: list[float] = field(default_factory=list)
    age_chars: list[int] = field(default_factory=list)  # characters read since birth
    unseen_texts: list[int] = field(default_factory=list)  # texts since last admitted
    admitted: list[int] = field(default_factory=list)  # uids the last step admitted
    arrived: list[int] = field(default_factory=list)  # uids loaded onto the card by the last step
    loads_per_step: float | None = None
    ram_hit_rate: float | None = None  # loads that found their expert in RAM
    dropped_share: float | None = None  # assignments dropped for capacity
    parents: dict[str, list[int]] = field(default_factory=dict)  # uid -> parents, of the recently born


@dataclass(frozen=True)
class Growth(Message):
    """A growth or pruning decision, in words."""

    type: ClassVar[str] = "growth"
    at: float = 0.0
    step: int = 0
    chars: int = 0
    born: list[int] = field(default_factory=list)  # uids
    pruned: list[int] = field(default_factory=list)
    sentence: str = ""  # why, or why not
    next_at_chars: int = 0  # when it is decided again


@dataclass(frozen=True)
class Window(Message):
    """The context window and the evidence that moves it."""

    type: ClassVar[str] = "window"
    step: int = 0
    chars: int = 0
    context: int = 0
    ceiling: int = 0
    gain: float | None = None  # nats gained deep in the window
    gain_min: float = 0.0
    next_at_chars: int = 0
    sentence: str = ""


@dataclass(frozen=True)
class HeldOut(Message):
    """One measurement of the held-out text."""

    type: ClassVar[str] = "held_out"
    at: float = 0.0
    step: int = 0
    chars: int = 0
    nats: float | None = None
    bits_per_byte: float | None = None
    stderr: float | None = None
    best: bool = False  # the lowest so far
    # name -> {"nats", "stderr", "bytes", "before", "change_stderr"}; before = at the session's start
    subjects: dict[str, dict[str, float | None]] = field(default_factory=dict)
    seconds: float = 0.0
    gap: float | None = None  # held-out minus train
    # as `subjects`, of what the model knows and is not reading now; measured first and last, not in `nats`
    elsewhere: dict[str, dict[str, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Rate(Message):
    """What the learning-rate control made of the last reading."""

    type: ClassVar[str] = "rate"
    step: int = 0
    factor: float = 1.0
    verdict: float | None = None
    sentence: str = ""
    notable: bool = False  # worth a line in the log


@dataclass(frozen=True)
class Subjects(Message):
    """What was read of each subject, and how it went. At most one a second."""

    type: ClassVar[str] = "subjects"
    # name -> {"chars": read in the model's life, "loss": smoothed train nats of this session}
    subjects: dict[str, dict[str, float | None]] = field(default_factory=dict)


# what a checkpoint's kind means, for people; those with a name of their own are shown by that
SNAPSHOT_KINDS = {
    "auto": "automatic",
    "asked": "by hand",
    "named": "by hand",
    "best": "best held-out",
    "before-revert": "before a revert",
    "final": "at the end",
    "damaged": "damaged",
}


@dataclass(frozen=True)
class Saved(Message):
    """A checkpoint was completed: from here on it is what a crash returns to."""

    type: ClassVar[str] = "saved"
    at: float = 0.0
    snapshot: str = ""  # id, usable with revert
    name: str = ""  # the user's name for it, or ""
    kind: str = "auto"  # one of SNAPSHOT_KINDS
    step: int = 0
    chars: int = 0
    held_out: float | None = None
    seconds: float = 0.0
    bytes_written: int = 0


@dataclass(frozen=True)
class Snapshots(Message):
    """Every snapshot there is, newest first, in answer to the command of that name."""

    type: ClassVar[str] = "snapshots"
    # id, name, kind, at, step, chars, held_out, held_out_step (when that was read), measured (which text),
    # experts, bytes_freed (by deleting it), ways (how it came about: name, step and characters of each way)
    items: list[dict[str, Any]] = field(default_factory=list)
    present: str = ""  # id of the one that the present goes on from


@dataclass(frozen=True)
class Reverted(Message):
    """The model is again what it was at `snapshot`."""

    type: ClassVar[str] = "reverted"
    at: float = 0.0
    snapshot: str = ""
    undo: str = ""  # the snapshot of the present that was taken first, or ""
    step: int = 0
    chars: int = 0
    held_out: float | None = None
    reason: str = ""  # "asked", or why the run did it by itself
    best: float | None = None  # the lowest held-out reading up to there, as in Hello
    best_step: int = 0
    best_chars: int = 0


@dataclass(frozen=True)
class Sampled(Message):
    """What the model writes now, after one prompt a subject."""

    type: ClassVar[str] = "sampled"
    at: float = 0.0
    path: str = ""  # the file that it was added to, or ""
    chars_per_second: float | None = None  # of the writing
    # subject, prompt, raw, raw_repeated (share of 8-grams); adapted, adapted_repeated: null if not asked for
    samples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Log(Message):
    """One thing that happened, as a plain sentence."""

    type: ClassVar[str] = "log"
    at: float = 0.0
    level: str = "info"  # info | warning | error
    topic: str = "run"  # run | files | pool | window | rate | held-out | checkpoint | chat | worker
    text: str = ""


@dataclass(frozen=True)
class Ack(Message):
    """Command `id` was carried out (ok) or refused (the sentence says why)."""

    type: ClassVar[str] = "ack"
    id: int = 0
    command: str = ""
    ok: bool = True
    text: str = ""


@dataclass(frozen=True)
class Failure(Message):
    """The run cannot go on. The process leaves after this."""

    type: ClassVar[str] = "failure"
    text: str = ""  # what is wrong, where, what to do
    saved: bool = False  # the model as it stands is safe on disk
    exit_status: int = 1


@dataclass(frozen=True)
class Goodbye(Message):
    """Last words: why the run ended and what was kept."""

    type: ClassVar[str] = "goodbye"
    reason: str = ""
    saved: bool = False
    step: int = 0
    chars: int = 0


EVENTS: dict[str, type[Message]] = {
    cls.type: cls
    for cls in (
        Hello, Past, CorpusFound, Phase, Metrics, Memory, Pool, Growth, Window, HeldOut, Rate, Subjects,
        Saved, Snapshots, Reverted, Sampled, ReplyStarted, ReplyChunk, ReplyEnded, Remembered,
        ConversationBegan, Probed, Log, Ack, Failure, Goodbye,
    )
}  # fmt: skip
