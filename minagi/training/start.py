"""How a run begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minagi.text.corpus import Corpus
from minagi.training.elsewhere import NOTHING


@dataclass(frozen=True)
class Start:
    """How a trainer begins, beside its settings."""

    seed: int
    dry_run: bool = False
    fresh: bool = False
    profile: str = ""
    notice: str = ""
    log: str = ""
    lr_reset: bool = False
    revert_factor: float = 1.5
    max_reverts: int = 3
    pool_checkpoint: bool = True
    sample_chars: int = 200
    sample_raw_only: bool = False
    trace_routes: Path | None = None
    trace_chunks: int = 8
    elsewhere: Corpus = NOTHING  # held-out text of what the model knows and is not reading now
