"""What a model is made of (`Shape`, fixed when its weights are made) and how deep it reads (`Depth`)."""

from __future__ import annotations

from dataclasses import dataclass

from minagi.text.alphabet import VOCAB_SIZE

NORM_EPS = 1e-6


@dataclass(frozen=True)
class Shape:
    """Sizes of every tensor. Counts are in units, widths in numbers a character."""

    d_model: int
    n_head: int
    d_ff: int
    n_prelude: int
    n_recur: int
    n_coda: int
    max_steps: int  # rows at most; each row has its own attention cache
    expert_width: int
    expert_depth: int
    top_k: int
    rope_theta: float = 10000.0
    vocab_size: int = VOCAB_SIZE
    ngram: int = 0  # longest n-gram with an embedding of its own; 0 = none
    ngram_rows: int = 0  # rows of the table for each length from 2 on
    word_rows: int = 0  # rows beside them for each kind of word hash; 0 = none

    @property
    def head_size(self) -> int:
        return self.d_model // self.n_head

    @property
    def row_layers(self) -> int:
        """Attention layers one row runs."""
        return self.n_recur + self.n_coda

    @property
    def cache_layers(self) -> int:
        """Attention caches a text keeps: the prelude's, then every row's."""
        return self.n_prelude + self.max_steps * self.row_layers

    @property
    def expert_parameters(self) -> int:
        return 3 * self.expert_width * self.d_model * self.expert_depth


@dataclass(frozen=True)
class Depth:
    """How rows are spent; read at every load, all counts in rows."""

    min_steps: int = 1
    halt_prior: float = 0.072
    halt_thresh: float = 0.9
    halt_freeze: bool = True
    ponder_beta: float = 0.01
    bptt_window: int = 24
    train_steps_mean: float = 12.8


@dataclass(frozen=True)
class Routing:
    """How the pool is used; read at every load."""

    resident: int  # S, slots on the card
    capacity_factor: float = 1.5  # 0 = no bound
    balance: float = 0.001  # weight of the balance term, 0 = off
    select_temperature: float = 0.0
