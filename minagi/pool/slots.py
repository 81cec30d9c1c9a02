"""The card's tier: S slots, each holding one expert's weights, gradient and moments, stacked.

A level's two input matrices lie together (`up` = w1 over w3, [S, 2W, D]) so that one product
serves both; `down` is w2 [S, D, W]. Everything is fp32; a copy of the weights in the compute
precision is kept beside them and renewed slot by slot when a slot changed. Where weights are averaged,
`use_average` says which of the two forwards compute with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minagi.pool.copies import Take, copied


def level_names(level: int) -> tuple[str, str, str]:
    """Names of one level's matrices in an expert's file: w1, w3, w2, or b0_w1, b0_w3, b0_w2, …"""
    prefix = "" if level == 0 else f"b{level - 1}_"
    return f"{prefix}w1", f"{prefix}w3", f"{prefix}w2"


WAITING_NUMBERS_MAX = 1 << 27  # numbers of gradient parts held before they are added up


@dataclass
class _Level:
    up: Tensor
    down: Tensor
    up_grad: Tensor
    down_grad: Tensor
    up_m: Tensor
    up_v: Tensor
    down_m: Tensor
    down_v: Tensor
    up_low: Tensor
    down_low: Tensor
    up_a: Tensor  # averages of the weights; the weights themselves where nothing is averaged
    down_a: Tensor

    def stepped(self) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """(weights, gradient, first and second moment) of both stacks."""
        return [
            (self.up, self.up_grad, self.up_m, self.up_v),
            (self.down, self.down_grad, self.down_m, self.down_v),
        ]


@dataclass(frozen=True)
class _Views:
    """One level's matrices in the compute precision, a list entry a slot; the same memory, made once."""

    up: list[Tensor]  # [2W, D]
    down: list[Tensor]  # [D, W]
    up_t: list[Tensor]
    down_t: list[Tensor]

    @classmethod
    def of(cls, up: Tensor, down: Tensor) -> _Views:
        return cls(list(up), list(down), list(up.transpose(1, 2)), list(down.transpose(1, 2)))


@dataclass(frozen=True)
class GradientPart:
    """What one dispatch leaves for the weight gradients of a level.

    `tensors`: d_both [M, 2W], input [M, D], d_y [M, D], hidden [M, W]. Each slot's slice is `sizes` rows.
    """

    level: int
    slots: list[int]
    sizes: list[int]
    tensors: tuple[Tensor, Tensor, Tensor, Tensor]

    @property
    def numbers(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors)


def _put(target: Tensor, array: np.ndarray) -> None:
    """Copy `array`, real numbers or the bits of bf16 ones (int16), to where they belong."""
    source = torch.from_numpy(array)
    target.copy_(source.view(torch.bfloat16) if source.dtype == torch.int16 else source)


class ExpertSlots:
    """Stacked tensors of every slot, and the arithmetic that touches them directly."""

    def __init__(
        self,
        slots: int,
        d_model: int,
        width: int,
        depth: int,
        dtype: torch.dtype,
        device: torch.device,
        averaged: bool = False,
    ) -> None:
        self.averaged, self._average_used = averaged, False
        self.count, self.d_model, self.width, self.depth, self.dtype = slots, d_model, width, depth, dtype
        self.changes = [0] * slots  # how often the weights in a slot changed
        up, down = (slots, 2 * width, d_model), (slots, d_model, width)
        self.levels: list[_Level] = []
        self._waiting: list[GradientPart] = []
        self._waiting_numbers = 0
        for _ in range(depth):
            full = [(torch.zeros(up, device=device), torch.zeros(down, device=device)) for _ in range(4)]
            weights, grads, first, second = full
            low = weights
            if dtype != torch.float32:
                low = (weights[0].to(dtype), weights[1].to(dtype))
            average = (torch.zeros_like(weights[0]), torch.zeros_like(weights[1])) if averaged else weights
            self.levels.append(
                _Level(*weights, *grads, first[0], second[0], first[1], second[1], *low, *average)
            )
        self._newest = self._averages = [_Views.of(level.up_low, level.down_low) for level in self.levels]
        if averaged and dtype == torch.float32:
            self._averages = [_Views.of(level.up_a, level.down_a) for level in self.levels]

    @property
    def views(self) -> list[_Views]:
        """The matrices that forwards compute with, by level."""
        return self._averages if self._average_used else self._newest

    def in_use(self) -> list[tuple[Tensor, Tensor]]:
        """The stacks (up, down) of every level, fp32, that forwards compute with."""
        if self._average_used:
            return [(level.up_a, level.down_a) for level in self.levels]
        return [(level.up, level.down) for level in self.levels]

    def use_average(self, average: bool) -> None:
        """Whether forwards compute with the averages of the weights, or with the newest."""
        if self.averaged and average != self._average_used:
            self._average_used = average
            self.refresh(list(range(self.count)))

    def average(self, slots: list[int], share: float) -> None:
        """Move the averages of these slots towards their weights by `share` of the way."""
        for level in self.levels:
            for mean, newest in ((level.up_a, level.up), (level.down_a, level.down)):
                if len(slots) == self.count:
                    mean.lerp_(newest, share)
                else:
                    for slot in slots:
                        mean[slot].lerp_(newest[slot], share)

    def accumulate(self, part: GradientPart) -> None:
        """Take one call's part of the weight gradients; it is added up by `settle_grad`, or when enough wait.

        The rows of a forward use the same experts again and again, ever fewer characters each. One
        product over all rows' characters is far cheaper than one a row, and is rounded once.
        """
        self._waiting.append(part)
        self._waiting_numbers += part.numbers
        if self._waiting_numbers > WAITING_NUMBERS_MAX:
            self.settle_grad()

    def settle_grad(self) -> None:
        """Bring the gradients up to date: up += d_bothᵀ · input, down += d_yᵀ · hidden, slot by slot."""
        by_slot: dict[tuple[int, int], list[tuple[Tensor, ...]]] = {}
        for part in self._waiting:
            pieces = zip(*(tensor.split(part.sizes) for tensor in part.tensors), strict=True)
            for slot, piece in zip(part.slots, pieces, strict=True):
                by_slot.setdefault((part.level, slot), []).append(piece)
        for (index, slot), found in by_slot.items():
            d_both, inputs, d_y, hidden = (
                found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
            )
            level = self.levels[index]
            self._add_products(level.up_grad[slot], d_both, inputs)
            self._add_products(level.down_grad[slot], d_y, hidden)
        self._waiting.clear()
        self._waiting_numbers = 0

    def _add_products(self, grad: Tensor, left: Tensor, right: Tensor) -> None:
        if self.dtype == torch.float32:
            grad.addmm_(left.t(), right)
        else:
            grad += left.t() @ right

    def zero_grad(self, slots: list[int]) -> None:
        """Clear the gradients of these slots."""
        for level in self.levels:
            for grad in (level.up_grad, level.down_grad):
                if len(slots) == self.count:
                    grad.zero_()
                else:
                    for slot in slots:
                        grad[slot].zero_()

    def refresh(self, slots: list[int]) -> None:
        """Renew the compute copies of these slots after their fp32 weights changed."""
        for slot in slots:
            self.changes[slot] += 1
        if self.dtype == torch.float32:
            return
        for level, used in zip(self.levels, self.in_use(), strict=True):
            for low, full in zip((level.up_low, level.down_low), used, strict=True):
                if len(slots) == self.count:
                    low.copy_(full)
                else:
                    for slot in slots:
                        low[slot].copy_(full[slot])

    def load_weights(
        self, slot: int, weights: dict[str, np.ndarray], average: dict[str, np.ndarray] | None = None
    ) -> None:
        """Put an expert's weights into a slot, and their average: None means it is the weights themselves."""
        for index, level in enumerate(self.levels):
            self._load(level.up[slot], level.down[slot], weights, index)
            if self.averaged:
                self._load(level.up_a[slot], level.down_a[slot], average or weights, index)
        self.refresh([slot])

    def _load(self, up: Tensor, down: Tensor, arrays: dict[str, np.ndarray], level: int) -> None:
        w1, w3, w2 = level_names(level)
        _put(up[: self.width], arrays[w1])
        _put(up[self.width :], arrays[w3])
        _put(down, arrays[w2])

    def load_moments(self, slot: int, moments: dict[str, np.ndarray] | None) -> None:
        """Put an expert's moments into a slot; None means it has none yet: zeros."""
        for index, level in enumerate(self.levels):
            w1, w3, w2 = level_names(index)
            for kind, up, down in (("m", level.up_m, level.down_m), ("v", level.up_v, level.down_v)):
                if moments is None:
                    up[slot].zero_()
                    down[slot].zero_()
                else:
                    _put(up[slot, : self.width], moments[f"{w1}_{kind}"])
                    _put(up[slot, self.width :], moments[f"{w3}_{kind}"])
                    _put(down[slot], moments[f"{w2}_{kind}"])

    def moments_in(self, slot: int) -> list[Tensor]:
        """A slot's moments themselves."""
        return [stack[slot] for lv in self.levels for stack in (lv.up_m, lv.up_v, lv.down_m, lv.down_v)]

    def averages_in(self, slot: int) -> list[Tensor]:
        """A slot's averages themselves; none where nothing is averaged."""
        if not self.averaged:
            return []
        return [stack[slot] for level in self.levels for stack in (level.up_a, level.down_a)]

    def weights_of(self, slot: int, take: Take = copied) -> dict[str, np.ndarray]:
        """A slot's weights, under their names in an expert's file."""
        return {name: take(part) for name, part in self._unstacked(slot, "")}

    def average_of(self, slot: int, take: Take = copied) -> dict[str, np.ndarray] | None:
        """A slot's averages, under the names of the weights; None where nothing is averaged."""
        if not self.averaged:
            return None
        return {name: take(part) for name, part in self._unstacked(slot, "_a")}

    def moments_of(self, slot: int, take: Take = copied) -> dict[str, np.ndarray]:
        """A slot's moments, under their names in an expert's file."""
        return {
            name + kind: take(part) for kind in ("_m", "_v") for name, part in self._unstacked(slot, kind)
        }

    def _unstacked(self, slot: int, kind: str) -> Iterator[tuple[str, Tensor]]:
        for index, level in enumerate(self.levels):
            up, down = getattr(level, "up" + kind)[slot], getattr(level, "down" + kind)[slot]
            yield from zip(level_names(index), (up[: self.width], up[self.width :], down), strict=True)

    def gradients(self, slots: list[int]) -> list[Tensor]:
        """Gradients of these slots, one by one: the norm over them must not hang on what lies where."""
        return [
            grad[slot] for level in self.levels for grad in (level.up_grad, level.down_grad) for slot in slots
        ]

    def stepped(self, slots: list[int]) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """(weights, gradient, m, v) of what a step of these slots changes: views, or the whole stacks."""
        views: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for level in self.levels:
            for tensors in level.stepped():
                if len(slots) == self.count:
                    views.append(tensors)
                else:
                    weight, grad, m, v = tensors
                    views += [(weight[slot], grad[slot], m[slot], v[slot]) for slot in slots]
        return views
