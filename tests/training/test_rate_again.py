"""The learning-rate controller against a second one, written from the rules alone and without its arithmetic.

This one keeps every reading and fits straight lines to all of them anew each time.
"""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest

from minagi.training.rate import RateControl


class Again:
    """The rules, one after another. `readings` are (index, nats) since the last regime began."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.begin()

    def begin(self) -> None:
        self.readings: list[tuple[int, float]] = []
        self.errors: list[float] = []
        self.verdicts: list[float] = []
        self.next = self.harm = self.settled = self.no_rise = 0
        self.last: float | None = None
        self.aside = False

    def fit(self, decay: float) -> tuple[float, float, float] | None:
        """(n, t, e) of a weighted line through everything; None without evidence."""
        x, y = np.array(self.readings, float).T
        w = decay ** np.arange(len(x) - 1, -1, -1.0)
        n = w.sum() ** 2 / (w**2).sum()
        if n <= 2:
            return None
        slope, level = np.polyfit(x, y, 1, w=np.sqrt(w))
        scatter = math.sqrt((w * (y - level - slope * x) ** 2).sum() / w.sum() * n / (n - 2))
        se = scatter / math.sqrt(n * (w * (x - np.average(x, weights=w)) ** 2).sum() / w.sum())
        return n, -slope / se, -slope / scatter

    def line(self, decay: float, at: int) -> float:
        x, y = np.array(self.readings, float).T
        slope, level = np.polyfit(x, y, 1, w=np.sqrt(decay ** np.arange(len(x) - 1, -1, -1.0)))
        return float(level + slope * at)

    def take(self, nats: float, stderr: float) -> None:
        self.readings.append((self.next, nats))
        self.errors = [*self.errors, stderr][-36:]
        self.next, self.last = self.next + 1, nats

    def observe(self, nats: float, stderr: float, steps: int) -> str:
        if steps < 32:
            return "no-evidence"
        if self.aside:
            self.aside = False
            assert self.last is not None
            if nats > self.last + 2 * stderr:
                self.factor = min(1.0, 2 * self.factor)
                self.begin()
                self.take(nats, stderr)
                return "regime"
        elif self.last is not None and nats - self.last > max(4 * float(np.median(self.errors)), 0.25):
            self.aside = True
            return "set-aside"
        self.take(nats, stderr)
        return self.move()

    def move(self) -> str:
        rest, self.no_rise = self.no_rise > 0, max(0, self.no_rise - 1)
        slow, fast = self.fit(0.97), self.fit(0.85)
        if slow is None:
            return "hold"
        assert fast is not None
        v = min(slow[1], 45 * slow[2], *([45 * fast[2]] if fast[0] >= 12 else []))
        v = max(-50.0, min(50.0, v))
        self.verdicts = [*self.verdicts, v][-4:]
        harm = slow[1] < -2 and (fast[0] < 12 or 45 * fast[2] < -2)
        self.harm = self.harm + 1 if harm else 0
        if slow[0] < 12:
            return "hold"
        if self.harm >= 2:
            self.settled, self.no_rise = 0, 12
            self.factor = max(0.01, self.factor * math.exp(-0.025 * math.tanh((2.2 - v) / 6)))
            return "fall"
        weakest = min(self.verdicts)
        rise = 0.0
        if weakest >= 2.2:
            rise = 0.004 + 0.005 * math.tanh((weakest - 2.2) / 0.75)
        elif weakest > 1.0:
            rise = 0.004 * (weakest - 1.0) / 1.2
        if rise > 0 and not rest and self.factor < 1:
            self.settled = 0
            self.factor = min(1.0, self.factor * math.exp(rise))
            return "rise"
        self.settled = self.settled + 1 if slow[2] * slow[0] < 1 and not harm else 0
        if self.settled >= 36:
            self.no_rise = 36
            self.factor = max(0.01, self.factor * math.exp(-0.002))
            return "ease"
        return "hold"


def life(seed: int) -> list[tuple[float, float, int]]:
    """Readings (nats, stderr, steps) of a run: stretches that improve, stay and get worse, more or less
    noisily, with broken readings, jumps that stay, and readings that come too soon."""
    rng = random.Random(seed)
    told: list[tuple[float, float, int]] = []
    level = 3.0
    while len(told) < 260:
        slope = rng.choice((-0.01, -0.002, -0.0005, 0.0, 0.0, 0.0005, 0.003))
        noise, stderr = rng.choice((0.003, 0.01, 0.03)), rng.choice((0.005, 0.02, 0.08))
        for _ in range(rng.choice((15, 40, 80))):
            level += slope
            nats = level + rng.gauss(0, noise)
            told.append((nats, stderr * rng.uniform(0.5, 1.5), rng.choice((31, 32, 500, 500, 500))))
        event = rng.random()
        if event < 0.3:
            told.append((level + rng.uniform(0.2, 2), stderr, 500))
        elif event < 0.5:
            level += rng.uniform(0.3, 1)
    return told


SEEN: dict[int, Counter[str]] = {}  # by seed: those that this process has run


@pytest.mark.parametrize("seed", range(12))
def test_every_move_is_the_one_the_rules_give(seed: int) -> None:
    factor = random.Random(seed).choice((0.02, 0.3, 0.97))
    control, again = RateControl(factor), Again(factor)
    seen = SEEN[seed] = Counter()
    for number, reading in enumerate(life(seed)):
        kind = again.observe(*reading)
        move = control.observe(*reading)
        seen[kind] += 1
        assert (move.kind, move.factor) == (kind, pytest.approx(again.factor, rel=1e-9)), number
        if move.verdict is not None:
            assert move.verdict == pytest.approx(again.verdicts[-1], rel=1e-6)


def test_those_runs_see_every_kind_of_move() -> None:
    for seed in set(range(12)) - SEEN.keys():
        test_every_move_is_the_one_the_rules_give(seed)
    seen = sum(SEEN.values(), Counter())
    assert min(seen[kind] for kind in ("rise", "fall", "ease", "hold", "set-aside", "regime")) >= 5, seen


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", [0, 500])
@pytest.mark.parametrize("jump", [-0.3, 0.02, 1.0])
def test_after_a_restart_both_lines_are_lifted_to_the_first_reading(
    seed: int, steps: int, jump: float
) -> None:
    """The reading stands where the last one stood if nothing was trained since, else in a place of its own;
    it moves nothing, and what follows is judged by lines of the old slope at the new height."""
    rng = random.Random(seed)
    readings = [3 - 0.003 * i + rng.gauss(0, 0.01) for i in range(70)]
    control, again = RateControl(0.5), Again(0.5)
    for nats in readings[:30]:
        control.observe(nats, 0.01, 500)
        again.observe(nats, 0.01, 500)
    control.load_state(control.state_dict())
    first = readings[30] + jump
    assert control.observe(first, 0.01, steps).kind == "relevel"
    at = again.next if steps else again.next - 1
    lifts = {decay: first - again.line(decay, at) for decay in (0.97, 0.85)}
    again.next, again.last = at + 1, first
    before = list(again.readings)
    plain_fit = again.fit

    def lifted(decay: float) -> tuple[float, float, float] | None:
        kept = again.readings
        again.readings = [(x, y + lifts[decay]) for x, y in before] + kept[len(before) :]
        found = plain_fit(decay)
        again.readings = kept
        return found

    again.fit = lifted  # type: ignore[method-assign]
    for number, nats in enumerate(readings[31:]):
        kind = again.observe(nats + jump, 0.01, 500)
        move = control.observe(nats + jump, 0.01, 500)
        assert (move.kind, move.factor) == (kind, pytest.approx(again.factor, rel=1e-9)), number
