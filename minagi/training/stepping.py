"""One optimiser step on one window of text, and nothing of what follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from minagi.config import Training
from minagi.model.loss import Loss, sample_rows, training_loss
from minagi.model.routing import Forward
from minagi.text.lanes import WindowOfText
from minagi.training.engine import POOL_AUX, Engine
from minagi.training.signal import DECAY, GradSignal
from minagi.training.start import Start
from minagi.training.tracing import EVERY_ROW, RouteTrace


@dataclass(frozen=True)
class Step:
    """What came of a step. `norm` is None where it was skipped for a loss or gradient that was not finite."""

    loss: Loss
    norm: float | None  # of the gradient, before clipping
    loads: int = 0  # experts loaded onto the card
    dropped: float = 0.0  # share of assignments over capacity


class Stepper:
    """Makes the steps of a run; keeps what is known of the trunk's gradient, and the routing if asked to."""

    def __init__(self, engine: Engine, training: Training, start: Start) -> None:
        self.engine, self._training, self._seed = engine, training, start.seed
        self.trace = RouteTrace(start.trace_routes, start.trace_chunks)
        self.admitted: list[int] = []  # uids of the last step
        self.signal = GradSignal()
        self._mean_gradient = torch.zeros(0)
        self._generator = torch.Generator()

    def make(self, text: WindowOfText, lr: float, step: int, chars: int, again: float = 1.0) -> Step:
        """Step `step` of the model's life, which has read `chars` characters so far, on `text`; `again` is
        the share of the rate `lr` at which it is learnt."""
        engine = self.engine
        loads = engine.pool.loads
        forward, loss = self._forward(text, chars)
        norm = self._backward(loss)
        if norm is None:
            engine.optimiser.skip()
            return Step(loss, None)
        self._measure_signal(step)
        lr *= again
        engine.optimiser.step(lr, lr * self._training.trunk_lr_mult, norm)
        engine.stepped(text.new_chars, chars + text.new_chars, again)
        self.admitted = marked(engine, forward)
        dropped = forward.dropped / forward.routed if forward.routed else 0.0
        loads = engine.pool.loads - loads
        if self.trace.wants_more:
            self.trace.add(forward, engine.pool.telemetry.uid, engine.pool.resident(), step, chars, loads)
        return Step(loss, norm, loads, dropped)

    def _forward(self, text: WindowOfText, chars: int) -> tuple[Forward, Loss]:
        net = self.engine.net
        device = net.tok_emb.weight.device
        ids = torch.from_numpy(text.ids.astype("int64")).to(device)
        # Seeded by what was read, so that a resumed run draws what the unbroken one would have drawn.
        self._generator.manual_seed((self._seed * 1_000_003 + chars) % 2**63)
        rows = sample_rows(net, self._generator)
        forward = Forward(
            self.engine.pool,
            net.new_text(1),
            self.engine.routing,
            training=True,
            generator=self._generator,
            trace_rows=EVERY_ROW if self.trace.wants_more else 0,
        )
        return forward, training_loss(net, ids[:-1], ids[1:], forward, rows, POOL_AUX)

    def _backward(self, loss: Loss) -> float | None:
        """The gradient's norm before clipping; None when it, or the loss, is not finite."""
        if not math.isfinite(float(loss.total.detach())):
            return None
        loss.total.backward()
        norm = self.engine.optimiser.norm()
        return norm if math.isfinite(norm) else None

    def _measure_signal(self, step: int) -> None:
        if not self.signal.due(step):
            return
        gradient = self.engine.optimiser.trunk_gradient()
        keep = self.signal.begin(gradient.numel())
        if keep == 0.0:
            self._mean_gradient = torch.zeros_like(gradient)
        mean = self._mean_gradient.mul_(keep).add_(gradient, alpha=1 - DECAY)
        self.signal.observe(float(mean.dot(mean)), float(gradient.dot(gradient)))


def marked(engine: Engine, forward: Forward) -> list[int]:
    """Mark in the telemetry what a training forward was admitted and chose; the uids it was admitted."""
    telemetry = engine.pool.telemetry
    telemetry.gate_seen[forward.admitted] = engine.net.pool.gate.detach().cpu()[forward.admitted]
    telemetry.chosen({forward.admitted[place]: count for place, count in forward.requests.items()})
    return [telemetry.uid[place] for place in forward.admitted]
