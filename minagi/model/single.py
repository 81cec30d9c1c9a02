"""Reading one character at a time on a processor: what `reading.read` computes, for the written character.

A written character is a few hundred products of one row, and a call into torch costs more than most of them:
so they are numpy's, in fp32 and on the parameters' own memory. Where experts are large, they are packed bf16
if the model computes in that (`packed.py`), and threads share the experts of a row (docs/decisions/speed.md).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import cast

import numpy as np
import torch
from torch import Tensor

from minagi.model import packed
from minagi.model.cache import Text
from minagi.model.layers import Attention, Block, SwiGLU
from minagi.model.network import Network
from minagi.model.packed import Array, Product
from minagi.model.routing import Card, Forward, PoolMlp
from minagi.model.shape import NORM_EPS, Routing
from minagi.pool.slots import ExpertSlots

LARGE = 1 << 20  # numbers of an expert's input matrices from which threads share a row's experts
Expert = list[tuple[Product, Product]]  # a pair a level: into the hidden units (w1 over w3), and out of them


def serves(net: Network, routing: Routing) -> bool:
    """Whether this kind of network can be read so: halting with freeze, nothing drawn, on a processor."""
    on_processor = net.tok_emb.weight.device.type == "cpu"
    return on_processor and net.freezes and routing.select_temperature == 0


def product(weight: Tensor) -> Product:
    """x -> weight · x for a matrix [out, in], fp32."""
    return cast(Product, weight.detach().numpy().dot)


class _Attention:
    """One block's attention: norm, projections."""

    def __init__(self, block: Block) -> None:
        self.norm = _vector(block.ln1.weight)
        attention: Attention = block.attn
        self.qkv, self.proj = product(attention.qkv.weight), product(attention.proj.weight)


class _Dense(_Attention):
    """A block of the prelude."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        mlp = cast(SwiGLU, block.mlp)
        self.norm2 = _vector(block.ln2.weight)
        self.w1, self.w3, self.w2 = (product(linear.weight) for linear in (mlp.w1, mlp.w3, mlp.w2))


class SingleReader:
    """Reads on behind what `text` holds, and is the only one to do so until `give_back`. See `serves`.

    The text's vote and position stay its own; its keys and values are taken over, [layers, H, capacity, hd].
    Everything else is the parameters' own memory, so a step between two characters is seen.
    """

    def __init__(self, net: Network, card: Card, routing: Routing, text: Text) -> None:
        self.net, self.card, self.routing, self.text = net, card, routing, text
        self._taken = text.position  # characters whose keys the text has itself
        self._keys, self._values = (part.numpy() for part in text.keys_and_values())
        self._scale = net.shape.head_size**-0.5
        large = card.slots.levels[0].up[0].numel() >= LARGE
        self._packs = large and card.slots.dtype == torch.bfloat16 and packed.pays()
        self._helpers = min(torch.get_num_threads(), net.shape.top_k) - 1 if large else 0
        self._threads = _threads(self._helpers) if self._helpers else None
        self._expert_seconds = 0.0  # what one took when this thread last computed any
        self._router_at = 0  # where the router's weights lay when products were made of everything
        self._routed: tuple[tuple[int, ...], Array] = ((), np.empty(0))  # admitted places, their rows

    def read(self, symbol: int) -> tuple[Array, int]:
        """Read one id: its logits [V] where it halted, and the row that was, counted from 1."""
        forward = Forward(self.card, self.text, self.routing)  # chooses the weights in use
        self._prepare()
        self._reserve()
        with np.errstate(over="ignore", invalid="ignore"):  # a broken model is seen in its logits
            return self._rows(symbol, forward)

    def give_back(self) -> None:
        """Let the text have its keys and values again."""
        new = slice(self._taken, self.text.position)
        self.text.put(torch.from_numpy(self._keys[:, :, new]), torch.from_numpy(self._values[:, :, new]), new)

    def _rows(self, symbol: int, forward: Forward) -> tuple[Array, int]:
        """The prelude, then rows until the character halts."""
        self._routed = ((), np.empty(0))
        net, shape = self.net, self.net.shape
        position = self.text.position
        factors = net.rotary.factors(position + 1, torch.device("cpu"))[position].numpy()
        x = self._embedding[symbol]
        if net.ngram is not None:
            x = x + net.ngram.row([*self.text.before.tolist(), symbol])
        for layer, block in enumerate(self._prelude):
            x = x + self._attend(block, layer, x, factors)
            normed = _normed(x, block.norm2)
            x = x + block.w2(_gated(block.w1(normed), block.w3(normed)))
        given = self._adapt_given(x)
        h = np.zeros_like(x)
        remaining = 1.0
        for row in range(shape.max_steps):
            u = self._adapt_state(h) + given
            u = u + self._attend(self._recurrent, shape.n_prelude + row, u, factors)
            h = u + self._mixture(_normed(u, self._norm2), forward, row)
            readout = _normed(h, self._norm_out)
            remaining *= 1 - self._halting(readout, row)
            if row == shape.max_steps - 1 or 1 - remaining >= net.depth.halt_thresh:
                break
        self._carry(self._adapt_state(h) + given, row + 1, factors)
        self.text.passed(torch.tensor([symbol]))
        return self._readout(readout), row + 1

    # ----------------------------------------------------------------------------------- the parts

    def _attend(self, block: _Attention, layer: int, x: Array, factors: Array) -> Array:
        """Attention of x [D], which comes last in the text, over all of it."""
        shape, end = self.net.shape, self.text.position + 1
        qkv = block.qkv(_normed(x, block.norm)).reshape(3, shape.n_head, shape.head_size)
        q, k = _rotated(qkv[:2], factors)
        self._keys[layer, :, end - 1] = k
        self._values[layer, :, end - 1] = qkv[2]
        scores = np.matmul(self._keys[layer, :, :end], q[:, :, None] * self._scale)[:, :, 0]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.matmul(weights[:, None], self._values[layer, :, :end])[:, 0]
        return block.proj((mixed / weights.sum(-1, keepdims=True)).reshape(-1))

    def _carry(self, u: Array, row: int, factors: Array) -> None:
        """The halted character's keys and values for every row from `row` on."""
        shape = self.net.shape
        if row == shape.max_steps:
            return
        qkv = self._recurrent.qkv(_normed(u, self._recurrent.norm)).reshape(3, shape.n_head, shape.head_size)
        place = (slice(shape.n_prelude + row, None), slice(None), self.text.position)
        self._keys[place] = _rotated(qkv[1:2], factors)[0]
        self._values[place] = qkv[2]

    def _halting(self, readout: Array, row: int) -> float:
        """λ of this row; what the last row's is forced to makes no difference any more."""
        if row < self.net.depth.min_steps - 1:
            return 0.0
        z = float(self._halt_weight.dot(readout) + self._halt_bias[0])
        return 1 / (1 + math.exp(-z)) if z > -700 else 0.0

    def _mixture(self, f: Array, forward: Forward, row: int) -> Array:
        """f [D] through the experts it chooses among the admitted."""
        keyed = f + self._depth_emb
        if forward.room > 0:
            self._ask(keyed, forward, row)
        order = sorted(range(len(forward.admitted)), key=forward.admitted.__getitem__)
        places = tuple(forward.admitted[i] for i in order)
        if self._routed[0] != places:
            self._routed = (places, self._router[list(places)])
        scores = self._routed[1].dot(keyed)
        best = np.argsort(-scores, kind="stable")[: self._top_k]
        weights = np.exp(scores[best] - scores[best[0]])
        weights /= weights.sum()
        experts = [self._expert(forward.slots[order[choice]]) for choice in best.tolist()]
        with packed.one_thread() if self._packs else nullcontext():
            found = (
                [self._through(expert, f) for expert in experts]
                if self._threads is None
                else self._shared(self._threads, experts, f)
            )
        out = np.zeros_like(f)
        for choice, weight, y in zip(best.tolist(), weights, found, strict=True):
            out += (weight * self._gate[places[choice]]) * y
        return out

    def _shared(self, threads: ThreadPoolExecutor, experts: list[Expert], f: Array) -> list[Array]:
        """f through every expert. Helpers take from the other end, and none is waited for longer than an
        expert takes: on a busy machine it may not be running, and what it has taken is computed here then."""
        found: dict[int, Array] = {}
        left = deque(range(len(experts)))

        def work(take: Callable[[], int]) -> int:
            with np.errstate(over="ignore", invalid="ignore"):
                for done in range(len(experts)):
                    try:
                        index = take()
                    except IndexError:
                        return done
                    found[index] = self._through(experts[index], f)
            return len(experts)

        helping = [threads.submit(work, left.pop) for _ in range(self._helpers)]
        began = time.perf_counter()
        own = work(left.popleft)
        if own:
            self._expert_seconds = (time.perf_counter() - began) / own
        wait(helping, self._expert_seconds)
        return [
            found[index] if index in found else self._through(expert, f)
            for index, expert in enumerate(experts)
        ]

    def _through(self, expert: Expert, f: Array) -> Array:
        """f through one expert; deeper levels are residual on their input."""
        x, width = f, self._slots.width
        for up, down in expert:
            both = up(x)
            y = down(_gated(both[:width], both[width:]))
            x = x + y if len(expert) > 1 else y
        return x

    def _ask(self, keyed: Array, forward: Forward, row: int) -> None:
        """As `PoolMlp` asks: the text's vote (first row) or this row's asking admits experts."""
        scores = self._router.dot(keyed)
        q = np.exp(scores - scores.max())
        q /= q.sum()
        mass = np.zeros_like(q)
        top = np.argsort(-q, kind="stable")[: self._top_k]
        mass[top] = q[top]
        mass = np.nan_to_num(mass, nan=0.0)
        if row == 0:
            if self.text.vote is None:
                self.text.vote = torch.zeros(len(mass))
            self.text.vote += torch.from_numpy(mass)
            mass = self.text.vote.numpy().copy()
        if forward.admitted:
            mass[forward.admitted] = 0
        ranked = np.argsort(-mass, kind="stable")  # ties go to the lower index
        wanted = max(int((mass > 0).sum()), 0 if forward.admitted else 1)
        forward.admit(ranked[:wanted].tolist())

    # ------------------------------------------------------------------------------------ preparing

    def _prepare(self) -> None:
        """Make products of the weights in use; again only when they lie elsewhere."""
        net = self.net
        (recurrent,) = net.recur
        mlp = cast(PoolMlp, recurrent.mlp)
        if mlp.router.weight.data_ptr() == self._router_at:
            return
        self._router_at = mlp.router.weight.data_ptr()
        d = net.shape.d_model
        self._embedding = _vector(net.tok_emb.weight)
        self._readout = product(net.tok_emb.weight)
        self._prelude = [_Dense(block) for block in net.prelude]
        self._recurrent = _Attention(recurrent)
        adapter = net.adapter.weight
        self._adapt_state, self._adapt_given = product(adapter[:, :d]), product(adapter[:, d:])
        self._norm2, self._norm_out = _vector(recurrent.ln2.weight), _vector(net.ln_f.weight)
        self._halt_weight, self._halt_bias = _vector(net.halt.weight)[0], _vector(net.halt.bias)
        self._router, self._depth_emb, self._top_k = (
            _vector(mlp.router.weight),
            _vector(mlp.depth_emb),
            mlp.top_k,
        )
        self._gate = _vector(net.pool.gate)
        self._slots: ExpertSlots = self.card.slots
        self._experts: dict[int, Expert] = {}
        self._packed_at: dict[int, int] = {}  # slot -> its changes when it was packed

    def _expert(self, slot: int) -> Expert:
        """A slot's products: on its memory, whichever expert lies there, or packed anew when it changed."""
        changes = self._slots.changes[slot] if self._packs else 0
        if slot not in self._experts or self._packed_at[slot] != changes:
            self._packed_at[slot] = changes
            if self._packs:
                levels = [(packed.packed(v.up[slot]), packed.packed(v.down[slot])) for v in self._slots.views]
            else:
                levels = [(product(up[slot]), product(down[slot])) for up, down in self._slots.in_use()]
            self._experts[slot] = levels
        return self._experts[slot]

    def _reserve(self) -> None:
        """Make room for one more character."""
        capacity = self._keys.shape[2]
        if self.text.position < capacity:
            return
        size = list(self._keys.shape)
        size[2] = max(2 * capacity, 64)
        for name in ("_keys", "_values"):
            held = getattr(self, name)
            bigger = np.empty(size, np.float32)
            bigger[:, :, :capacity] = held
            setattr(self, name, bigger)


def _threads(count: int) -> ThreadPoolExecutor:
    """Threads that multiply by themselves, each product theirs alone."""
    return ThreadPoolExecutor(count, "minagi-writing", initializer=torch.set_num_threads, initargs=(1,))


def _vector(parameter: Tensor) -> Array:
    """A parameter's numbers, in its own memory."""
    return parameter.detach().numpy()


def _normed(x: Array, weight: Array) -> Array:
    return x * (1 / math.sqrt(float(x.dot(x)) / len(x) + NORM_EPS)) * weight


def _gated(gate: Array, value: Array) -> Array:
    """silu(gate) · value."""
    return gate / (1 + np.exp(-gate)) * value


def _rotated(heads: Array, factors: Array) -> Array:
    """[…, H, hd] with every pair turned by the position's factors [hd/2], complex."""
    return (np.ascontiguousarray(heads).view(np.complex64) * factors).view(np.float32)
