"""Births and deaths keep network, pool and optimiser in step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import Tiny, case_of, make

from minagi.model.loss import training_loss
from minagi.training.optimiser import Optimiser
from minagi.training.population import Population

ROUTERS = ("recur.0.mlp.router.weight", "recur.1.mlp.router.weight")


class Colony:
    """A tiny model with two recurrent blocks, so with two routers, trained for a few steps."""

    def __init__(self, experts: int = 5, resident: int = 2, steps: int = 4) -> None:
        self.tiny: Tiny = make(
            case_of(seed=6, experts=experts, resident=resident, n_recur=2, max_steps=2), ram=2
        )
        self.pool, self.net = self.tiny.pool, self.tiny.net
        self.optimiser = Optimiser(self.net, self.pool, 0.95, 0.1, 1.0)
        self.population = Population(self.net, self.pool, self.optimiser)
        self.rng = np.random.default_rng(0)
        self.train(steps)

    def train(self, steps: int) -> None:
        for seed in range(steps):
            ids = torch.randint(0, 256, (6,), generator=torch.Generator().manual_seed(seed))
            loss = training_loss(self.net, ids[:-1], ids[1:], self.tiny.forward(training=True), 2, 0.01)
            loss.total.backward()
            self.optimiser.step(0.01, 0.01, self.optimiser.norm())

    def numbers(self, name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        state = self.optimiser.state[name]
        return self.net.get_parameter(name).detach().clone(), state.m.clone(), state.v.clone()


def test_a_birth_extends_every_router_the_gate_and_their_moments() -> None:
    colony = Colony()
    before = {name: colony.numbers(name) for name in (*ROUTERS, "pool.gate")}
    steps = {name: float(colony.optimiser.state[name].step) for name in before}
    born = colony.population.grow(2, 0.001, colony.rng)
    assert list(born) == [5, 6] and all(set(parents) <= set(range(5)) for parents in (born[5],))
    for name, (value, m, v) in before.items():
        now, now_m, now_v = colony.numbers(name)
        assert now.shape[0] == now_m.shape[0] == now_v.shape[0] == 7
        for old, new in ((value, now), (m, now_m), (v, now_v)):
            assert torch.equal(new[:5], old)
        assert not now_m[5:].any() and not now_v[5:].any()
        assert float(colony.optimiser.state[name].step) == steps[name]
    assert torch.allclose(colony.net.pool.gate[5:].detach(), torch.tensor(0.001))


def test_a_newborns_router_row_is_the_average_of_its_parents_by_units_given() -> None:
    colony = Colony()
    rows = {name: colony.numbers(name)[0] for name in ROUTERS}
    weights = {uid: colony.pool.record(uid).weights["w1"] for uid in range(5)}
    born = colony.population.grow(1, 0.001, colony.rng)
    newborn = colony.tiny.disk.read_expert(5).weights["w1"]
    given = np.zeros(5)
    for unit in newborn:
        (giver,) = [uid for uid, w1 in weights.items() if any(np.array_equal(unit, own) for own in w1)]
        given[giver] += 1
    assert set(np.flatnonzero(given)) <= set(born[5])
    share = torch.from_numpy(given / given.sum()).float()
    for name in ROUTERS:
        torch.testing.assert_close(colony.net.get_parameter(name)[5].detach(), share @ rows[name])


def test_a_newborn_lies_on_disk_without_moments_and_not_on_the_card() -> None:
    colony = Colony()
    here = colony.pool.resident()
    colony.population.grow(1, 0.001, colony.rng)
    assert colony.pool.resident() == here and colony.pool.tier(5) == "disk"
    assert colony.tiny.disk.read_expert(5).moments is None
    telemetry = colony.pool.telemetry
    assert (telemetry.born[5], telemetry.recent[5]) == (telemetry.segments, 0)
    colony.net.pool.gate.data[5] = 5.0
    for name in ROUTERS:
        colony.net.get_parameter(name).data[5] *= 100
    colony.train(3)  # it can be admitted and stepped like any other
    assert colony.pool.telemetry.admits[5] > 0


def test_the_weights_of_a_parent_on_the_card_are_those_of_now() -> None:
    colony = Colony(experts=1, resident=1)
    now = colony.pool.record(0).weights["w2"]
    colony.population.grow(1, 0.001, colony.rng)
    np.testing.assert_array_equal(colony.tiny.disk.read_expert(1).weights["w2"], now)


def test_a_death_takes_its_rows_and_no_others() -> None:
    colony = Colony(experts=6)
    off_card = [place for place in range(6) if place not in colony.pool.resident()]
    doomed = [off_card[0], off_card[2]]
    left = [place for place in range(6) if place not in doomed]
    before = {name: colony.numbers(name) for name in (*ROUTERS, "pool.gate")}
    recent = colony.pool.telemetry.recent.copy()
    assert colony.population.prune(doomed) == doomed
    assert colony.pool.telemetry.uid == left
    np.testing.assert_array_equal(colony.pool.telemetry.recent, recent[left])
    for name, old in before.items():
        for was, now in zip(old, colony.numbers(name), strict=True):
            assert torch.equal(now, was[left])
    colony.train(3)


@pytest.mark.parametrize("seed", range(3))
def test_uids_stay_with_their_weights_through_any_sequence(seed: int) -> None:
    """What never was on a step keeps its very bytes under its name, whatever its place becomes."""
    colony = Colony(experts=5, resident=2, steps=2)
    rng = np.random.default_rng(seed)
    seen: set[int] = set(colony.pool.telemetry.uid)
    for _ in range(12):
        uids = colony.pool.telemetry.uid
        gates = dict(zip(uids, colony.net.pool.gate.tolist(), strict=True))
        if rng.random() < 0.5:
            born = colony.population.grow(1, float(rng.random()), rng)
            assert not set(born) & seen
            seen |= set(born)
        else:
            off = [p for p, uid in enumerate(uids) if uid not in colony.pool.resident()]
            if len(off) > 1:
                colony.population.prune([int(rng.choice(off))])
        now = dict(zip(colony.pool.telemetry.uid, colony.net.pool.gate.tolist(), strict=True))
        assert all(now[uid] == gates[uid] for uid in now.keys() & gates.keys())
        assert colony.net.pool.gate.shape[0] == colony.pool.experts
    colony.train(2)


def test_resizing_for_a_model_about_to_be_loaded() -> None:
    colony = Colony()
    colony.population.resize(9)
    for name in (*ROUTERS, "pool.gate"):
        for numbers in colony.numbers(name):
            assert numbers.shape[0] == 9 and not numbers.any()
