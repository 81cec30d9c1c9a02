"""Held-out readings of a run: made a slice at a time, and judged when they are whole."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from minagi import protocol
from minagi.config import Settings
from minagi.protocol import Log, Message
from minagi.text.corpus import Corpus
from minagi.training.engine import Engine
from minagi.training.evaluate import Measured
from minagi.training.guard import Guard, Rescue
from minagi.training.progress import Progress
from minagi.training.rate import RateControl
from minagi.units import LN2

FIRST_READING = 8_192  # characters of a newborn's life before it; then they double


@dataclass(frozen=True)
class Judged:
    """What came of a whole reading: a new best, a way back that has to be taken, or neither."""

    best: bool
    rescue: Rescue | None


class Measuring:
    """The reading in progress, if there is one. Readings move the rate and guard against divergence."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        progress: Progress,
        rate: RateControl,
        guard: Guard,
        elsewhere: Corpus,
        clock: Callable[[], float],
    ) -> None:
        self.engine, self.settings, self.progress = engine, settings, progress
        self.rate, self.guard, self.elsewhere, self._clock = rate, guard, elsewhere, clock
        self._reading: Generator[None, None, tuple[Measured, Measured | None]] | None = None
        self._began = 0.0
        self.last: protocol.HeldOut | None = None  # the last whole reading, and what was made of it
        self.move: protocol.Rate | None = None

    @property
    def open(self) -> bool:
        """A reading is in progress."""
        return self._reading is not None

    @property
    def due(self) -> bool:
        """Whether enough was read since the last reading."""
        read, at = self.progress.chars, self.progress.evaluated_chars
        return read - at >= min(self.settings.training.eval_every_chars, max(FIRST_READING, at))

    def begin(self, corpus: Corpus, context: int, everywhere: bool = False) -> None:
        """Begin a reading with a window of `context`, unless there is no held-out text; `everywhere` for
        what is known from elsewhere as well, which no decision is made by."""
        self.progress.evaluated_chars = self.progress.chars
        if corpus.held_out_chars:
            self._began = self._clock()
            self._reading = self._read(corpus, context, everywhere)

    def _read(
        self, corpus: Corpus, context: int, everywhere: bool
    ) -> Generator[None, None, tuple[Measured, Measured | None]]:
        """Yields after every window; what was measured of `corpus`, and of elsewhere."""

        def measure(text: Corpus) -> Generator[None, None, Measured]:
            settings = self.settings
            chars, passage = settings.data.eval_chars, settings.model.context_end
            return self.engine.evaluator.held_out(text, chars, passage, context, settings.training.chunk)

        here = yield from measure(corpus)
        others = everywhere and self.elsewhere.held_out_chars > 0
        return here, (yield from measure(self.elsewhere)) if others else None

    def give_up(self) -> None:
        """There is no reading in progress any more."""
        self._reading = None

    def forget(self) -> None:
        """What was measured is of another model, or of other text."""
        self._reading = self.last = self.move = None

    def go_on(self, seconds: float) -> Generator[Message, None, Judged | None]:
        """Go on for about `seconds`. None until the reading is whole, or when nothing could be read."""
        yield protocol.Phase(phase="evaluating")
        assert self._reading is not None
        began = self._clock()
        try:
            while self._clock() - began < seconds:
                next(self._reading)
        except StopIteration as end:
            self._reading = None
            return (yield from self._judge(*end.value))
        return None

    def _judge(self, measured: Measured, others: Measured | None) -> Generator[Message, None, Judged | None]:
        nats, stderr = measured.total.nats, measured.total.stderr
        if nats is None:
            return None
        progress = self.progress
        before = self.guard.best
        rescue = self.guard.held_out(nats)
        progress.val = nats if math.isfinite(nats) else None
        if progress.val is not None:
            progress.course.measured(progress.chars, nats)
        best = math.isfinite(nats) and (before is None or nats < before)
        if best:
            progress.best_step, progress.best_chars = progress.step, progress.chars
        self.last = self._event(measured, others, nats, best)
        yield self.last
        move = self.rate.observe(nats, stderr or 0.0, progress.step - progress.evaluated_step)
        progress.evaluated_step = progress.step
        self.move = protocol.Rate(progress.step, move.factor, move.verdict, move.sentence, move.notable)
        yield self.move
        if move.notable:
            yield Log(at=time.time(), level="info", topic="rate", text=move.sentence)
        return Judged(best, rescue)

    def _event(
        self, measured: Measured, others: Measured | None, nats: float, best: bool
    ) -> protocol.HeldOut:
        progress = self.progress
        return protocol.HeldOut(
            at=time.time(),
            step=progress.step,
            chars=progress.chars,
            nats=nats,
            bits_per_byte=nats / LN2,
            stderr=measured.total.stderr,
            best=best,
            subjects=self._by_subject(measured),
            elsewhere={} if others is None else self._by_subject(others),
            seconds=self._clock() - self._began,
            gap=progress.gap,
        )

    def _by_subject(self, measured: Measured) -> dict[str, dict[str, float | None]]:
        subjects: dict[str, dict[str, float | None]] = {}
        for name, score in measured.subjects.items():
            before = self.progress.subject(name).measured(score.nats, score.windows)
            subjects[name] = {
                "nats": score.nats, "stderr": score.stderr, "bytes": score.size, "before": before.nats,
                "change_stderr": before.change_stderr(score.windows),
            }  # fmt: skip
        return subjects
