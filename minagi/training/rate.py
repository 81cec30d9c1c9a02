"""The learning rate follows held-out, not a schedule: one factor in [0.01, 1] over every group's rate.

Each held-out reading is judged against two exponentially weighted straight-line fits, a slow one that
knows the trend and a fast one that knows the present. Steady improvement raises the factor by well
under one percent a reading, lasting harm lowers it by up to two and a half, a long plateau eases it.
Readings that cannot be compared (too few steps apart, not finite, one broken measurement, the first
one after a restart) never move it. No clock, no tensors: numbers in, one `RateMove` out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any

from minagi.finite import number
from minagi.units import LN2

WARMUP_STEPS = 100  # optimiser steps of a model's life
FACTOR_MIN, FACTOR_MAX = 0.01, 1.0
SLOW_DECAY, FAST_DECAY = 0.97, 0.85
NATS_MAX = 1e6  # a reading beyond it is not a measurement
STEPS_MIN = 32  # optimiser steps between two readings, or the later one is no evidence
OBSERVATIONS_MIN = 12.0  # effective; below it the slow fit moves nothing and the fast one is not asked
PER_SCATTER = 45.0  # weighs a slope counted in scatters against a t statistic
VERDICT_MAX = 50.0
WEAKEST_OF = 4  # verdicts; a rise is sized by the weakest of them
REST_AFTER_FALL = 12  # readings without a rise
SETTLED_AFTER = 36  # readings of plateau until the factor eases; as many without a rise
SETTLE_STEP = 0.002  # log units a reading
JUMP_SE, JUMP_MIN = 4.0, 0.25  # a reading this far above the one before is set aside
STAYS_SE = 2.0  # standard errors above the reading before a jump that confirm it
ERRORS_KEPT = 36  # standard errors remembered for their median
TOLD_STEP = math.log(1.1)  # small moves are worth telling once they add up to this


@dataclass(frozen=True)
class Trend:
    """What one fit says: `t` = −slope/se(slope), `e` = −slope/residual scatter, `n` effective readings.

    Positive is improving. `t` and `e` are None where the fit gives no evidence.
    """

    n: float
    t: float | None = None
    e: float | None = None


@dataclass
class Fit:
    """Exponentially weighted least squares of held-out (nats) against the index of the reading.

    Weighted means and centred sums are carried instead of raw sums, so that a model read for weeks
    loses no digits. `weight2` is the sum of squared weights: n = weight²/weight2 (Kish).
    """

    decay: float
    weight: float = 0.0
    weight2: float = 0.0
    x: float = 0.0
    y: float = 0.0
    sxx: float = 0.0
    sxy: float = 0.0
    syy: float = 0.0

    def add(self, x: float, y: float) -> None:
        """Take reading `y` at index `x`; everything before it counts `decay` as much as it did."""
        d = self.decay
        self.weight = d * self.weight + 1.0
        self.weight2 = d * d * self.weight2 + 1.0
        dx, dy = x - self.x, y - self.y
        self.x += dx / self.weight
        self.y += dy / self.weight
        self.sxx = d * self.sxx + dx * (x - self.x)
        self.sxy = d * self.sxy + dx * (y - self.y)
        self.syy = d * self.syy + dy * (y - self.y)

    @property
    def slope(self) -> float:
        """Nats a reading."""
        return self.sxy / self.sxx if self.sxx > 0 else 0.0

    def relevel(self, x: float, y: float) -> float:
        """Lift the whole line to pass through (x, y), slope and scatter kept. Returns the step in nats."""
        step = y - (self.y + self.slope * (x - self.x))
        self.y += step
        return step

    def trend(self) -> Trend:
        """The fit's evidence; none of it below two effective readings or without scatter."""
        if self.weight2 <= 0:
            return Trend(0.0)
        n = self.weight**2 / self.weight2
        if n <= 2 or self.sxx <= 0:
            return Trend(n)
        residual = (self.syy - self.slope * self.sxy) / self.weight
        # What rounding leaves of a perfect line is not scatter.
        if residual <= 1e-24 * max(1.0, self.y**2) + 1e-12 * self.syy / self.weight:
            return Trend(n)
        scatter = math.sqrt(residual * n / (n - 2))
        se = scatter / math.sqrt(n * self.sxx / self.weight)
        return Trend(n, -self.slope / se, -self.slope / scatter)


@dataclass(frozen=True)
class RateMove:
    """What was made of one reading. `verdict` is None where there was none to give.

    `kind`: rise | fall | ease | hold | regime | set-aside | relevel | no-evidence.
    """

    factor: float
    verdict: float | None
    sentence: str
    notable: bool  # worth a line in the log
    kind: str = "hold"


def rise_of(verdict: float) -> float:
    """Log units a verdict raises the factor by; 0 up to 1.0."""
    if verdict >= 2.2:
        return 0.004 + 0.005 * math.tanh((verdict - 2.2) / 0.75)
    return 0.004 * max(0.0, verdict - 1.0) / 1.2


def fall_of(verdict: float) -> float:
    """Log units a verdict below −2 lowers the factor by."""
    return 0.025 * math.tanh((2.2 - verdict) / 6.0)


class RateControl:
    """Owner of the factor and of the evidence behind it. `observe` is called once a held-out reading."""

    def __init__(self, factor: float = 1.0) -> None:
        self._begin(factor)

    def _begin(self, factor: float) -> None:
        self.factor = min(max(factor, FACTOR_MIN), FACTOR_MAX)
        self._told = self.factor  # the factor last told in a notable sentence
        self._forget()

    def _forget(self) -> None:
        """Start both fits, and everything counted in readings, from nothing."""
        self._restarted = False  # the next reading is the first after a restart
        self._slow, self._fast = Fit(SLOW_DECAY), Fit(FAST_DECAY)
        self._index = 0  # of the next reading
        self._last: float | None = None  # the last accepted reading
        self._aside: float | None = None  # a jump that waits for the reading after it
        self._errors: list[float] = []
        self._verdicts: list[float] = []
        self._harmful = 0  # readings running that showed harm
        self._settled = 0  # readings running on a plateau
        self._rest = 0  # readings to come without a rise

    @staticmethod
    def warmup(step: int) -> float:
        """Multiplier beside the factor at optimiser step `step` of a model's life, 0 the first."""
        return min(1.0, (max(step, 0) + 1) / WARMUP_STEPS)

    def halve(self) -> None:
        """Half the rate, for a run that had to go back. What was observed stays."""
        self.factor = max(FACTOR_MIN, self.factor / 2)
        self._told = self.factor

    def reset(self) -> None:
        """Full rate again, its evidence forgotten: it was gathered at another rate."""
        self._begin(FACTOR_MAX)

    def observe(self, nats: float, stderr: float, steps_since_last: int) -> RateMove:
        """Judge one held-out reading and move the factor.

        nats: the mean loss of the held-out text; stderr: its standard error (0 or non-finite when
        unknown); steps_since_last: optimiser steps since the reading before, in this session or not.
        """
        if not abs(nats) < NATS_MAX:
            return self._keep("no-evidence", "The held-out reading is not a usable number; the rate stays.")
        stderr = stderr if math.isfinite(stderr) and stderr > 0 else 0.0
        enough = steps_since_last >= STEPS_MIN
        if self._restarted:
            return self._relevel(nats, stderr, enough)
        if not enough:
            return self._keep(
                "no-evidence",
                f"Only {steps_since_last} steps since the last held-out reading; the rate stays.",
            )
        note = ""
        if self._aside is not None and self._last is not None:
            if nats > self._last + STAYS_SE * stderr:
                return self._new_regime(nats, stderr)
            note = f"The held-out reading of {self._aside:.3f} before this one was a bad measurement. "
            self._aside = None
        elif self._last is not None and self._is_jump(nats - self._last):
            self._aside = nats
            return self._keep(
                "set-aside",
                f"Held-out jumped from {self._last / LN2:.3f} to {nats / LN2:.3f} bits a character; set "
                "aside until the next reading.",
                notable=True,
            )
        return self._judge(nats, stderr, note)

    def _is_jump(self, rise: float) -> bool:
        return rise > max(JUMP_SE * median(self._errors) if self._errors else 0.0, JUMP_MIN)

    def _relevel(self, nats: float, stderr: float, enough: bool) -> RateMove:
        """First reading after a restart: the step since the last session is nobody's doing."""
        self._restarted, self._aside = False, None
        # A reading taken before any step stands where the last one stood, a later one has its own place.
        at = self._index if enough else self._index - 1
        step = self._slow.relevel(at, nats)
        self._fast.relevel(at, nats)
        self._index = at + 1
        self._last = nats
        return self._keep(
            "relevel",
            "The first held-out reading of a session moves no rate; the next ones are judged from it.",
            notable=abs(step) > max(STAYS_SE * stderr, 0.01),
        )

    def _new_regime(self, nats: float, stderr: float) -> RateMove:
        """The jump stayed: other text, other ground. Learn faster, and judge from here on."""
        before = (self._last or 0.0) / LN2
        self.factor = self._told = min(FACTOR_MAX, 2 * self.factor)
        self._forget()
        self._take(nats, stderr)
        return RateMove(
            self.factor,
            None,
            f"Held-out stayed above its {before:.3f} bits a character of before the jump "
            f"({nats / LN2:.3f} now): a new regime; the rate goes to {self.factor:.2f} of full and is "
            "judged afresh.",
            True,
            "regime",
        )

    def _take(self, nats: float, stderr: float) -> None:
        self._slow.add(self._index, nats)
        self._fast.add(self._index, nats)
        self._index += 1
        self._last = nats
        if stderr > 0:
            self._errors = [*self._errors, stderr][-ERRORS_KEPT:]

    def _judge(self, nats: float, stderr: float, note: str) -> RateMove:
        """An ordinary reading: verdict, then at most one move."""
        self._take(nats, stderr)
        slow, fast = self._slow.trend(), self._fast.trend()
        verdict = _verdict(slow, fast)
        resting = self._rest > 0
        self._rest = max(0, self._rest - 1)
        if verdict is None or slow.t is None or slow.e is None:
            self._harmful = self._settled = 0
            return self._keep("hold", note + "No evidence yet to move the rate by.", notable=bool(note))
        self._verdicts = [*self._verdicts, verdict][-WEAKEST_OF:]
        harm = slow.t < -2 and (fast.n < OBSERVATIONS_MIN or (fast.e or 0.0) * PER_SCATTER < -2)
        self._harmful = self._harmful + 1 if harm else 0
        if slow.n < OBSERVATIONS_MIN:
            return self._keep(
                "hold",
                note + f"{slow.n:.0f} of {OBSERVATIONS_MIN:.0f} readings needed before the rate moves.",
                verdict,
                notable=bool(note),
            )
        before = self.factor
        if self._harmful >= 2:
            self._settled, self._rest = 0, REST_AFTER_FALL
            self._scale(-fall_of(verdict))
            return self._told_move("fall", before, verdict, note, "held-out is getting worse")
        rise = rise_of(min(self._verdicts))
        if rise > 0 and not resting and before < FACTOR_MAX:
            self._settled = 0
            self._scale(rise)
            return self._told_move("rise", before, verdict, note, "held-out keeps improving")
        self._settled = self._settled + 1 if slow.e * slow.n < 1 and not harm else 0
        if self._settled >= SETTLED_AFTER:
            self._rest = SETTLED_AFTER
            self._scale(-SETTLE_STEP)
            return self._told_move("ease", before, verdict, note, "held-out has settled")
        return self._keep("hold", note + _why_held(verdict, resting, before), verdict, notable=bool(note))

    def _scale(self, log_units: float) -> None:
        self.factor = min(FACTOR_MAX, max(FACTOR_MIN, self.factor * math.exp(log_units)))

    def _told_move(self, kind: str, before: float, verdict: float, note: str, why: str) -> RateMove:
        """A move's sentence. Notable: a first fall, a first easing, a bound reached, ten percent since."""
        word = {"rise": "raised", "fall": "lowered", "ease": "eased"}[kind]
        first = (kind == "fall" and self._harmful == 2) or (kind == "ease" and self._settled == SETTLED_AFTER)
        bound = self.factor in (FACTOR_MIN, FACTOR_MAX) and self.factor != before
        drifted = abs(math.log(self.factor / self._told)) >= TOLD_STEP
        notable = bool(note) or first or bound or drifted
        if notable:
            self._told = self.factor
        sentence = f"{note}Rate {word} to {self.factor:.3f} of full: {why} (evidence {verdict:+.1f})."
        return RateMove(self.factor, verdict, sentence, notable, kind)

    def _keep(
        self, kind: str, sentence: str, verdict: float | None = None, notable: bool = False
    ) -> RateMove:
        return RateMove(self.factor, verdict, sentence, notable, kind)

    def state_dict(self) -> dict[str, Any]:
        """Everything a later session goes on from, as plain JSON."""
        return {
            "factor": self.factor,
            "slow": asdict(self._slow),
            "fast": asdict(self._fast),
            "index": self._index,
            "last": self._last,
            "aside": self._aside,
            "errors": list(self._errors),
            "verdicts": list(self._verdicts),
            "harmful": self._harmful,
            "settled": self._settled,
            "rest": self._rest,
        }

    def load_state(self, state: Mapping[str, Any] | None, restarted: bool = True) -> None:
        """Go on from `state_dict()`. After a restart the next reading re-levels the fits; a run that goes
        back to a checkpoint of its own measures the same text and goes on as it went on then.

        A state that is missing or written by another program gives its factor if it has one, and no
        evidence: a run is never refused over it.
        """
        state = state if isinstance(state, Mapping) else {}
        self._begin(_number(state.get("factor"), 1.0))
        slow, fast = _fit(state.get("slow"), SLOW_DECAY), _fit(state.get("fast"), FAST_DECAY)
        last = _number(state.get("last"), math.nan)
        if slow is None or fast is None or math.isnan(last):
            return
        self._slow, self._fast, self._last = slow, fast, last
        self._index = max(0, int(_number(state.get("index"), 0)))
        self._errors = [e for e in _numbers(state.get("errors")) if e > 0][-ERRORS_KEPT:]
        self._verdicts = _numbers(state.get("verdicts"))[-WEAKEST_OF:]
        self._harmful, self._settled, self._rest = (
            min(max(0, int(_number(state.get(key), 0))), 10**6) for key in ("harmful", "settled", "rest")
        )
        self._restarted = restarted
        aside = _number(state.get("aside"), math.nan)
        self._aside = None if math.isnan(aside) else aside


def _verdict(slow: Trend, fast: Trend) -> float | None:
    """The least favourable of what the fits say, within ±50; None when one that is asked has no evidence."""
    if slow.t is None or slow.e is None:
        return None
    said = [slow.t, PER_SCATTER * slow.e]
    if fast.n >= OBSERVATIONS_MIN:
        if fast.e is None:
            return None
        said.append(PER_SCATTER * fast.e)
    return min(max(min(said), -VERDICT_MAX), VERDICT_MAX)


def _why_held(verdict: float, resting: bool, factor: float) -> str:
    if verdict > 1.0 and factor >= FACTOR_MAX:
        why = "improving, and already at full rate"
    elif verdict > 1.0 and resting:
        why = "improving, resting after a fall or a plateau"
    elif verdict > 1.0:
        why = "improving, but not for four readings running"
    elif verdict < -2.0:
        why = "worse lately, not yet twice running"
    else:
        why = "no clear trend"
    return f"Rate held at {factor:.3f} of full: {why} (evidence {verdict:+.1f})."


def _number(value: Any, default: float) -> float:
    found = number(value, 1e15)
    return default if found is None else found


def _numbers(values: Any) -> list[float]:
    read = [_number(v, math.nan) for v in values] if isinstance(values, list) else []
    return [v for v in read if not math.isnan(v)]


def _fit(saved: Any, decay: float) -> Fit | None:
    if not isinstance(saved, Mapping):
        return None
    numbers = {f.name: _number(saved.get(f.name), math.nan) for f in fields(Fit)}
    if any(map(math.isnan, numbers.values())):
        return None
    if min(numbers[name] for name in ("weight", "weight2", "sxx", "syy")) < 0:
        return None
    return Fit(**{**numbers, "decay": decay})
