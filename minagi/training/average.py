"""Averaged weights: what reading and writing use, while training goes on with the newest.

A step of few characters leaves the weights in a noisy place; their exponential mean over the last tenth
of what was read lies lower (docs/decisions/cpu-profile.md; Polyak & Juditsky 1992). Every forward tells the
pool whether it trains, and the weights in use are changed when that changes, never in between.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from minagi.model.network import Network
from minagi.pool import ExpertPool
from minagi.pool.copies import round_to_bf16

SHARE = 0.1  # of the characters read since birth, the mean spans this much
EVERY = 1_024  # characters between two updates; a newborn's come sooner


class Averages:
    """Means of every weight since birth: the trunk's and routers' are kept here, the experts' with the
    experts. `longest` is the most characters a mean spans. There are none before the first `load`, and n-gram
    rows, which settle by themselves, have none."""

    def __init__(self, net: Network, pool: ExpertPool, longest: int) -> None:
        self.net, self.pool, self.longest = net, pool, longest
        self._other: dict[str, Tensor] = {}  # whichever of weights and means the network does not hold now
        self._in_use = False
        pool.use_weights = self._forward_begins

    def newest(self) -> None:
        """The network holds the newest weights, as whoever changes or keeps them needs."""
        self._forward_begins(True)

    def of(self, name: str) -> Tensor:
        """The mean of a parameter; the network must hold the newest weights."""
        assert not self._in_use
        return self._other[name]

    def replace(self, name: str, mean: Tensor) -> None:
        """Another mean for a parameter that changed its size."""
        assert not self._in_use
        self._other[name] = mean

    def load(self, means: Mapping[str, Tensor] | None) -> None:
        """Take over stored means; None begins them with the weights as they are."""
        self.newest()
        for name, parameter in self.net.dense_parameters():
            mean = parameter.detach() if means is None else means[name]
            self._other[name] = mean.to(parameter.device, copy=True)

    @torch.no_grad()
    def stepped(self, chars: int, total: int, weight: float) -> None:
        """A step read `chars` new characters, which makes `total` since birth, and changed the weights.
        One at a lower rate, `weight` of the usual, counts less: else the mean would shrink to a few steps."""
        # A power of two, so that it stays as it is until `total` has doubled: else its multiples would move
        # away as fast as the total comes near.
        every = min(EVERY, 1 << max(0, (total // 16).bit_length() - 1))
        if total // every == (total - chars) // every:
            return
        new = weight * max(chars, every)
        share = new / (new + min(SHARE * total, self.longest))
        for name, parameter in self.net.dense_parameters():
            self._other[name].lerp_(parameter, share)
        self.pool.average(share)

    def round(self) -> None:
        """Make the means what a checkpoint holds of them (see ExpertPool.settle)."""
        round_to_bf16(self._other.values())

    def _forward_begins(self, training: bool) -> None:
        if training is not self._in_use:
            return
        for name, parameter in self.net.dense_parameters():
            parameter.data, self._other[name] = self._other[name], parameter.data
        self._in_use = not training
        self.net.precision.refresh()
        self.pool.slots.use_average(self._in_use)
