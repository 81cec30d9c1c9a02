"""What a trainer and a streamer have in common: counters, checkpoints, and the figures of pool and memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from minagi.errors import MinagiError, UsageError
from minagi.protocol import Log, Message
from minagi.training import report
from minagi.training.checkpoints import Checkpoints
from minagi.training.engine import Engine
from minagi.training.guard import Rescue
from minagi.training.progress import Progress
from minagi.training.selection import Selection
from minagi.weights.snapshots import MEASURED

FIGURES_EVERY = 0.5  # seconds between two looks at pool and memory


class Run:
    """One model being trained. Whoever drives it knows it as `minagi.worker.parties.RunLike`."""

    engine: Engine
    progress: Progress
    checkpoints: Checkpoints
    selection: Selection
    _clock: Callable[[], float]
    _figures_at = -math.inf

    @property
    def guarded(self) -> Callable[[], AbstractContextManager[None]]:
        """What a save or a revert is wrapped in, so that no signal breaks into it. Set by the worker."""
        return self.checkpoints.guarded

    @guarded.setter
    def guarded(self, guard: Callable[[], AbstractContextManager[None]]) -> None:
        self.checkpoints.guarded = guard

    @property
    def steps(self) -> int:
        return self.progress.step

    @property
    def chars(self) -> int:
        return self.progress.chars

    @property
    def unsaved_chars(self) -> int:
        return self.progress.unsaved_chars

    @property
    def admitted(self) -> list[int]:
        """Uids that the last step was admitted."""
        raise NotImplementedError

    def counters(self, context: int, measured: str) -> dict[str, Any]:
        """The counters as the manifest has them, with a window of `context` characters; `measured` names the
        held-out text."""
        progress = self.progress
        return {
            "step": progress.step,
            "val": progress.val,
            MEASURED: measured,
            "val_step": None if progress.val is None else progress.evaluated_step,
            "read_chars": progress.chars,
            "read_nats": progress.nats,
            "context_now": context,
        }

    def figures(self) -> Iterator[Message]:
        """How pool, memory and subjects stand."""
        self._figures_at = self._clock()
        yield report.pool(self.engine, self.selection, self.progress, self.admitted)
        yield report.memory(self.engine, self.checkpoints.disk_bytes)
        yield report.subjects(self.progress)

    def figures_due(self) -> Iterator[Message]:
        """The same where the last look was long enough ago."""
        if self._clock() - self._figures_at >= FIGURES_EVERY:
            yield from self.figures()

    def _rescue(self, rescue: Rescue) -> Iterator[Message]:
        """Do what the guard says: go on without the step, go back, or go back and stop (MinagiError)."""
        yield note("run", rescue.sentence, "warning" if rescue.act != "stop" else "error")
        if rescue.act == "skip":
            return
        try:
            yield from self._go_back(rescue)
        except UsageError as error:
            raise MinagiError(f"{rescue.sentence} {error}") from None
        if rescue.act == "stop":
            raise MinagiError(rescue.sentence)

    def _go_back(self, rescue: Rescue) -> Iterator[Message]:
        """Return to `rescue.to`, at half the rate; a second way back starts below the first."""
        raise NotImplementedError


def note(topic: str, text: str, level: str = "info") -> Log:
    """A sentence for the log, of now."""
    return Log(at=time.time(), level=level, topic=topic, text=text)
