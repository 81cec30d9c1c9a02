"""Growth and pruning: the pool's arrays, the routers, the gate and their moments change size together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from minagi.model.network import Network
from minagi.pool import ExpertPool
from minagi.pool.birth import choose_parents, recombine
from minagi.training.average import Averages
from minagi.training.optimiser import Moments, Optimiser


class Population:
    """Gives birth to experts and deletes them, keeping network, pool and optimiser in step."""

    def __init__(
        self, net: Network, pool: ExpertPool, optimiser: Optimiser, averages: Averages | None = None
    ) -> None:
        self.net, self.pool, self.optimiser, self.averages = net, pool, optimiser, averages

    def grow(self, k: int, birth_gate: float, rng: np.random.Generator) -> dict[int, list[int]]:
        """Give birth to `k` experts, on disk and not on the card. Returns uid -> its parents' uids."""
        self._on_newest()
        telemetry = self.pool.telemetry
        born = {}
        for _ in range(k):
            parents = choose_parents(telemetry, rng)
            newborn = recombine(parents, self.pool.record, self.pool.slots.depth, rng)
            parent_uids = [telemetry.uid[place] for place in parents]
            uid = self.pool.add(newborn.weights)
            shares = torch.from_numpy(newborn.shares).float()
            for name in self._per_expert():
                old = self.net.get_parameter(name).detach()
                if name == "pool.gate":
                    row = old.new_full((1,), birth_gate)
                else:
                    row = shares.to(old.device)[None] @ old[parents]
                self._append(name, row)
            born[uid] = parent_uids
        return born

    def prune(self, places: list[int]) -> list[int]:
        """Delete the experts at these places; returns their uids."""
        self._on_newest()
        uids = [self.pool.telemetry.uid[place] for place in places]
        gone = set(places)
        kept = torch.tensor([place for place in range(self.pool.experts) if place not in gone])
        self.pool.remove(places)
        for name in self._per_expert():
            self._replace(name, lambda tensor: tensor[kept], lambda tensor: tensor[kept])
        return uids

    def resize(self, experts: int) -> None:
        """Room for `experts` rows, all zero, for weights about to be loaded."""
        self._on_newest()

        def empty(old: Tensor) -> Tensor:
            return old.new_zeros(experts, *old.shape[1:])

        for name in self._per_expert():
            self._replace(name, empty, empty)

    def _per_expert(self) -> list[str]:
        """Names of the parameters with one row an expert."""
        return ["pool.gate", *(f"recur.{i}.mlp.router.weight" for i in range(len(self.net.recur)))]

    def _append(self, name: str, row: Tensor) -> None:
        """One row more; its moments start at zero."""
        zeros = torch.zeros_like(row)
        self._replace(name, lambda old: torch.cat((old, row)), lambda old: torch.cat((old, zeros)))

    def _replace(
        self, name: str, resized: Callable[[Tensor], Tensor], moment: Callable[[Tensor], Tensor]
    ) -> None:
        """Another size for a parameter: `resized` of it and of its average, `moment` of its moments."""
        owner, _, leaf = name.rpartition(".")
        value = resized(self.net.get_parameter(name).detach())
        setattr(self.net.get_submodule(owner), leaf, nn.Parameter(value))
        state = self.optimiser.state[name]
        self.optimiser.state[name] = Moments(moment(state.m), moment(state.v), state.step)
        if self.averages is not None:
            self.averages.replace(name, resized(self.averages.of(name)))

    def _on_newest(self) -> None:
        if self.averages is not None:
            self.averages.newest()
