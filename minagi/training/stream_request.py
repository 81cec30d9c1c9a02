"""What a stream is asked to do, and what of it contradicts itself. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from minagi.config import LoadedSettings, Settings
from minagi.errors import UsageError
from minagi.text.mix import Source

WARMUP = 100  # steps, or a tenth of all where that is fewer
HISTORY = "history.jsonl"  # in OUT, beside the model
STREAM = "stream"  # the key, among our own, of what a stream keeps in the manifest
CONTEXT, CONTEXT_START, CHUNK = "model.context_end", "model.context_start", "training.chunk"


class Lengths(NamedTuple):
    """Characters in a chunk, in the first window, and in the longest."""

    chunk: int
    start: int
    context: int


@dataclass(frozen=True)
class StreamRequest:
    """Everything `minagi.training.stream.open_stream` needs to know."""

    mix: tuple[Source, ...]
    out: Path  # the weights directory; its history.jsonl beside the model
    loaded: LoadedSettings
    steps: int = 10_000
    accum: int = 1  # chunks a step
    warmup: int | None = None  # steps; None: WARMUP, or a tenth of all
    log_every: int = 20  # steps
    eval_every: int = 500  # steps
    eval_chunks: int = 64  # of each corpus, a reading
    grow_min_age: int | None = None  # steps an expert may go unused; None takes prune.survival_chars
    pool_max: int = 0  # experts; 0 is no limit
    replay: float = 0.0  # share of windows that reopen a remembered place
    replay_burst: int = 4  # chunks such a window is long
    restart: bool = False  # begin the schedule anew on the model that is there
    seed: int | None = None  # None takes data.shuffle_seed
    revert_factor: float = 1.5
    max_reverts: int = 3
    device: str = "auto"
    threads: int | None = None
    given: frozenset[str] = frozenset()  # the settings that flags named
    log: str = ""

    @property
    def warmup_steps(self) -> int:
        return min(WARMUP, self.steps // 10) if self.warmup is None else self.warmup

    def lengths(self, settings: Settings) -> Lengths:
        """The lengths in effect under these settings. What a flag says binds: raises UsageError where it
        does not fit the context; what was only inherited gives way."""
        context = settings.model.context_end
        fitting = {}
        for flag, key, value in (
            ("--ctx-start", CONTEXT_START, settings.model.context_start),
            ("--chunk", CHUNK, settings.training.chunk),
        ):
            if value > context and key in self.given:
                raise UsageError(
                    f"{flag} is {value} characters but the window never has more than {context}. "
                    f"Lower it, or raise --context."
                )
            fitting[key] = min(value, context)
        return Lengths(fitting[CHUNK], fitting[CONTEXT_START], context)

    def in_steps(self, settings: Settings) -> Settings:
        """The settings with an expert's survival as it was asked for, in steps."""
        if self.grow_min_age is None:
            return settings
        survival = max(1, self.grow_min_age * self.accum * self.lengths(settings).chunk)
        return replace(settings, prune=replace(settings.prune, survival_chars=survival))

    def told(self, settings: Settings) -> dict[str, Any]:
        """What was asked, as the history has it."""
        training, lengths = settings.training, self.lengths(settings)
        return {
            "steps": self.steps, "mix": {source.name: source.weight for source in self.mix},
            "context": lengths.context, "ctx_start": lengths.start, "chunk": lengths.chunk,
            "accum": self.accum, "warmup": self.warmup_steps, "lr": training.lr,
            "trunk_lr_mult": training.trunk_lr_mult, "wd": training.weight_decay, "clip": training.clip,
            "replay": self.replay, "replay_burst": self.replay_burst,
            "eval_every": self.eval_every, "eval_chunks": self.eval_chunks,
        }  # fmt: skip

    def check(self) -> None:
        """Raise UsageError for what can be told before anything is opened."""
        if self.warmup_steps > self.steps:
            raise UsageError(
                f"--warmup is {self.warmup} steps, more than all the {self.steps} of --steps. Lower it."
            )
        if CONTEXT in self.given:
            self.lengths(self.loaded.settings)
        self._check_mix()

    def _check_mix(self) -> None:
        if not self.mix:
            raise UsageError("Name a corpus to read, as in --mix corpora/books:2,corpora/code:1")
        seen: dict[Path, str] = {}
        for source in self.mix:
            folder = source.folder.resolve()
            if folder in seen:
                raise UsageError(
                    f"{source.name} is in the mix twice. Name every corpus once, with one weight."
                )
            seen[folder] = source.name
        if self.out.resolve() in seen:
            raise UsageError(
                f"--out names the corpus {self.out}. The model must be kept in a directory of its own."
            )
