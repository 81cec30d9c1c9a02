"""The expert mixture: every character through its experts, as plain products over sorted slices.

Assignments are sorted by expert, so each sees one contiguous slice and runs one product a
matrix: no common padding, no per-character loop, no gathered weights. Gradients of expert weights go
straight to the slots (`ExpertSlots.accumulate`), never through autograd.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from minagi.model.buckets import bucket
from minagi.pool.slots import ExpertSlots, GradientPart


class Assignments:
    """Which characters each expert serves, sorted by expert and, within one, by place in the text.

    `chosen` [N, K] are places in `slots`, which lists the admitted experts' slots in pool order. The order
    is that of the pool and not of the slots: what lies where on the card must not change a sum's last bit.
    Each slot's slice is filled up to a bucket's size: `token` [M] are the characters, N where a row only
    fills up; `order` [M] indexes the flattened [N, K] requests, N·K where a row only fills up.
    """

    def __init__(self, chosen: Tensor, slots: list[int], capacity: int) -> None:
        characters, top_k = chosen.shape
        flat = chosen.flatten()
        order = torch.argsort(flat, stable=True)
        self.slots: list[int] = []  # of the experts that serve somebody
        self.sizes: list[int] = []  # rows of each one's slice
        self.dropped = 0
        self.counts = torch.bincount(flat, minlength=len(slots)).tolist()  # requests, by place in `slots`
        first: list[int] = []  # likewise: where its sorted requests begin, and where its slice does
        target: list[int] = []
        begun = rows = 0
        for slot, count in zip(slots, self.counts, strict=True):
            first.append(begun)
            target.append(rows)
            begun += count
            if count:
                taken = min(count, capacity) if capacity else count
                self.dropped += count - taken
                self.slots.append(slot)
                self.sizes.append(bucket(taken, flat.device) if characters > 1 else taken)
                rows += self.sizes[-1]
        expert = flat.index_select(0, order)
        starts = torch.tensor([first, target], device=flat.device).index_select(1, expert)
        place = torch.arange(len(order), device=flat.device) - starts[0]  # among its expert's requests
        if self.dropped:
            kept = (place < capacity).nonzero().flatten()
            place, order, starts = place[kept], order[kept], starts[:, kept]
        self.order = order.new_full((rows,), characters * top_k)
        self.order.index_copy_(0, starts[1] + place, order)
        self.token = self.order // top_k


def capacity_bound(factor: float, characters: int, top_k: int, slots: int) -> int:
    """Assignments one expert may take in one call; 0 when unbounded."""
    return math.ceil(factor * characters * top_k / slots) if factor > 0 else 0


def mix(x: Tensor, weights: Tensor, assignments: Assignments, slots: ExpertSlots) -> Tensor:
    """Σ weight · expert(x) for x [N, D] in the compute precision, weights [N, K] fp32 -> [N, D] fp32."""
    if torch.is_grad_enabled():
        return _Mixture.apply(x, weights, assignments, slots)
    y, _ = _forward(x, assignments, slots)
    return _combine(y * _sorted(weights, assignments)[:, None], assignments, x.shape[0])


def _gathered(x: Tensor, assignments: Assignments) -> Tensor:
    """x [N, D] -> the characters' rows [M, D], zeros where a row only fills up."""
    return F.pad(x, (0, 0, 0, 1)).index_select(0, assignments.token)


def _sorted(weights: Tensor, assignments: Assignments) -> Tensor:
    """weights [N, K] -> [M], 0 where a row only fills up."""
    return F.pad(weights.flatten(), (0, 1)).index_select(0, assignments.order)


def _combine(y: Tensor, assignments: Assignments, characters: int) -> Tensor:
    """Sum of each character's rows of y [M, D] -> [N, D] fp32."""
    out = torch.zeros(characters + 1, y.shape[1], dtype=torch.float32, device=y.device)
    return out.index_add_(0, assignments.token, y.float())[:characters]


def _each(x: Tensor, matrices: list[Tensor], out: Tensor, assignments: Assignments) -> None:
    """out = x · matrix of the slot, slice by slice."""
    sizes = assignments.sizes
    for slot, given, made in zip(assignments.slots, x.split(sizes), out.split(sizes), strict=True):
        torch.mm(given, matrices[slot], out=made)


def _forward(x: Tensor, assignments: Assignments, slots: ExpertSlots) -> tuple[Tensor, list[Tensor]]:
    """Unweighted expert outputs [M, D], and per level its input and the two halves before the gate."""
    level_input = _gathered(x, assignments)
    saved = []
    for level in range(slots.depth):
        views = slots.views[level]
        both = level_input.new_empty(level_input.shape[0], 2 * slots.width)
        _each(level_input, views.up_t, both, assignments)
        hidden = F.silu(both[:, : slots.width]).mul_(both[:, slots.width :])
        y = torch.empty_like(level_input)
        _each(hidden, views.down_t, y, assignments)
        saved += [level_input, both]
        if slots.depth > 1:  # deeper experts are residual on their input
            y += level_input
        level_input = y
    return level_input, saved


class _Mixture(torch.autograd.Function):
    """`mix` with its gradient: kept are each level's input and pre-activations, the rest is redone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, assignments: Assignments, slots: ExpertSlots) -> Tensor:
        y, saved = _forward(x, assignments, slots)
        weight = _sorted(weights, assignments)
        ctx.save_for_backward(weight, *saved)
        ctx.assignments, ctx.slots, ctx.shape = assignments, slots, weights.shape
        return _combine(y * weight[:, None], assignments, x.shape[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (grad,) = grads
        weight, *saved = ctx.saved_tensors
        assignments, slots = ctx.assignments, ctx.slots
        low = saved[0].dtype
        d_y = _gathered(grad.to(low), assignments)  # [M, D], not yet weighted
        d_weight = None
        for level in reversed(range(slots.depth)):
            level_input, both = saved[2 * level], saved[2 * level + 1]
            gate, value = both[:, : slots.width], both[:, slots.width :]
            act = F.silu(gate)
            hidden = act * value
            d_hidden = torch.empty_like(hidden)
            _each(d_y, slots.views[level].down, d_hidden, assignments)
            if d_weight is None:  # last level: d weight = ⟨d_y, y⟩, which is ⟨d_y·w2, hidden⟩
                d_weight = (d_hidden * hidden).sum(1, dtype=torch.float32)
                if slots.depth > 1:
                    d_weight += (d_y * level_input).sum(1, dtype=torch.float32)
                scale = weight.to(low)[:, None]
                d_hidden.mul_(scale)
                d_y = d_y * scale
            d_both = torch.empty_like(both)
            torch.mul(d_hidden, act, out=d_both[:, slots.width :])
            d_both[:, : slots.width] = torch.ops.aten.silu_backward(d_hidden * value, gate)
            d_y = _level_backward(level, level_input, hidden, d_y, d_both, assignments, slots)
        assert d_weight is not None
        d_weights = d_weight.new_zeros(math.prod(ctx.shape) + 1)
        d_weights[assignments.order] = d_weight
        return (
            _combine(d_y, assignments, grad.shape[0]).to(low),
            d_weights[:-1].view(ctx.shape),
            None,
            None,
        )


def _level_backward(
    level: int,
    level_input: Tensor,
    hidden: Tensor,
    d_y: Tensor,
    d_both: Tensor,
    assignments: Assignments,
    slots: ExpertSlots,
) -> Tensor:
    """Weight gradients to the slots; returns the gradient of the level's input [M, D]."""
    tensors = (d_both, level_input, d_y, hidden)
    slots.accumulate(GradientPart(level, assignments.slots, assignments.sizes, tensors))
    d_input = torch.empty_like(level_input)
    _each(d_both, slots.views[level].up, d_input, assignments)
    if slots.depth > 1:
        d_input += d_y
    return d_input
