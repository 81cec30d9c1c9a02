"""OUT/history.jsonl: the story of a stream, one JSON object a line, each with its `kind`.

start, step, val, pruned, grew, held, saved, reverted, done. What each holds is listed in docs/stream.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from minagi.protocol import Log, Message, Metrics
from minagi.training.chunks import ChunkStep
from minagi.training.history import History
from minagi.training.progress import Progress
from minagi.training.stream_request import HISTORY


class StreamHistory(History):
    """Rows that a checkpoint writes are of kind `saved`; all others are told."""

    def __init__(self, out: Path, progress: Progress, done: Callable[[], int]) -> None:
        """`done` gives the steps of the stream."""
        super().__init__(out / HISTORY)
        self._model, self._progress, self._done = str(out), progress, done
        self._since: list[tuple[int, float]] = []  # characters and nats of the steps since the last row
        self._trouble = ""  # that was told last
        self._begun = False

    def append(self, row: Mapping[str, Any]) -> str:
        """A row of a checkpoint, or any other. Nothing comes before a start."""
        row = {"kind": "saved", "done": self._done(), **row}
        self._begun = self._begun or row["kind"] == "start"
        return super().append(row) if self._begun else ""

    def tell(self, kind: str, **row: Any) -> Iterator[Message]:
        """Add a row. What goes wrong is told, once."""
        progress = self._progress
        always = {"kind": kind, "time": time.time(), "model": self._model, "step": progress.step}
        trouble = self.append({**always, "chars": progress.chars, **row})
        if trouble and trouble != self._trouble:
            yield Log(at=time.time(), level="warning", topic="checkpoint", text=trouble)
        self._trouble = trouble

    def add(self, step: ChunkStep) -> None:
        """A step that the next row of kind `step` is about."""
        self._since += [(chunk.chars, chunk.nats) for chunk in step.chunks]

    def tell_steps(self, metrics: Metrics, experts: int) -> Iterator[Message]:
        """What came of the steps since the last such row: the mean loss; other figures are the last one's."""
        chars = sum(count for count, _ in self._since)
        loss = sum(count * nats for count, nats in self._since) / chars
        self.forget()
        yield from self.tell(
            "step", loss=loss, lr=metrics.lr, context=metrics.context, rows=metrics.rows,
            grad_norm=metrics.grad_norm, chars_per_second=metrics.chars_per_second, experts=experts,
        )  # fmt: skip

    def forget(self) -> None:
        """Steps added so far are gone."""
        self._since.clear()
