"""Five brakes on growth, each with its sentence; all must be off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minagi.pool import Telemetry
from minagi.pool.brakes import Limits, Situation, refusal
from minagi.pool.lifetime import Lifetime

LIMITS = Limits(
    k=2, max_gap=0.4, dying_frac_max=0.5, max_in_flight=3, keep_ratio_min=0.5, recent_mult=4.0,
    max_disk_gb=10.0, mem_frac=0.9, dying_at=0.65,
)  # fmt: skip
NOW = Situation(disk=10**9, expert_disk=10**8, memory=10**9, memory_budget=10**10, gap=0.1)


def life(born: list[int] | None = None, seen: list[int] | None = None, survival: float = 10) -> Lifetime:
    telemetry = Telemetry(4)
    telemetry.segments = 100
    telemetry.born = np.array(born or [0] * 4, float)
    telemetry.last_seen = np.array(seen or [100] * 4, float)
    return Lifetime(telemetry, survival)


def test_nothing_stands_in_the_way() -> None:
    assert refusal(LIMITS, life(), NOW) == ""
    assert refusal(LIMITS, life(), replace(NOW, gap=None)) == ""


def test_room_on_disk() -> None:
    full = replace(NOW, disk=int(9.9e9))
    sentence = refusal(LIMITS, life(), full)
    assert "disk" in sentence and "10.10 GB" in sentence and "growth.max_disk_gb" in sentence
    assert refusal(LIMITS, life(), replace(NOW, disk=int(9.8e9))) == ""  # both newborns just fit
    assert refusal(replace(LIMITS, max_disk_gb=0), life(), full) == ""


def test_room_in_memory() -> None:
    assert "memory" in refusal(LIMITS, life(), replace(NOW, memory=int(9.1e9)))
    assert refusal(LIMITS, life(), replace(NOW, memory=int(9.0e9))) == ""
    assert refusal(LIMITS, life(), replace(NOW, memory=10**12, memory_budget=0)) == ""


def test_used() -> None:
    assert refusal(LIMITS, life(seen=[100, 100, 0, 0]), NOW) == ""
    sentence = refusal(LIMITS, life(seen=[100, 0, 0, 0]), NOW)
    assert "3 of 4 experts are dying" in sentence and "50%" in sentence


def test_earning() -> None:
    recent = life(born=[80, 80, 80, 0], seen=[100, 80, 80, 100])
    assert "earn" in refusal(replace(LIMITS, dying_frac_max=1), recent, NOW)
    assert refusal(replace(LIMITS, dying_frac_max=1, keep_ratio_min=0.3), recent, NOW) == ""


def test_fits() -> None:
    assert refusal(LIMITS, life(born=[0, 0, 0, 95]), NOW) == ""
    sentence = refusal(LIMITS, life(born=[0, 0, 95, 95]), NOW)
    assert "2 are in their trial" in sentence and "growth.max_in_flight" in sentence


@pytest.mark.parametrize(
    ("gap", "held"), [(0.39, False), (0.4, True), (0.9, True), (-1.0, False), (None, False)]
)
def test_honest(gap: float | None, held: bool) -> None:
    assert bool(refusal(LIMITS, life(), replace(NOW, gap=gap))) is held
    assert refusal(replace(LIMITS, max_gap=0), life(), replace(NOW, gap=gap)) == ""


def test_every_refusal_is_one_plain_sentence() -> None:
    refusals = [
        refusal(LIMITS, life(), replace(NOW, disk=10**12)),
        refusal(LIMITS, life(), replace(NOW, memory=10**12)),
        refusal(LIMITS, life(seen=[0] * 4), NOW),
        refusal(replace(LIMITS, dying_frac_max=1), life(born=[80] * 4, seen=[80] * 4), NOW),
        refusal(LIMITS, life(born=[99] * 4, seen=[99] * 4), NOW),
        refusal(LIMITS, life(), replace(NOW, gap=2.0)),
    ]
    assert len(set(refusals)) == 6
    for sentence in refusals:
        assert sentence[0].isupper() and sentence.endswith(".") and "\n" not in sentence
        assert len(sentence) < 200 and "None" not in sentence and "nan" not in sentence
