"""Measuring: what the model makes of text it is not trained on, in nats a byte."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from minagi.model.network import Network
from minagi.model.reading import read
from minagi.model.routing import Forward, Routing
from minagi.pool import ExpertPool
from minagi.text import alphabet
from minagi.text.corpus import Corpus, TextGoneError, read_span

SHORTEST = 256  # characters of a passage that is cut to the budget of its subject


@dataclass
class Score:
    """Nats a byte of some text. `windows` are the means of its windows: the unit of the standard error."""

    total: float = 0.0
    size: int = 0  # bytes: a marker is one symbol and several of them
    windows: list[float] = field(default_factory=list)

    def add(self, nats: np.ndarray, size: int) -> None:
        """One window's losses, [symbols], and the bytes they stand for."""
        if size:
            self.total += float(nats.sum())
            self.size += size
            self.windows.append(float(nats.sum()) / size)

    @property
    def nats(self) -> float | None:
        return self.total / self.size if self.size else None

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean over windows; None with fewer than two."""
        if len(self.windows) < 2:
            return None
        return float(np.std(self.windows, ddof=1) / math.sqrt(len(self.windows)))


@dataclass
class Measured:
    """One measurement: the whole, and by subject."""

    total: Score
    subjects: dict[str, Score]


class Evaluator:
    """Scores text with a network and its pool, a chunk at a time through the cache."""

    def __init__(self, net: Network, pool: ExpertPool, routing: Routing) -> None:
        self.net, self.pool, self.routing = net, pool, routing

    def nats(self, ids: np.ndarray, chunk: int) -> np.ndarray:
        """Loss of ids[1:] given what precedes each, read as one new text: [len(ids) − 1].

        The same text gives the same figure: what select_temperature draws is drawn alike every time.
        """
        generator = torch.Generator().manual_seed(0)
        tensor = torch.from_numpy(ids.astype(np.int64)).to(self.net.tok_emb.weight.device)
        inputs, targets = tensor[:-1], tensor[1:]
        text = self.net.new_text(len(inputs) if len(inputs) > chunk else 1)
        losses = []
        for start in range(0, len(inputs), chunk):
            part = slice(start, start + chunk)
            forward = Forward(self.pool, text, self.routing, generator=generator)
            reading = read(self.net, inputs[part], forward, cached=len(inputs) > chunk)
            losses.append(F.cross_entropy(reading.logits, targets[part], reduction="none"))
        return torch.cat(losses).double().cpu().numpy() if losses else np.empty(0)

    def held_out(
        self, corpus: Corpus, chars: int, passage: int, window: int, chunk: int
    ) -> Generator[None, None, Measured]:
        """Score about `chars` characters of the corpus's held-out text, evenly from its subjects.

        The same passages whatever the window, so that readings can be compared as it grows. Yields after
        every window, so that a caller can do other things in between, and returns the measurement.
        """
        total = Score()
        subjects: dict[str, Score] = {}
        measured = [subject for subject in corpus.subjects if subject.held_out]
        for subject in measured:
            score = subjects[subject.name] = Score()
            for ids in _passages(subject.held_out, chars // max(len(measured), 1), passage):
                for nats, size in self.in_windows(ids, window, chunk):
                    score.add(nats, size)
                    total.add(nats, size)
                    yield
        return Measured(total, subjects)

    def in_windows(self, ids: np.ndarray, window: int, chunk: int) -> Iterator[tuple[np.ndarray, int]]:
        """Score ids[1:] in windows of their own, one behind the other: each one's losses and its bytes."""
        for start in range(0, len(ids) - 1, window):
            part = ids[start : start + window + 1]
            yield self.nats(part, chunk), _bytes(part[1:])

    def every_byte(self, ids: np.ndarray, window: int) -> Iterator[tuple[np.ndarray, int]]:
        """Score every symbol after the first exactly once, each with at least half a window before it
        (or all there is). Yields one window's newly scored losses after another, and their bytes."""
        half = max(window // 2, 1)
        scored = 1
        for start in range(0, max(len(ids) - 1, 0), half):
            part = ids[start : start + window + 1]
            fresh = start + len(part) - scored
            if fresh > 0:
                yield self.nats(part, len(part))[-fresh:], _bytes(part[-fresh:])
                scored += fresh
            if start + len(part) >= len(ids):
                return


def _bytes(ids: np.ndarray) -> int:
    return len(alphabet.decode(ids))


def _passages(spans: Iterable, budget: int, passage: int) -> Iterator[np.ndarray]:
    """Ids of passages spread evenly over held-out spans, `budget` characters in all if there are as many: of
    `passage` characters, or fewer where a whole one is over the budget."""
    spans = list(spans)
    passage = min(passage, max(budget, SHORTEST))
    available = sum(span.chars for span in spans)
    share = min(1.0, budget / max(available, 1))
    carried = 0.0
    for span in spans:
        carried += span.chars * share
        count = max(int(carried // passage), 0) if share < 1 else math.ceil(span.chars / passage)
        if not count and carried >= min(passage, budget) / 2 and share < 1:
            count = 1
        if not count:
            continue
        length = min(passage, span.chars)
        carried -= count * length
        for index in range(count):
            if share < 1:
                offset = (span.chars - length) * index // max(count - 1, 1)
            else:
                offset = index * passage
            try:
                data = read_span(span, offset, length)
            except TextGoneError:
                continue
            ids = alphabet.encode(data)
            if len(ids) > 1:
                yield ids
