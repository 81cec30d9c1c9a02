"""Models small enough to check every number of, made in the engine's form and in the oracle's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import strategies as st
from oracle import Oracle
from torch import Tensor

from minagi.model.network import Network
from minagi.model.routing import Forward
from minagi.model.shape import Depth, Routing, Shape
from minagi.pool import ExpertPool, ExpertSlots, Telemetry
from minagi.pool.slots import level_names
from minagi.weights import ExpertRecord, as_written
from minagi.weights.moments import from_bf16

CPU = torch.device("cpu")


@dataclass
class MemoryDisk:
    """The disk as the pool sees it: a checkpoint, what was spilled since, and how often it was asked."""

    held: dict[int, ExpertRecord] = field(default_factory=dict)
    spilled: dict[int, ExpertRecord] = field(default_factory=dict)
    reads: int = 0

    def read_expert(self, uid: int, moments: bool = True, weights: bool = True) -> ExpertRecord:
        self.reads += 1
        record = copied(self.spilled.get(uid) or self.held[uid])
        if not moments:
            record.moments = None
        return record if weights else ExpertRecord(uid, {}, record.moments)

    def spill_expert(self, record: ExpertRecord) -> None:
        self.spilled[record.uid] = copied(record)

    def checkpoint(self, pool: ExpertPool) -> None:
        """What `Store.checkpoint` does: everything that changed, moments in bf16; then the pool settles."""
        for record in (self.spilled | pool.changed()).values():
            self.held[record.uid] = as_written(record)
        self.spilled.clear()
        pool.settle()


def live(pool: ExpertPool, uid: int) -> ExpertRecord:
    """An expert as it is now, moments exact, wherever it sits."""
    index = pool._slot_of.get(uid)
    if index is not None and pool._slots[index].stale:
        return pool._record(index)
    held = pool.ram.dirty().get(uid)
    return copied(held if held is not None else pool.ram.disk.read_expert(uid), from_bf16)


def copied(record: ExpertRecord, moment: Callable[[np.ndarray], np.ndarray] = np.copy) -> ExpertRecord:
    """A record with arrays of its own; `moment` is applied to each moment and average."""
    moments, average = (
        None if arrays is None else {name: moment(array) for name, array in arrays.items()}
        for arrays in (record.moments, record.average)
    )
    return ExpertRecord(record.uid, {n: a.copy() for n, a in record.weights.items()}, moments, average)


@dataclass(frozen=True)
class Case:
    """Everything a tiny model and a text for it are made from."""

    shape: Shape
    depth: Depth
    routing: Routing
    experts: int
    rows: int
    ids: tuple[int, ...]  # one more than the inputs: the last is the last target
    seed: int


@dataclass
class Tiny:
    """A case's model."""

    case: Case
    net: Network
    pool: ExpertPool
    disk: MemoryDisk
    oracle: Oracle

    def forward(self, training: bool = False, text: object = None) -> Forward:
        """A forward of a new text, or of one that goes on."""
        return Forward(self.pool, text or self.net.new_text(), self.case.routing, training=training)

    def expert_gradients(self, forward: Forward) -> dict[tuple[int, str], Tensor]:
        """Gradient of every admitted expert's tensors, by (place, name)."""
        slots = self.pool.slots
        slots.settle_grad()
        found = {}
        for place, slot in zip(forward.admitted, forward.slots, strict=True):
            for index, level in enumerate(slots.levels):
                w1, w3, w2 = level_names(index)
                found[place, w1] = level.up_grad[slot, : slots.width]
                found[place, w3] = level.up_grad[slot, slots.width :]
                found[place, w2] = level.down_grad[slot]
        return found


def make(case: Case, dtype: torch.dtype = torch.float32, ram: int = 0, slots: int = 0) -> Tiny:
    """Random weights, large enough that every part matters to the result. `slots` 0 is the case's own."""
    shape, generator = case.shape, torch.Generator().manual_seed(case.seed)

    def random(*size: int, std: float) -> Tensor:
        return torch.randn(size, generator=generator) * std

    net = Network(shape, case.depth, case.experts, dtype)
    with torch.no_grad():
        for name, parameter in net.stored().items():
            if parameter.dim() == 1:  # gains and gates around 1
                parameter.copy_(1 + random(*parameter.shape, std=0.2))
            else:
                parameter.copy_(random(*parameter.shape, std=parameter.shape[-1] ** -0.5))
            if name.endswith("depth_emb"):
                parameter.sub_(1)
            if name == "halt.bias":
                parameter.sub_(1.5)
    experts = []
    for _ in range(case.experts):
        weights = {}
        for level in range(shape.expert_depth):
            w1, w3, w2 = level_names(level)
            weights[w1] = random(shape.expert_width, shape.d_model, std=shape.d_model**-0.5)
            weights[w3] = random(shape.expert_width, shape.d_model, std=shape.d_model**-0.5)
            weights[w2] = random(shape.d_model, shape.expert_width, std=shape.expert_width**-0.5)
        experts.append(weights)
    disk = MemoryDisk(
        {
            uid: ExpertRecord(uid, {name: w.numpy().copy() for name, w in weights.items()}, None)
            for uid, weights in enumerate(experts)
        }
    )
    card = ExpertSlots(
        slots or case.routing.resident, shape.d_model, shape.expert_width, shape.expert_depth, dtype, CPU
    )
    pool = ExpertPool(card, disk, Telemetry(case.experts), ram)
    oracle = Oracle.of(shape, case.depth, case.routing, net.stored(), experts)
    return Tiny(case, net, pool, disk, oracle)


def case_of(
    *,
    seed: int = 0,
    characters: int = 6,
    rows: int | None = None,
    experts: int = 4,
    resident: int = 2,
    top_k: int = 2,
    d_model: int = 8,
    n_head: int = 2,
    n_prelude: int = 1,
    n_recur: int = 1,
    n_coda: int = 0,
    max_steps: int = 4,
    width: int = 3,
    expert_depth: int = 1,
    capacity: float = 0.0,
    balance: float = 0.1,
    temperature: float = 0.0,
    bptt: int | None = None,
    min_steps: int = 1,
    halt_thresh: float = 0.6,
    freeze: bool = True,
    ngram: int = 0,
    ngram_rows: int = 5,
    word_rows: int = 0,
) -> Case:
    """A case by its sizes; the text is drawn from the seed."""
    shape = Shape(
        d_model, n_head, 5, n_prelude, n_recur, n_coda, max_steps, width, expert_depth, top_k,
        ngram=ngram, ngram_rows=ngram_rows if ngram else 0, word_rows=word_rows if ngram else 0,
    )  # fmt: skip
    depth = Depth(
        min_steps=min(min_steps, max_steps),
        halt_prior=0.3,
        halt_thresh=halt_thresh,
        halt_freeze=freeze,
        ponder_beta=0.2,
        bptt_window=max_steps if bptt is None else bptt,
        train_steps_mean=0.0,
    )
    generator = torch.Generator().manual_seed(seed + 1)
    ids = torch.randint(0, shape.vocab_size, (characters + 1,), generator=generator).tolist()
    routing = Routing(resident, capacity, balance, temperature)
    return Case(shape, depth, routing, experts, rows or max_steps, tuple(ids), seed)


@st.composite
def cases(draw: st.DrawFn, freeze: bool | None = None, characters: Sequence[int] = (1, 8)) -> Case:
    """Any tiny case; `freeze` True draws only those where halted characters drop out."""
    max_steps = draw(st.integers(1, 5))
    freezing = draw(st.booleans()) if freeze is None else freeze
    n_head = draw(st.integers(1, 2))
    return case_of(
        seed=draw(st.integers(0, 10_000)),
        characters=draw(st.integers(*characters)),
        rows=draw(st.integers(1, max_steps)),
        experts=draw(st.integers(1, 5)),
        resident=draw(st.integers(1, 6)),
        top_k=draw(st.integers(1, 4)),
        d_model=n_head * draw(st.sampled_from((2, 4, 6))),
        n_head=n_head,
        n_prelude=draw(st.integers(0, 2)),
        n_recur=1 if freezing else draw(st.integers(1, 2)),
        n_coda=0 if freezing else draw(st.integers(0, 1)),
        max_steps=max_steps,
        width=draw(st.integers(1, 4)),
        expert_depth=draw(st.integers(1, 3)),
        capacity=draw(st.sampled_from((0.0, 0.4, 1.0, 1.5))),
        bptt=draw(st.integers(1, max_steps)),
        min_steps=draw(st.integers(1, 3)),
        halt_thresh=draw(st.sampled_from((0.05, 0.2, 0.5, 0.9))),
        freeze=freezing,
        ngram=draw(st.sampled_from((0, 0, 2, 3, 5))),
        ngram_rows=draw(st.integers(1, 9)),
        word_rows=draw(st.sampled_from((0, 1, 7))),
    )
