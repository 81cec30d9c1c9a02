"""Hashed n-gram embeddings: a row for each character's recent past, added to the character's own.

A newborn that has to learn from a few hundred thousand characters what follows "th" spends minutes on
what a table learns at first sight. So the last 2, 3, … characters each choose a row of a table by their
hash, and the rows are added to the character's embedding (hash embeddings: Svenstrup et al. 2017,
arXiv:1709.03933; on bytes: Pagnoni et al. 2024, arXiv:2412.09871). The word it stands in, and that with the
word before, may choose rows as well (`minagi.model.words`). Only the rows a text touched are
stepped, by AdaGrad with one sum of squares a row (Duchi et al. 2011): what was seen often moves little,
what is new moves far, and what was not met stays as it is. The sums forget slowly, or a model that reads for
years could learn nothing new in rows it meets everywhere (docs/decisions/cpu-profile.md). Text that is read
again would be known by its longest n-grams alone; so in training some characters get only their shorter ones.

Rows that have seen a text hold what follows in that very text. Where it is to be read again, young rows can
begin at nothing beside them: these are what training uses and steps, the others what reading uses, until
the young ones know enough to take their place. What pairs and triples of characters know is of the language
and not of the text, so they begin with that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from minagi.model import words
from minagi.model.words import MULTIPLIER, PRIME

EPS = 1e-10
MEMORY = 1 << 14  # steps that met a row which its sum of squares spans: none is smaller than rate / 128
OF_THE_LANGUAGE = 3  # characters of the longest n-grams whose young rows begin with what is known
WAITING_ROWS_MAX = 1 << 16  # gradients of single n-grams that may wait to be summed up


class Rows(NamedTuple):
    """A gradient: places [R] in the table and what reached each of them [R, D]."""

    places: Tensor
    grad: Tensor


class NgramEmbedding(nn.Module):
    """Rows for n-grams of 2 to `longest` characters, `rows` of each length, and `word_rows` for each kind of
    word hash: [(longest − 1) · rows + KINDS · word_rows, D].

    The rows are not autograd's: what a backward pass hands to them is kept here until `step`. In
    training a share `drop` of the characters gets its n-grams up to some length only, each as likely; words
    count as longer than any n-gram.
    Young rows, where there are any, are what training uses instead, and what `step` moves.
    """

    def __init__(self, longest: int, rows: int, d_model: int, word_rows: int = 0) -> None:
        super().__init__()
        self.longest, self.rows, self.word_rows, self.drop = longest, rows, word_rows, 0.0
        self.kinds = longest - 1 + (words.KINDS if word_rows else 0)  # rows a character may choose
        count = (longest - 1) * rows + words.KINDS * word_rows
        self.weight = nn.Parameter(torch.zeros(count, d_model), requires_grad=False)
        # AdaGrad's sums, stored with the weights and in full: rounded sums would stop growing.
        self.squares: Tensor
        self.register_buffer("squares", torch.zeros(count))
        self.young: Tensor | None
        self.young_squares: Tensor | None
        self.have_young(False)
        self._met: list[Rows] = []  # of backward passes, a place as often as it was met
        self._summed: Rows | None = None  # of those before

    @property
    def reach(self) -> int:
        """Characters before a character that its rows may hang on."""
        return max(self.longest - 1, words.REACH if self.word_rows else 0)

    @property
    def learning(self) -> tuple[Tensor, Tensor]:
        """The rows that training uses and moves, and their sums of squares."""
        if self.young is None or self.young_squares is None:
            return self.weight, self.squares
        return self.young, self.young_squares

    def begin_anew(self) -> None:
        """Learn with young rows from now on, which know nothing but the shortest n-grams; reading uses what
        was learned so far."""
        self.take_over()
        self.have_young(True)
        assert self.young is not None and self.young_squares is not None
        known = (min(self.longest, OF_THE_LANGUAGE) - 1) * self.rows
        self.young[:known] = self.weight.detach()[:known]
        self.young_squares[:known] = self.squares[:known]

    @torch.no_grad()
    def take_over(self) -> None:
        """Put the young rows, if there are any, in the place of the others."""
        rows, squares = self.learning
        if rows is not self.weight:
            self.weight.copy_(rows)
            self.squares.copy_(squares)
        self.have_young(False)

    def have_young(self, wanted: bool) -> None:
        """Have young rows at nothing, or none."""
        for name, like in (("young", self.weight), ("young_squares", self.squares)):
            self.register_buffer(name, torch.zeros_like(like.detach()) if wanted else None)

    def forward(
        self, x: Tensor, ids: Tensor, before: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """x [T, D] plus the rows of ids [T]; `before` are the last characters in front of them, as many
        as there are up to `reach`. `generator` draws who gets short n-grams, in training."""
        places = self.places(ids, before)
        if torch.is_grad_enabled() and x.requires_grad:
            return _Added.apply(x, self, places, self.kept(ids, generator))
        return x + self.weight.index_select(0, places.flatten()).view(*places.shape, -1).sum(0)

    def kept(self, ids: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """[kinds, T] which rows of ids [T] a training forward uses; None for all of them."""
        if not self.drop:
            return None
        device = ids.device if generator is None else generator.device
        drawn = torch.rand(ids.shape[0], generator=generator, device=device).to(ids.device)
        # Below `drop` the draw is even over how many kinds there are; above, all are used.
        used = ((drawn / self.drop).clamp_max(1) * self.kinds).long()
        return torch.arange(self.kinds, device=ids.device)[:, None] < used

    def places(self, ids: Tensor, before: Tensor) -> Tensor:
        """The rows that ids [T] choose, [kinds, T]: n-grams from the shortest on, then words. Where a text
        begins, n-grams are short."""
        count = ids.shape[0]
        symbols = torch.cat((before[max(0, before.shape[0] - self.reach) :], ids)) + 1  # 0: no character
        symbols = torch.cat((symbols.new_zeros(max(0, self.longest - 1 + count - symbols.shape[0])), symbols))
        newest = symbols.shape[0] - count
        found = self._hashed([symbols[newest - back :][:count] for back in range(self.longest)])
        if self.word_rows:
            found += self._of_words(words.hashes(symbols, count))
        return torch.stack(found)

    def row(self, recent: list[int]) -> np.ndarray:
        """What is added to the last of `recent` ids, oldest first, [D], on a processor."""
        symbols = [0] * (self.longest - len(recent)) + [symbol + 1 for symbol in recent[-self.reach - 1 :]]
        found = self._hashed(symbols[: -self.longest - 1 : -1])
        if self.word_rows:
            found += self._of_words(words.last_hashes(symbols))
        return self.weight.numpy()[found].sum(0)

    def _hashed(self, backwards: list[Any]) -> list[Any]:
        """Places of the n-grams of 2, 3, … characters, the newest given first; tensors and numbers alike."""
        hashed, places = backwards[0], []
        for length, symbol in enumerate(backwards[1:]):
            hashed = (hashed * MULTIPLIER + symbol) % PRIME
            places.append(hashed % self.rows + length * self.rows)
        return places

    def _of_words(self, hashed: Iterable[Any]) -> list[Any]:
        """Places of words by their hashes of each kind; tensors and numbers alike."""
        begin = (self.longest - 1) * self.rows
        return [h % self.word_rows + begin + kind * self.word_rows for kind, h in enumerate(hashed)]

    # ----------------------------------------------------------------------------------------- steps

    def take(self, rows: Rows) -> None:
        """What a backward pass gives, a place as often as it was met."""
        self._met.append(rows)
        if sum(len(met.places) for met in self._met) > WAITING_ROWS_MAX:
            self.gradient()

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
        rows, sums = self.learning
        squares = sums.index_select(0, met.places) * (1 - 1 / MEMORY) + grad.square().mean(1)
        sums.index_copy_(0, met.places, squares)
        rows.index_add_(0, met.places, grad * (-lr / (squares.sqrt() + EPS))[:, None])

    def forget(self) -> None:
        """Give up what the backward passes since the last step gave."""
        self._met, self._summed = [], None


class _Added(torch.autograd.Function):
    """x plus its rows; the gradient goes on to x, and with the rows' places to the module."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: NgramEmbedding, places: Tensor, kept: Tensor | None) -> Tensor:
        owner = torch.arange(x.shape[0], device=x.device).repeat(places.shape[0])
        places = places.flatten()
        if kept is not None:
            chosen = kept.flatten().nonzero().flatten()
            owner, places = owner.index_select(0, chosen), places.index_select(0, chosen)
        ctx.table, ctx.places, ctx.owner = table, places, owner
        return x.index_add(0, owner, table.learning[0].index_select(0, places))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.table.take(Rows(ctx.places, grads[0].index_select(0, ctx.owner)))
        return grads[0], None, None, None
