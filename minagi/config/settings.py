"""Every setting there is: its kind, default, range and what turning it does.

The defaults are those of an 8 GB card. `Settings()` gives them all; `KEYS` is the same as a flat
table, from which the command line makes its flags and help. Cadences are in characters unless the
name or the doc says otherwise. Where a value comes from is the business of `loading`.
"""

# ruff: noqa: RUF009 - _key makes a dataclasses.field
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints


@dataclass(frozen=True)
class Rule:
    """What a value must satisfy beyond its kind. `above` excludes the bound itself, `low` includes it."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()

    def holds(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return True
        return not (
            (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
            or (self.above is not None and value <= self.above)
        )


def _key(default: Any, doc: str, flag: str = "", path: bool = False, **rule: Any) -> Any:
    meta = {"doc": doc, "rule": Rule(**rule), "flag": flag}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=meta)
    return field(default=Path(default) if path else default, metadata=meta)


_MILLION = 1_000_000
_MANY = 10**15  # characters; the upper bound of every count of them


@dataclass(frozen=True)
class Model:
    """The shape, fixed when the weights are made; depth and window are read again at every start."""

    d_model: int = _key(512, "width of the model", low=8, high=65_536)
    n_head: int = _key(8, "attention heads; must divide d_model into even sizes", low=1, high=1_024)
    d_ff: int = _key(1408, "width of a dense block's feed-forward part", low=1, high=_MILLION)
    n_prelude: int = _key(2, "dense blocks before the recurrence", low=0, high=256)
    n_recur: int = _key(1, "blocks in one row of the recurrence", low=1, high=64)
    n_coda: int = _key(0, "dense blocks after a row, before reading out", low=0, high=64)
    ngram: int = _key(
        0, "longest n-gram with an embedding of its own beside each character's; 0 is none", low=0, high=32
    )
    ngram_rows: int = _key(8_192, "rows that n-grams of each length share", low=1, high=1 << 24)
    word_rows: int = _key(
        0,
        "rows beside n-grams, if there are any, for the word so far, and as many for it with the one before",
        low=0,
        high=1 << 24,
    )
    max_steps: int = _key(24, "the most rows a character may take", low=1, high=1_024)
    min_steps: int = _key(1, "the fewest rows a character takes", low=1, high=1_024)
    halt_prior: float = _key(
        0.072, "chance of halting at a row that training pulls towards", above=0.0, high=1.0
    )
    halt_thresh: float = _key(0.9, "halting mass at which a character is finished", above=0.0, high=1.0)
    halt_freeze: bool = _key(True, "a finished character keeps its state and costs no more experts")
    ponder_beta: float = _key(0.01, "weight of the pull towards halt_prior", low=0.0, high=100.0)
    bptt_window: int = _key(24, "rows the gradient reaches back through", low=1, high=1_024)
    train_steps_mean: float = _key(
        12.8, "mean of the depth sampled in training, in rows; 0 runs every row", low=0.0, high=1_024.0
    )
    context_start: int = _key(2_048, "characters in the window of a new model", low=8, high=_MILLION)
    context_end: int = _key(4_096, "characters the window may grow to", low=8, high=_MILLION)
    context_step: int = _key(1, "characters the window grows by at a time", low=1, high=_MILLION)
    context_grow_every_chars: int = _key(
        100_000, "characters read between two steps of growth", low=1, high=_MANY
    )
    context_gain_min: float = _key(
        0.015, "nats (of 1.443 bits) a longer window must gain for it to grow", low=-100.0, high=100.0
    )
    context_every_chars: int = _key(
        65_536, "characters over which evidence for growth is gathered", low=1, high=_MANY
    )


@dataclass(frozen=True)
class Pool:
    """The expert pool: its shape, fixed at birth, and how it is paged and routed."""

    experts: int = _key(64, "experts a new model is born with", low=1, high=_MILLION)
    width: int = _key(2_048, "hidden units of one expert", flag="expert-width", low=1, high=_MILLION)
    depth: int = _key(1, "feed-forward levels of one expert", flag="expert-depth", low=1, high=64)
    top_k: int = _key(8, "experts a character uses in a row", low=1, high=1_024)
    resident: int = _key(32, "experts on the card at once", low=1, high=_MILLION)
    ram_cache: int = _key(96, "experts kept in RAM; 0 keeps them all", low=0, high=_MILLION)
    capacity_factor: float = _key(
        1.5, "how many times its fair share an expert may serve; 0 is no bound", low=0.0, high=1_000.0
    )
    balance: float = _key(0.001, "pull towards even use of the experts; 0 is off", low=0.0, high=100.0)
    select_temperature: float = _key(
        0.0, "chance in choosing experts; 0 always takes the best", low=0.0, high=100.0
    )


@dataclass(frozen=True)
class Training:
    """How a step is made and how often things happen."""

    save_every: float = _key(5.0, "minutes between two checkpoints", above=0.0, high=100_000.0)
    precision: str = _key(
        "bf16", "number format of the computation", choices=("bf16", "fp16", "fp32", "auto")
    )
    chunk: int = _key(2_048, "characters the cursor moves on in a step", low=1, high=_MILLION)
    lr: float = _key(3.0e-4, "learning rate of the pool", above=0.0, high=1.0)
    trunk_lr_mult: float = _key(0.1, "the trunk's rate, as a multiple of lr", low=0.0, high=100.0)
    ngram_lr: float = _key(0.01, "learning rate of the n-gram embeddings", above=0.0, high=10.0)
    ngram_drop: float = _key(
        0.15, "share of characters that get only their shorter n-grams in training", low=0.0, high=1.0
    )
    ngram_renew: bool = _key(
        False,
        "begin n-gram embeddings anew whenever all of the text was read, so that they teach nothing by heart",
    )
    again_lr_mult: float = _key(
        1.0, "rate of text that was read before, as a multiple for each time", above=0.0, high=1.0
    )
    weight_decay: float = _key(0.1, "weight decay, on matrices only", low=0.0, high=10.0)
    clip: float = _key(1.0, "largest norm of the gradient", above=0.0, high=_MILLION)
    beta2: float = _key(0.95, "Adam's memory of squared gradients", low=0.0, high=0.99999)
    average_chars: int = _key(
        0,
        "characters that averaged weights span at most, once the model has read ten times as many; held-out "
        "text, chat and samples are read with the averages; for newborn models, 0 is none",
        low=0,
        high=_MANY,
    )
    eval_every_chars: int = _key(
        500_000, "characters read between two measurements of held-out text", low=1, high=_MANY
    )
    sample_every: float = _key(
        10.0, "minutes between samples of what the model writes now; 0 is never", low=0.0, high=100_000.0
    )


@dataclass(frozen=True)
class Growth:
    """When experts are born, and the brakes."""

    every_chars: int = _key(
        2_000_000,
        "characters between two decisions to grow or prune",
        flag="growth-every-chars",
        low=1,
        high=_MANY,
    )
    k: int = _key(1, "experts born at a time; 0 never grows", flag="growth-k", low=0, high=10_000)
    max_gap: float = _key(
        0.4, "held-out minus train loss at which growth stops; 0 is off", low=0.0, high=100.0
    )
    dying_frac_max: float = _key(0.35, "share of dying experts at which growth stops", low=0.0, high=1.0)
    max_in_flight: int = _key(50, "experts that may be in their trial at once", low=0, high=_MILLION)
    keep_ratio_min: float = _key(0.35, "share of recent experts that must have stayed", low=0.0, high=1.0)
    recent_mult: float = _key(4.0, "how long an expert counts as recent, in trials", low=1.0, high=10_000.0)
    max_disk_gb: float = _key(
        10.0, "size of the weights at which growth stops; 0 is no limit", low=0.0, high=1e6
    )
    mem_frac: float = _key(0.95, "share of the memory budget at which growth stops", above=0.0, high=1.0)
    birth_gate: float = _key(0.001, "gate of a newborn expert", low=0.0, high=1.0)


@dataclass(frozen=True)
class Prune:
    """When experts die."""

    survival_chars: int = _key(
        100_000_000, "characters an expert may go unused before it is deleted", low=1, high=_MANY
    )
    dying_at: float = _key(0.65, "share of that time after which it counts as dying", above=0.0, high=1.0)


@dataclass(frozen=True)
class Data:
    """What is read and where things are kept."""

    train: Path = _key("data/train", "what is read when no path is given", path=True)
    held_out: Path = _key(
        "data/val", "held-out text; taken from what is read where this is absent", path=True
    )
    weights: Path = _key("weights", "the directory that is the model", path=True)
    shuffle_seed: int = _key(0, "seed of the order of reading", low=0, high=2**63 - 1)
    passage: int = _key(32_768, "characters read in one visit to a file", low=1, high=1_000_000_000)
    eval_chars: int = _key(122_880, "held-out characters measured at a time", low=1, high=1_000_000_000)
    history: Path = _key(
        "runs/history.jsonl", "file with a line a checkpoint; other records lie beside it", path=True
    )


@dataclass(frozen=True)
class Decoding:
    """How replies are written."""

    adapt_strength: float = _key(
        2.5, "how strongly recent characters are held back; 0 is off", low=0.0, high=1_000.0
    )
    adapt_decay: float = _key(0.88, "how slowly that wears off", low=0.0, high=1.0)
    rep_penalty: float = _key(1.0, "penalty on characters already present; 1 is off", above=0.0, high=100.0)
    reply_chars: int = _key(400, "characters of a reply in the app, at most", low=1, high=1_000_000)


@dataclass(frozen=True)
class Plots:
    """The charts."""

    enabled: bool = _key(
        True, "draw: the app's loss chart, and with matplotlib pictures of a run", flag="plots"
    )
    last: float = _key(
        100.0, "millions of characters the recent view spans", flag="plots-last", above=0.0, high=1e9
    )


@dataclass(frozen=True)
class Hardware:
    """What the machine is, where it cannot be told by looking."""

    gpu_mem_gb: float | None = _key(
        None, "memory budget of growth, in GB; set it on an APU", above=0.0, high=1e6
    )
    unified: bool | None = _key(None, "processor and GPU share memory; detected when not set (no use yet)")
    ram_tier_on_gpu: bool | None = _key(
        None, "keep the RAM tier in device memory; follows unified (not in this release)"
    )
    expandable_segments: bool = _key(True, "let the GPU's allocator grow its segments")
    rocm_aotriton: bool = _key(False, "use AOTriton's attention on AMD GPUs it is experimental on")
    tunableop: bool = _key(False, "let AMD GPUs time matrix products and keep the fastest")


@dataclass(frozen=True)
class Ui:
    """The terminal app."""

    theme: str = _key("textual-dark", "colours: a theme of Textual's, ansi ones included")
    keys: Mapping[str, str] = _key({}, "keys by action, as in {pause: space}")
    refresh_hz: float = _key(10.0, "times a second the figures are drawn at most", above=0.0, high=60.0)
    chart_hz: float = _key(3.0, "times a second the charts are drawn at most", above=0.0, high=30.0)
    chat_hz: float = _key(20.0, "times a second a reply is drawn at most", above=0.0, high=60.0)
    notifications: bool = _key(True, "bell and window title when something happens out of sight")


@dataclass(frozen=True)
class Settings:
    """All settings in effect, by section. Immutable; `dataclasses.replace` makes another."""

    model: Model = field(default_factory=Model)
    pool: Pool = field(default_factory=Pool)
    training: Training = field(default_factory=Training)
    growth: Growth = field(default_factory=Growth)
    prune: Prune = field(default_factory=Prune)
    data: Data = field(default_factory=Data)
    decoding: Decoding = field(default_factory=Decoding)
    plots: Plots = field(default_factory=Plots)
    hardware: Hardware = field(default_factory=Hardware)
    ui: Ui = field(default_factory=Ui)


@dataclass(frozen=True)
class Key:
    """One setting of the table: `kind` is int, float, bool, str, Path or Mapping."""

    section: str
    name: str
    kind: type
    optional: bool  # may be null
    default: Any
    rule: Rule
    doc: str
    flag: str  # of the command line, without the dashes in front

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"MINAGI_{self.section}_{self.name}".upper()

    def allowed(self) -> str:
        """What may be given, in words that finish the sentence 'it must be …'."""
        rule, low, high = self.rule, self.rule.low, self.rule.high
        if rule.choices:
            return "one of " + ", ".join(rule.choices)
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        said = words.get(self.kind) or ("a path" if self.kind is Path else "a mapping of names to texts")
        if low is not None and high is not None:
            said += f" from {_shown(low)} to {_shown(high)}"
        elif rule.above is not None and high is not None:
            said += f" above {_shown(rule.above)}, at most {_shown(high)}"
        return said + (", or null" if self.optional else "")


def _shown(number: float) -> str:
    return f"{number:,.0f}".replace(",", "_") if math.floor(number) == number else f"{number:g}"


def _table() -> dict[str, Key]:
    table = {}
    for section, cls in get_type_hints(Settings).items():
        hints = get_type_hints(cls)
        for spec in dataclasses.fields(cls):
            kinds = [k for k in getattr(hints[spec.name], "__args__", ()) if k is not type(None)]
            optional = type(None) in getattr(hints[spec.name], "__args__", ())
            kind = kinds[0] if optional else hints[spec.name]
            kind = Mapping if getattr(kind, "__origin__", None) is not None else kind
            default = {} if spec.default is dataclasses.MISSING else spec.default
            flag = spec.metadata["flag"] or spec.name.replace("_", "-")
            key = Key(
                section, spec.name, kind, optional, default, spec.metadata["rule"], spec.metadata["doc"], flag
            )
            table[key.path] = key
    return table


KEYS: Mapping[str, Key] = MappingProxyType(_table())  # "section.key" -> Key, in order of config.yaml
SECTIONS: Mapping[str, type] = MappingProxyType(get_type_hints(Settings))
REFUSED: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("lr_horizon", "lr_warmup", "lr_floor"),
        "the learning rate follows the held-out text and not a schedule, so there is nothing to set; "
        "leave this key out",
    )
)
