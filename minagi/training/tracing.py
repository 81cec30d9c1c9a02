"""`--trace-routes FILE`: which experts the first chunks of a run were routed to, as one plain npz.

For C chunks, whose N routings (a row of the recurrence each) made M requests of up to K experts:

- `step`, `chars`, `loads` [C]: optimiser step, characters read before it, experts loaded onto the card for it
- `admitted`, `resident` [C, S]: uids the text was admitted, and uids on the card after the step
- `chunk`, `row`, `start` [N]: the chunk and row of a routing, and where its requests begin below
- `position` [M]: the character's place in the window; `uid`, `weight` [M, K]: its experts, best first, with
  their weights (the gate's share included)

Where there are fewer than S or K, uids are −1 and weights 0.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from minagi.model.routing import Forward, Trace
from minagi.protocol import Log, Message
from minagi.weights import files
from minagi.weights.npz import write_npz

NOBODY = -1
EVERY_ROW = 1 << 30


class RouteTrace:
    """Gathers the routing of `chunks` steps and writes it once they are made, or once the run ends.

    Without a path there is nothing to do.
    """

    def __init__(self, path: Path | None, chunks: int) -> None:
        self.path, self._chunks = path, chunks
        self._steps: list[tuple[int, int, int]] = []
        self._admitted: list[Sequence[int]] = []
        self._resident: list[Sequence[int]] = []
        self._routings: list[tuple[int, int]] = []  # chunk, row
        self._requests: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._written = False

    @property
    def full(self) -> bool:
        """Every chunk asked for is in."""
        return len(self._steps) >= self._chunks

    @property
    def wants_more(self) -> bool:
        """The next step's routing is to be kept."""
        return self.path is not None and not self.full

    def add(
        self,
        forward: Forward,
        uids: Sequence[int],
        resident: Sequence[int],
        step: int,
        chars: int,
        loads: int,
    ) -> None:
        """Take a step's routing; `uids` is the pool in order, `resident` what is on the card now."""
        names = np.asarray(uids, np.int64)
        for trace in forward.traces:
            self._routings.append((len(self._steps), trace.row))
            self._requests.append(_requests(trace, names))
        self._steps.append((step, chars, loads))
        self._admitted.append([uids[place] for place in forward.admitted])
        self._resident.append(resident)

    def finish(self) -> Iterator[Message]:
        """Write what was gathered, once; a log line says where it is or why it is not."""
        if self.path is None or self._written or not self._steps:
            return
        self._written = True
        part = self.path.with_name(self.path.name + ".part")
        try:
            files.remove_tree(part)
            write_npz(part, self._arrays())
            part.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                files.remove_tree(part)
            text = f"The routing could not be written to {self.path}: {error.strerror or error}."
            yield Log(at=time.time(), level="warning", topic="run", text=text)
        else:
            text = f"The routing of the first {len(self._steps)} chunks is in {self.path}."
            yield Log(at=time.time(), topic="run", text=text)

    def _arrays(self) -> dict[str, np.ndarray]:
        steps = np.asarray(self._steps, np.int64).reshape(-1, 3)
        routings = np.asarray(self._routings, np.int64).reshape(-1, 2)
        positions, uids, weights = (list(column) for column in zip(*self._requests, strict=True))
        counts = [len(position) for position in positions]
        return {
            "step": steps[:, 0],
            "chars": steps[:, 1],
            "loads": steps[:, 2],
            "admitted": _padded(self._admitted),
            "resident": _padded(self._resident),
            "chunk": routings[:, 0],
            "row": routings[:, 1],
            "start": np.cumsum([0, *counts[:-1]]),
            "position": np.concatenate(positions),
            "uid": _stacked(uids, NOBODY),
            "weight": _stacked(weights, 0),
        }


def _requests(trace: Trace, uids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One routing's positions [n], uids [n, K] and weights [n, K]."""
    experts = trace.experts.cpu().numpy()
    everyone = np.arange(len(experts), dtype=np.int64)
    positions = everyone if trace.positions is None else trace.positions.cpu().numpy()
    return positions, uids[experts], trace.weights.float().cpu().numpy()


def _padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    padded = np.full((len(rows), max(map(len, rows))), NOBODY, np.int64)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded


def _stacked(parts: Sequence[np.ndarray], empty: int) -> np.ndarray:
    """Arrays [n, k] on top of each other, each widened to the widest with `empty`."""
    width = max(part.shape[1] for part in parts)
    return np.concatenate(
        [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=empty) for part in parts]
    )
