"""What a session is asked to do, and what its results look like. Imports no torch: flags end here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from minagi.config import LoadedSettings

NOTHING_SAVED = "This is a dry run: nothing is saved. Start one that saves to keep what it learns."


@dataclass(frozen=True)
class Limits:
    """When a run ends by itself: at the first of these that is reached. None is no limit."""

    minutes: float | None = None  # of wall clock
    chars: int | None = None  # characters read in this run
    steps: int | None = None  # optimiser steps of this run
    passes: float | None = None  # times the corpus, counted in characters read


@dataclass(frozen=True, kw_only=True)
class Manner:
    """What is asked of a run beside its settings, from the flags to the trainer."""

    dry_run: bool = True  # change no byte of the weights directory
    log: str = ""  # where the worker's own log goes, for `Hello.log`
    lr_reset: bool = False  # start with the full rate again
    revert_factor: float = 1.5  # held-out over this many times the best is divergence
    max_reverts: int = 3  # ways back before a run stops
    pool_checkpoint: bool = True  # save at once when experts were born or deleted
    sample_chars: int = 200  # characters of one sample of writing
    sample_raw_only: bool = False  # samples without the adapted half
    trace_routes: Path | None = None  # where the routing of the first chunks is kept, if anywhere
    trace_chunks: int = 8

    def manner(self) -> dict[str, Any]:
        """These alone, by name."""
        return {field.name: getattr(self, field.name) for field in fields(Manner)}


@dataclass(frozen=True)
class SessionRequest(Manner):
    """Everything `minagi.training.session.open_session` needs to know."""

    paths: tuple[Path, ...]  # files and folders to read
    weights: Path  # the directory that is the model
    loaded: LoadedSettings  # settings in effect, with their origins and the profile asked for
    device: str = "auto"  # auto, cpu, cuda, cuda:N, mps
    seed: int | None = None  # of everything random; None takes data.shuffle_seed
    limits: Limits = Limits()
    threads: int | None = None  # None: every core but one
    follow_symlinks: bool = False


@dataclass(frozen=True)
class Written:
    """What a model wrote after a prompt: its bytes, ids and the rows each character took."""

    text: bytes
    ids: list[int]
    rows: list[int]

    def __str__(self) -> str:
        return self.text.decode("utf-8", "replace")


@dataclass(frozen=True)
class Looked:
    """How a short text was read, a list entry a symbol: the rows it took, and the id held likeliest next."""

    rows: list[int]
    expected: list[int]


class ReaderLike(Protocol):
    """A model opened for reading and writing only, as `minagi.training.session.open_reader` gives it."""

    def write(
        self,
        prompt: bytes,
        chars: int,
        raw: bool = False,
        strength: float | None = None,
        on_char: Callable[[bytes, int], None] | None = None,
    ) -> Written:
        """Write at most `chars` characters. `on_char` gets each one's bytes and rows as it is made."""
        ...

    def evaluate(self, path: Path) -> dict[str, Any]:
        """Score every byte after the first once.

        Returns `nats`, `bits_per_byte`, `bytes`, `stderr`, `subjects` (name -> the same) and `context`.
        """
        ...

    def look(self, text: bytes) -> Looked:
        """Read a short text as a new one."""
        ...

    def close(self) -> None:
        """Give back files and memory."""
        ...
