"""Births and deaths: when they are decided, what decides them, and why not, in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from minagi.config import Settings
from minagi.errors import WeightsError
from minagi.finite import count
from minagi.pool import brakes
from minagi.pool.lifetime import Lifetime, survival_texts
from minagi.protocol import Growth
from minagi.training.engine import Engine
from minagi.training.progress import Progress

SENTENCE_MAX = 1_000  # characters of a decision that are taken over


class Selection:
    """Decides growth and pruning every `growth.every_chars`; applies what it decided to the engine."""

    def __init__(
        self, engine: Engine, settings: Settings, seed: int, chunk: Callable[[], int], pool_max: int = 0
    ) -> None:
        """`chunk` gives the characters a step reads now. At `pool_max` experts growth ends; 0 is no limit."""
        self.engine, self.seed, self._chunk, self._pool_max = engine, seed, chunk, pool_max
        self.growth, self.prune = settings.growth, settings.prune
        self.limits = brakes.Limits(
            self.growth.k, self.growth.max_gap, self.growth.dying_frac_max, self.growth.max_in_flight,
            self.growth.keep_ratio_min, self.growth.recent_mult, self.growth.max_disk_gb,
            self.growth.mem_frac, self.prune.dying_at,
        )  # fmt: skip
        self.last: dict[str, Any] = {}  # the last decision: chars and sentence
        self.parents: dict[int, list[int]] = {}  # uid -> parents' uids, of those born in this session

    def lifetime(self, step: int) -> Lifetime:
        """Ages and staleness now, at optimiser step `step`."""
        telemetry = self.engine.pool.telemetry
        return Lifetime(
            telemetry,
            survival_texts(self.prune.survival_chars, self._chunk(), telemetry.segments, step),
        )

    def due(self, progress: Progress) -> bool:
        return progress.chars - progress.grown_chars >= self.growth.every_chars

    def remember(self, held: Any) -> None:
        """Take over the last decision from what a manifest holds; whatever makes no sense is none."""
        last = held if isinstance(held, dict) else {}
        sentence = last.get("sentence")
        sentence = sentence[:SENTENCE_MAX] if isinstance(sentence, str) else ""
        self.last = {"chars": count(last.get("chars")), "sentence": sentence} if sentence else {}

    def waiting(self, progress: Progress) -> Growth:
        """What there is to say before anything was decided in this session: the last decision before it."""
        due = progress.grown_chars + self.growth.every_chars
        what = "whether an expert is born or dies" if self.growth.k else "whether an expert dies"
        sentence = f"It is decided every {self.growth.every_chars:,} characters {what}."
        if self.last:
            sentence = f"Last decided at {self.last['chars']:,} characters: {self.last['sentence']}"
        return Growth(
            at=time.time(),
            step=progress.step,
            chars=progress.chars,
            sentence=sentence,
            next_at_chars=due,
        )

    def decide(self, progress: Progress, gap: float | None) -> Growth:
        """Prune, then grow if every brake is off. `gap` is held-out minus train in nats."""
        progress.grown_chars = progress.chars
        engine = self.engine
        doomed = self.lifetime(progress.step).to_prune(set(engine.pool.resident()))
        pruned = engine.population.prune(doomed) if doomed else []
        born: dict[int, list[int]] = {}
        why = self._refusal(progress, gap)
        if not why:
            rng = np.random.default_rng((self.seed, progress.chars))
            try:
                for _ in range(self.growth.k):
                    born |= engine.population.grow(1, self.growth.birth_gate, rng)
            except WeightsError as error:  # a full disk is no reason to end a run that fits into memory
                why = str(error)
            self.parents |= born
        sentence = _sentence(list(born), pruned, why, engine.pool.experts)
        self.last = {"chars": progress.chars, "sentence": sentence}
        return Growth(
            at=time.time(),
            step=progress.step,
            chars=progress.chars,
            born=list(born),
            pruned=pruned,
            sentence=sentence,
            next_at_chars=progress.chars + self.growth.every_chars,
        )

    def _refusal(self, progress: Progress, gap: float | None) -> str:
        if not self.growth.k:
            return "Growth is off (growth.k is 0)."
        if self._pool_max and self.engine.pool.experts + self.growth.k > self._pool_max:
            return f"More than {self._pool_max} are not wanted (--pool-max)."
        hardware = self.engine.hardware
        situation = brakes.Situation(
            self.engine.model_bytes,
            self.engine.expert_bytes,
            hardware.memory_used(),
            hardware.memory_budget,
            gap,
        )
        return brakes.refusal(self.limits, self.lifetime(progress.step), situation)


def _sentence(born: list[int], pruned: list[int], why: str, experts: int) -> str:
    parts = []
    if pruned:
        parts.append(f"{_named(pruned)} went unused for the whole survival time and was deleted.")
    if born:
        parts.append(f"{_named(born)} was born; the pool has {experts} experts.")
    else:
        parts.append(f"The pool stays at {experts} experts. {why}")
    return " ".join(parts)


def _named(uids: list[int]) -> str:
    if len(uids) == 1:
        return f"Expert {uids[0]}"
    return "Each of the experts " + ", ".join(map(str, uids[:-1])) + f" and {uids[-1]}"
