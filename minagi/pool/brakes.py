"""Five brakes on growth. All must be off; each says in one sentence why it is on."""

from __future__ import annotations

from dataclasses import dataclass

from minagi.pool.lifetime import Lifetime
from minagi.units import LN2

GB = 1e9


@dataclass(frozen=True)
class Limits:
    """The settings of section `growth`, and `dying_at` of section `prune`."""

    k: int
    max_gap: float
    dying_frac_max: float
    max_in_flight: int
    keep_ratio_min: float
    recent_mult: float
    max_disk_gb: float
    mem_frac: float
    dying_at: float


@dataclass(frozen=True)
class Situation:
    """What the brakes look at beside the pool itself. Sizes in bytes; `gap` held-out minus train in nats."""

    disk: int
    expert_disk: int  # what one more expert adds on disk
    memory: int
    memory_budget: int
    gap: float | None


def refusal(limits: Limits, lifetime: Lifetime, now: Situation) -> str:
    """Why the pool may not grow now, or ""."""
    brakes = (_room, _used, _earning, _fits, _honest)
    return next((sentence for brake in brakes if (sentence := brake(limits, lifetime, now))), "")


def _room(limits: Limits, lifetime: Lifetime, now: Situation) -> str:
    needed = now.disk + limits.k * now.expert_disk
    if limits.max_disk_gb and needed > limits.max_disk_gb * GB:
        return (
            f"No room on disk: the weights would take {needed / GB:.2f} GB of the {limits.max_disk_gb:g} GB "
            "that growth.max_disk_gb allows."
        )
    if now.memory_budget and now.memory > limits.mem_frac * now.memory_budget:
        return (
            f"No room in memory: {now.memory / GB:.2f} GB of {now.memory_budget / GB:.2f} GB are in use, "
            f"more than the {limits.mem_frac:.0%} that growth.mem_frac allows."
        )
    return ""


def _used(limits: Limits, lifetime: Lifetime, now: Situation) -> str:
    dying = lifetime.dying(limits.dying_at)
    if dying.mean() > limits.dying_frac_max:
        return (
            f"The pool is not used: {int(dying.sum())} of {len(dying)} experts are dying, more than the "
            f"{limits.dying_frac_max:.0%} that growth.dying_frac_max allows."
        )
    return ""


def _earning(limits: Limits, lifetime: Lifetime, now: Situation) -> str:
    kept = lifetime.kept_ratio(limits.dying_at, limits.recent_mult)
    if kept < limits.keep_ratio_min:
        return (
            f"Newborn experts do not earn their place: {kept:.0%} of the recent ones are still used, fewer "
            f"than the {limits.keep_ratio_min:.0%} that growth.keep_ratio_min asks for."
        )
    return ""


def _fits(limits: Limits, lifetime: Lifetime, now: Situation) -> str:
    trying = int(lifetime.in_trial.sum())
    if trying + limits.k > limits.max_in_flight:
        return (
            f"Enough newborns for now: {trying} are in their trial, and growth.max_in_flight allows "
            f"{limits.max_in_flight}."
        )
    return ""


def _honest(limits: Limits, lifetime: Lifetime, now: Situation) -> str:
    if limits.max_gap and now.gap is not None and now.gap >= limits.max_gap:
        return (
            f"More experts would only learn by heart: held-out loss is {now.gap / LN2:.2f} bits above train "
            f"loss, and growth.max_gap allows {limits.max_gap / LN2:.2f} "
            f"(the setting counts in nats: {limits.max_gap:g})."
        )
    return ""
