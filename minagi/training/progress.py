"""What has been read and how it went: the counters of a model's life, and of this session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minagi.finite import count, number
from minagi.training.course import Course

SMOOTHING_CHARS = 20_000  # characters over which a shown loss is averaged
SPEED_SECONDS = 3.0  # seconds of training over which a shown speed is averaged


class Smooth:
    """A running mean that fades over `span`; until as much was added, the plain mean. None at first."""

    def __init__(self, span: float = SMOOTHING_CHARS, value: float | None = None) -> None:
        self.span, self.value = span, value
        self._weight = 0.0 if value is None else span

    def add(self, value: float, weight: float) -> None:
        """Take `value`, which stands for `weight` (characters, seconds, steps)."""
        keep = math.exp(-weight / self.span)
        self._weight = self._weight * keep + self.span * (1 - keep)
        if self.value is None:
            self.value = value
        elif self._weight > 0:
            self.value += (value - self.value) * self.span * (1 - keep) / self._weight


@dataclass(frozen=True)
class Before:
    """A held-out reading to compare later ones with: nats, and the means of its windows."""

    nats: float | None
    windows: Sequence[float]

    def change_stderr(self, windows: Sequence[float]) -> float | None:
        """Standard error of the change to a later reading with these windows; None with fewer than two.

        Where there are as many, they are windows of the same text, and what varies is each one's change.
        """
        pairs = list(zip(windows, self.windows, strict=False))
        if len(pairs) < 2:
            return None
        if len(windows) == len(self.windows):
            return _stderr([now - then for now, then in pairs])
        return math.hypot(_stderr(windows), _stderr(self.windows))


@dataclass
class SubjectProgress:
    """One subject: characters read in the model's life; train loss and first held-out of the session."""

    chars: int = 0
    loss: Smooth = field(default_factory=Smooth)
    before: Before | None = None

    def measured(self, nats: float | None, windows: Sequence[float]) -> Before:
        """A held-out reading was made; the session's first."""
        if self.before is None and nats is not None:
            self.before = Before(nats, windows)
        return self.before or Before(None, windows)


class Progress:
    """Counters. Those of the model's life travel in the manifest, the session's do not."""

    def __init__(self) -> None:
        self.step = 0  # optimiser steps of the model's life
        self.chars = 0  # characters read in it
        self.nats = 0.0  # of all characters read, summed as they were read
        self.loss = Smooth()
        self.course = Course()  # for the history
        self.val: float | None = None  # last held-out reading
        self.evaluated_chars = 0
        self.evaluated_step = 0
        self.best_step = self.best_chars = 0  # when held-out was read lowest; 0 where that is not known
        self.other_text_until = -1  # step up to which other text was measured: a lower reading means nothing
        self.grown_chars = 0  # when growth was last decided
        self.session_chars = 0
        self.saved_chars = 0
        self.subjects: dict[str, SubjectProgress] = {}
        self._seconds = Smooth(SPEED_SECONDS)  # a character
        self._loads = Smooth(50.0)  # a step
        self._dropped = Smooth(50.0)

    @property
    def unsaved_chars(self) -> int:
        return max(0, self.chars - self.saved_chars)

    @property
    def speed(self) -> float | None:
        """Characters a second of training alone."""
        return 1 / self._seconds.value if self._seconds.value else None

    @property
    def gap(self) -> float | None:
        """Held-out minus smoothed train loss, in nats."""
        return None if self.val is None or self.loss.value is None else self.val - self.loss.value

    @property
    def loads(self) -> float | None:
        """Experts loaded onto the card a step."""
        return self._loads.value

    @property
    def dropped_share(self) -> float | None:
        """Assignments dropped for capacity, of all."""
        return self._dropped.value

    def took(self, subject: str, chars: int, nats: float, seconds: float, loads: int, dropped: float) -> None:
        """A step of `subject` that read `chars` new characters at a mean loss of `nats` was made.

        It took `seconds` and `loads` experts; `dropped` is the share of assignments over capacity.
        """
        self.read(subject, chars, nats)
        self.stepped(chars, seconds, loads, dropped)

    def read(self, subject: str, chars: int, nats: float) -> None:
        """`chars` new characters of `subject` were read at a mean loss of `nats`."""
        self.chars += chars
        self.session_chars += chars
        self.nats += nats * chars
        self.loss.add(nats, chars)
        self.course.read(self.chars, self.loss.value)
        progress = self.subject(subject)
        progress.chars += chars
        progress.loss.add(nats, chars)

    def stepped(self, chars: int, seconds: float, loads: int, dropped: float) -> None:
        """A step was made on what was read, `chars` characters of it (see `took`)."""
        self.step += 1
        if chars:
            self._seconds.add(seconds / chars, seconds)
        self._loads.add(loads, 1)
        self._dropped.add(dropped, 1)

    def subject(self, name: str) -> SubjectProgress:
        """A subject's figures, begun at the first mention."""
        return self.subjects.setdefault(name, SubjectProgress())

    def forget_readings(self) -> None:
        """Other text is measured from now on."""
        self.other_text_until = self.step
        self.best_step = self.best_chars = 0
        self.course.readings.clear()
        for subject in self.subjects.values():
            subject.before = None

    def state_dict(self) -> dict[str, Any]:
        """What a later session goes on from, beside what the manifest's own keys say."""
        return {
            "loss": self.loss.value,
            "evaluated_chars": self.evaluated_chars,
            "evaluated_step": self.evaluated_step,
            "best_step": self.best_step,
            "best_chars": self.best_chars,
            "other_text_until": self.other_text_until,
            "grown_chars": self.grown_chars,
            "subjects": {name: subject.chars for name, subject in self.subjects.items() if subject.chars},
        }

    def load(self, manifest: dict[str, Any], state: dict[str, Any]) -> None:
        """Take over a manifest's counters; figures that are missing or make no sense start at nothing."""
        self.step = count(manifest.get("step"))
        self.chars = self.saved_chars = count(manifest.get("read_chars"))
        self.nats = number(manifest.get("read_nats")) or 0.0
        self.val = number(manifest.get("val"))
        self.loss = Smooth(value=number(state.get("loss")))
        self.course = Course()
        self.evaluated_chars = min(count(state.get("evaluated_chars")), self.chars)
        self.evaluated_step = min(count(state.get("evaluated_step")), self.step)
        self.best_step = min(count(state.get("best_step")), self.step)
        self.best_chars = min(count(state.get("best_chars")), self.chars)
        other_text_until = number(state.get("other_text_until"))
        self.other_text_until = -1 if other_text_until is None else min(int(other_text_until), self.step)
        self.grown_chars = min(count(state.get("grown_chars")), self.chars)
        read = state.get("subjects")
        read = read if isinstance(read, dict) else {}
        for name in {*self.subjects, *map(str, read)}:
            self.subject(name).chars = min(count(read.get(name)), self.chars)


def _stderr(values: Sequence[float]) -> float:
    with np.errstate(invalid="ignore"):  # of a model that has diverged
        return float(np.std(values, ddof=1)) / math.sqrt(len(values))
