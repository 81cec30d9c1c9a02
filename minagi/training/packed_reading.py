"""Held-out readings of packed corpora: the same passages every time, whatever the window is by then."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Generator, Mapping

from minagi import protocol
from minagi.text.packed import PackedText
from minagi.training.evaluate import Evaluator, Measured, Score
from minagi.training.progress import Progress
from minagi.units import LN2


class PackedReading:
    """Reads `chars` characters of each text, in passages of at most `passage`, evenly spread, bit by bit."""

    def __init__(
        self,
        texts: Mapping[str, PackedText],
        weights: Mapping[str, float],
        chars: int,
        passage: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`weights` are the sources' shares of the mean, in any unit."""
        self._texts, self._chars, self._passage, self._clock = dict(texts), chars, passage, clock
        total = sum(weights.values())
        self._shares = {name: weight / total for name, weight in weights.items()}
        self._slices: Generator[None, None, Measured] | None = None
        self._began = 0.0

    @property
    def identity(self) -> str:
        """Names what is measured: readings of one identity can be compared."""
        what = [(name, str(text.path), len(text), self._shares[name]) for name, text in self._texts.items()]
        said = repr((sorted(what), self._chars, self._passage))
        return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @property
    def open(self) -> bool:
        """A reading is in progress."""
        return self._slices is not None

    def begin(self, evaluator: Evaluator, window: int, chunk: int) -> None:
        """Begin a reading in windows of `window` characters, `chunk` at a time."""
        self._slices = self._read(evaluator, window, chunk)
        self._began = self._clock()

    def give_up(self) -> None:
        """There is no reading in progress any more."""
        self._slices = None

    def go_on(self, seconds: float, progress: Progress) -> protocol.HeldOut | None:
        """Go on for about `seconds`: what was measured, once it is whole; nats None if there was nothing."""
        assert self._slices is not None
        began = self._clock()
        try:
            next(self._slices)
            while self._clock() - began < seconds:
                next(self._slices)
        except StopIteration as end:
            self._slices = None
            return self._told(end.value, progress)
        return None

    def _read(self, evaluator: Evaluator, window: int, chunk: int) -> Generator[None, None, Measured]:
        total = Score()
        subjects: dict[str, Score] = {}
        for name, text in self._texts.items():
            score = subjects[name] = Score()
            length, starts = passages(len(text), self._chars, self._passage)
            for start in starts:
                for nats, size in evaluator.in_windows(text.ids(start, length + 1), window, chunk):
                    score.add(nats, size)
                    total.add(nats, size)
                    yield
        return Measured(total, subjects)

    def _told(self, measured: Measured, progress: Progress) -> protocol.HeldOut:
        nats, stderr = self._mean(measured)
        progress.val = nats if nats is not None and math.isfinite(nats) else None
        return protocol.HeldOut(
            at=time.time(),
            step=progress.step,
            chars=progress.chars,
            nats=nats,
            bits_per_byte=None if nats is None else nats / LN2,
            stderr=stderr,
            subjects={
                name: {"nats": score.nats, "stderr": score.stderr, "bytes": score.size}
                for name, score in measured.subjects.items()
            },
            seconds=self._clock() - self._began,
            gap=progress.gap,
        )

    def _mean(self, measured: Measured) -> tuple[float | None, float | None]:
        """The sources' nats a byte by their shares, and its standard error. None where there is none."""
        nats = error = 0.0
        known = True
        for name, score in measured.subjects.items():
            if score.nats is None:
                return None, None
            nats += self._shares[name] * score.nats
            known = known and score.stderr is not None
            error += (self._shares[name] * (score.stderr or 0.0)) ** 2
        return nats, math.sqrt(error) if known else None


def passages(available: int, chars: int, passage: int) -> tuple[int, list[int]]:
    """Characters a passage, and where passages begin in `available` ids, to score about `chars` of them.

    A passage of n characters takes n + 1 ids, for the last one's successor is scored as well.
    """
    length = min(passage, chars, available - 1)
    count = min(max(1, chars // length), (available - 1) // length)
    room = available - 1 - length
    return length, [room * index // max(count - 1, 1) for index in range(count)]
