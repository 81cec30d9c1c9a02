"""Hashed n-gram embeddings: a row for each character's recent past, added to the character's own.

A newborn that has to learn from a few hundred thousand characters what follows "th" spends minutes on
what a table learns at first sight. So the last 2, 3, … characters each choose a row of a table by their
hash, and the rows are added to the character's embedding (hash embeddings: Svenstrup et al. 2017,
arXiv:1709.03933; on bytes: Pagnoni et al. 2024, arXiv:2412.09871). Only the rows a text touched are
stepped, by AdaGrad with one sum of squares a row (Duchi et al. 2011): what was seen often moves little,
what is new moves far, and what was not met stays as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

PRIME = (1 << 31) - 1  # hashes are taken modulo this, so that a product of two fits 63 bits
MULTIPLIER = 0x2E6F1A35
EPS = 1e-10


class Rows(NamedTuple):
    """A gradient: places [R] in the table and what reached each of them [R, D]."""

    places: Tensor
    grad: Tensor


class NgramEmbedding(nn.Module):
    """Rows for n-grams of 2 to `longest` characters, `rows` of each length: [(longest − 1) · rows, D].

    Neither tensor is autograd's: what a backward pass hands to the rows is kept here until `step`.
    """

    def __init__(self, longest: int, rows: int, d_model: int) -> None:
        super().__init__()
        self.longest, self.rows = longest, rows
        self.weight = nn.Parameter(torch.zeros((longest - 1) * rows, d_model), requires_grad=False)
        # AdaGrad's sums, stored with the weights and in full: rounded sums would stop growing.
        self.squares = nn.Parameter(torch.zeros((longest - 1) * rows), requires_grad=False)
        self._met: list[Rows] = []  # of backward passes, a place as often as it was met
        self._summed: Rows | None = None  # of those before

    @property
    def reach(self) -> int:
        """Characters before a character that its n-grams may hold."""
        return self.longest - 1

    def forward(self, x: Tensor, ids: Tensor, before: Tensor) -> Tensor:
        """x [T, D] plus the rows of ids [T]; `before` are the last characters in front of them, as many
        as there are up to `reach`."""
        places = self.places(ids, before)
        if torch.is_grad_enabled() and x.requires_grad:
            return _Added.apply(x, self, places)
        return self._added(x, places)

    def places(self, ids: Tensor, before: Tensor) -> Tensor:
        """The row each n-gram of ids [T] ends at, [lengths, T]. Where a text begins, n-grams are short."""
        symbols = torch.cat((before[max(0, before.shape[0] - self.reach) :], ids)) + 1  # 0: no character
        symbols = torch.cat((symbols.new_zeros(self.reach + ids.shape[0] - symbols.shape[0]), symbols))
        count = ids.shape[0]
        hashed = symbols[self.reach :]
        found = []
        for back in range(1, self.longest):
            start = self.reach - back
            hashed = mixed(hashed, symbols[start : start + count])
            found.append(hashed % self.rows + (back - 1) * self.rows)
        return torch.stack(found)

    def row(self, recent: list[int]) -> np.ndarray:
        """What is added to the last of `recent` ids, oldest first, [D], on a processor."""
        symbols = [0] * (self.longest - len(recent)) + [symbol + 1 for symbol in recent[-self.longest :]]
        hashed = symbols[-1]
        places = []
        for back in range(1, self.longest):
            hashed = mixed(hashed, symbols[-1 - back])
            places.append(hashed % self.rows + (back - 1) * self.rows)
        return self.weight.numpy()[places].sum(0)

    def _added(self, x: Tensor, places: Tensor) -> Tensor:
        rows = self.weight.index_select(0, places.flatten())
        return x + rows.view(*places.shape, -1).sum(0)

    # ----------------------------------------------------------------------------------------- steps

    def gradient(self) -> Rows | None:
        """What the backward passes since the last step gave, every place once; None when there were none."""
        if self._met:
            met = self._met if self._summed is None else [self._summed, *self._met]
            grads = torch.cat([rows.grad for rows in met])
            places, where = torch.cat([rows.places for rows in met]).unique(return_inverse=True)
            summed = grads.new_zeros(places.shape[0], grads.shape[1]).index_add_(0, where, grads)
            self._met, self._summed = [], Rows(places, summed)
        return self._summed

    @torch.no_grad()
    def step(self, lr: float, scale: float) -> None:
        """Move the rows that were met by AdaGrad, their gradient divided by `scale`; forget the gradient."""
        met = self.gradient()
        self.forget()
        if met is None:
            return
        grad = met.grad / scale
        squares = self.squares.index_select(0, met.places) + grad.square().mean(1)
        self.squares.index_copy_(0, met.places, squares)
        self.weight.index_add_(0, met.places, grad * (-lr / (squares.sqrt() + EPS))[:, None])

    def forget(self) -> None:
        """Give up what the backward passes since the last step gave."""
        self._met, self._summed = [], None


def mixed(hashed: Any, symbol: Any) -> Any:
    """The hash of an n-gram with one more character in front; tensors and plain numbers alike."""
    return (hashed * MULTIPLIER + symbol) % PRIME


class _Added(torch.autograd.Function):
    """x plus its rows; the gradient goes on to x, and with the rows' places to the module."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: NgramEmbedding, places: Tensor) -> Tensor:
        ctx.table, ctx.places = table, places
        return table._added(x, places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        lengths = ctx.places.shape[0]
        ctx.table._met.append(Rows(ctx.places.flatten(), grads[0].repeat(lengths, 1)))
        return grads[0], None, None
