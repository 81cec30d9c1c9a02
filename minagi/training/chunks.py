"""Steps made of chunks: a window is read chunk by chunk through the cache, and so many chunks make a step.

The graph spans a chunk, the reach is the window.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from minagi.config import Training
from minagi.model.loss import Loss, sample_rows, training_loss
from minagi.model.routing import Forward
from minagi.text.mix import MixReader, MixWindow
from minagi.training.engine import POOL_AUX, Engine
from minagi.training.stepping import marked


@dataclass(frozen=True)
class Chunk:
    """A chunk that was read. Its gradient was added to the coming step's, unless the loss is not finite."""

    source: str
    chars: int
    loss: Loss
    forward: Forward

    @property
    def nats(self) -> float:
        """Mean cross-entropy."""
        return float(self.loss.ce)

    @property
    def finite(self) -> bool:
        return math.isfinite(float(self.loss.total.detach()))


@dataclass(frozen=True)
class ChunkStep:
    """What came of a step. `fault` names what was not finite where it had to be given up, else ""."""

    chunks: list[Chunk]
    norm: float = math.nan  # of the gradient, before clipping
    seconds: float = 0.0
    loads: int = 0  # experts loaded onto the card
    fault: str = ""

    @property
    def chars(self) -> int:
        return sum(chunk.chars for chunk in self.chunks)

    @property
    def dropped(self) -> float:
        """Share of assignments over capacity."""
        routed = sum(chunk.forward.routed for chunk in self.chunks)
        return sum(chunk.forward.dropped for chunk in self.chunks) / routed if routed else 0.0

    @property
    def loss(self) -> Loss:
        """The last chunk's, with the means over all of its cross-entropy and rows."""
        losses = [chunk.loss for chunk in self.chunks]
        ce, rows = (torch.stack([getattr(loss, name) for loss in losses]).mean() for name in ("ce", "rows"))
        return replace(losses[-1], ce=ce, rows=rows)


class OpenWindow:
    """A window being read, `chunk` characters at a time. What is left at its end and is no whole chunk stays
    unread: every chunk weighs as much as any other."""

    def __init__(self, engine: Engine, window: MixWindow, chunk: int, seed: int) -> None:
        self.engine, self.source = engine, window.source
        net = engine.net
        ids = torch.from_numpy(window.ids.astype("int64")).to(net.tok_emb.weight.device)
        self._inputs, self._targets = ids[:-1], ids[1:]
        self._chunk = min(chunk, len(self._inputs))
        self._generator = torch.Generator().manual_seed((seed * 1_000_003 + window.number) % 2**63)
        self._rows = sample_rows(net, self._generator)  # one depth a text
        self._text = net.new_text(len(self._inputs))

    @property
    def over(self) -> bool:
        """No whole chunk is left."""
        return self._text.position + self._chunk > len(self._inputs)

    def read(self, share: float) -> Chunk:
        """Read the next chunk and add `share` of its gradient to the coming step's."""
        engine = self.engine
        part = slice(self._text.position, self._text.position + self._chunk)
        forward = Forward(engine.pool, self._text, engine.routing, training=True, generator=self._generator)
        loss = training_loss(
            engine.net, self._inputs[part], self._targets[part], forward, self._rows, POOL_AUX, cached=True
        )
        chunk = Chunk(self.source, self._chunk, loss, forward)
        if chunk.finite:
            (loss.total * share).backward()
        return chunk


class ChunkStepper:
    """Reads windows from a mix and makes a step of every `accum` chunks."""

    def __init__(
        self,
        engine: Engine,
        reader: MixReader,
        training: Training,
        accum: int,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.reader, self._training = engine, reader, training
        self._accum, self._seed, self._clock = accum, seed, clock
        self.admitted: list[int] = []  # uids of the last step
        self._window: OpenWindow | None = None
        self._chunks: list[Chunk] = []  # of the coming step
        self._begin()

    def _begin(self) -> None:
        self._chunks = []
        self._seconds, self._loads = 0.0, self.engine.pool.loads

    @property
    def whole(self) -> bool:
        """No step is half read."""
        return not self._chunks

    def leave(self) -> None:
        """Read no more of the present window, and give up the step that is half read."""
        if self._chunks:
            self.engine.optimiser.skip()
        self._window = None
        self._begin()

    def read(self, context: int, chunk: int, burst: int, lr: float, chars: int) -> ChunkStep | None:
        """Read a chunk, of a new window of `context` (`burst` where it is replayed) if the last one is over.

        Returns the step that it was the last of, made at rate `lr` or given up. The model has read `chars`
        characters in the steps before.
        """
        began = self._clock()
        if self._window is None or self._window.over:
            self._window = OpenWindow(self.engine, self.reader.open(context, burst), chunk, self._seed)
        latest = self._window.read(1 / self._accum)
        self._chunks.append(latest)
        norm = math.nan
        if latest.finite:
            if len(self._chunks) < self._accum:
                self._seconds += self._clock() - began
                return None
            norm = self.engine.optimiser.norm()
        if not math.isfinite(norm):
            step = ChunkStep(self._chunks, fault="gradient" if latest.finite else "loss")
            self.leave()  # the whole window may be full of it
            return step
        self.engine.optimiser.step(lr, lr * self._training.trunk_lr_mult, norm)
        new = sum(each.chars for each in self._chunks)
        self.engine.stepped(new, chars + new)
        self.admitted = sorted({uid for each in self._chunks for uid in marked(self.engine, each.forward)})
        loads, seconds = self.engine.pool.loads - self._loads, self._seconds + self._clock() - began
        step = ChunkStep(self._chunks, norm, seconds, loads)
        self._begin()
        return step
