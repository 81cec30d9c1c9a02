"""Where an expert sits changes what a step costs and never what it gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import Tiny, case_of, live, make

from minagi.model.loss import training_loss
from minagi.model.reading import read
from minagi.pool import ExpertPool
from minagi.training.optimiser import Optimiser
from minagi.training.population import Population

EXPERTS = 7


class Life:
    """A tiny model that is trained, read out, grown, pruned and checkpointed as told.

    `resident` experts may be admitted to a forward; the card holds as many, or `slots` where that is given.
    """

    def __init__(self, resident: int, ram: int, dtype: torch.dtype = torch.float32, slots: int = 0) -> None:
        case = case_of(
            seed=5, experts=EXPERTS, resident=resident, top_k=3, d_model=16, width=8, max_steps=3,
            expert_depth=2,
        )  # fmt: skip
        self.tiny: Tiny = make(case, dtype, ram, slots)
        self.optimiser = Optimiser(self.tiny.net, self.pool, 0.95, 0.1, 1.0)
        self.population = Population(self.tiny.net, self.pool, self.optimiser)
        self.told: list[float] = []  # losses and norms of every step
        self.admitted: list[list[int]] = []

    @property
    def pool(self) -> ExpertPool:
        return self.tiny.pool

    def do(self, act: str, seed: int) -> None:
        getattr(self, act)(torch.randint(0, 256, (7,), generator=torch.Generator().manual_seed(seed)))

    def train(self, ids: torch.Tensor, step: bool = True) -> None:
        forward = self.tiny.forward(training=True)
        loss = training_loss(self.tiny.net, ids[:-1], ids[1:], forward, 3, 0.01)
        loss.total.backward()
        norm = self.optimiser.norm()
        self.told += [float(loss.total.detach()), norm]
        self.admitted.append(sorted(forward.admitted))
        if step:
            self.optimiser.step(0.05, 0.01, norm)
        else:
            self.optimiser.skip()

    def skip(self, ids: torch.Tensor) -> None:
        """A step whose gradient is given up."""
        self.train(ids, step=False)

    def write(self, ids: torch.Tensor) -> None:
        """A reply: one forward a character through the cache."""
        text = self.tiny.net.new_text()
        for one in ids:
            read(self.tiny.net, one[None], self.tiny.forward(text=text))

    def measure(self, ids: torch.Tensor) -> None:
        read(self.tiny.net, ids, self.tiny.forward(), cached=False)

    def save(self, ids: torch.Tensor) -> None:
        self.tiny.disk.checkpoint(self.pool)
        self.optimiser.round_moments()

    def restart(self, ids: torch.Tensor) -> None:
        """Save, and go on from what the disk holds."""
        self.save(ids)
        self.pool.drop_all()

    def grow(self, ids: torch.Tensor) -> None:
        self.population.grow(1, 0.5, np.random.default_rng(int(ids.sum())))

    def numbers(self) -> dict[str, np.ndarray]:
        """Every weight and moment there is, wherever it sits."""
        found = {name: p.detach().numpy() for name, p in self.tiny.net.stored().items()}
        for name, state in self.optimiser.state.items():
            found |= {f"{name}|m": state.m.numpy(), f"{name}|v": state.v.numpy()}
        for uid in self.pool.telemetry.uid:
            record = live(self.pool, uid)
            found |= {f"{uid} {name}": array for name, array in record.weights.items()}
            found |= {f"{uid} {name}": array for name, array in (record.moments or {}).items()}
        return found


ACTS = ("train", "train", "train", "train", "skip", "save", "restart", "write", "measure", "grow", "prune")
lives = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9)), min_size=3, max_size=16)
some = settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def prune(lives: tuple[Life, ...], seed: int) -> None:
    """The same expert dies in every life, one that is on nobody's card."""
    pools = [life.pool for life in lives]
    uids = pools[0].telemetry.uid
    off = [place for place, uid in enumerate(uids) if all(pool.tier(uid) != "card" for pool in pools)]
    for life in lives if off and len(uids) > 1 else ():
        life.population.prune([off[seed % len(off)]])


def alike(mine: Life, theirs: Life) -> None:
    """To the bit. Moments that were never stepped may be zeros here and missing there."""
    assert mine.told == theirs.told
    assert mine.admitted == theirs.admitted
    one, other = mine.numbers(), theirs.numbers()
    for name in one.keys() & other.keys():
        np.testing.assert_array_equal(one[name], other[name], name)
    assert not any(np.any(one.get(name, other.get(name))) for name in one.keys() ^ other.keys())


@some
@given(lives, st.integers(1, EXPERTS + 1), st.integers(1, 4))
def test_ram_and_reading_never_show_in_the_numbers(
    told: list[tuple[str, int]], resident: int, ram: int
) -> None:
    """The same as a life with room for all in RAM, never restarted and never talked to."""
    small, ample = Life(resident, ram), Life(resident, 0)
    for act, seed in told:
        if act == "prune":
            prune((small, ample), seed)
            continue
        small.do(act, seed)
        if act not in ("write", "measure"):
            ample.do("save" if act == "restart" else act, seed)
    assert len(small.pool.ram) <= ram
    alike(small, ample)


@some
@given(lives, st.integers(1, EXPERTS), st.integers(1, 4))
def test_paging_is_as_good_as_keeping_everything_on_the_card(
    told: list[tuple[str, int]], resident: int, ram: int
) -> None:
    """A card with a slot for every expert there ever is, of which a forward may use as many."""
    paged, whole = Life(resident, ram), Life(resident, 0, slots=EXPERTS + len(told))
    for act, seed in told:
        if act == "prune":
            prune((paged, whole), seed)
            continue
        paged.do(act, seed)
        whole.do("save" if act == "restart" else act, seed)
    alike(paged, whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_slots_the_same_numbers(dtype: torch.dtype) -> None:
    """Experts that lie in other slots, after replies about other things, give the same sums."""
    quiet, talked = Life(5, 0, dtype=dtype), Life(5, 2, dtype=dtype)
    for step in range(12):
        quiet.do("train", step)
        talked.do("write", 100 + step)
        talked.do("train", step)
    assert talked.pool.resident() != quiet.pool.resident()  # or this test shows nothing
    assert talked.told == quiet.told


@pytest.mark.parametrize("ram", [0, 1, 3])
def test_a_given_up_step_before_a_checkpoint_leaves_no_trace_in_the_moments(ram: int) -> None:
    """Moments came to the card for a step that was given up; the checkpoint rounds them there too."""
    going_on, restarted = Life(2, ram), Life(2, ram)
    for life, last in ((going_on, "save"), (restarted, "restart")):
        for seed in range(10):  # experts come and go, with moments
            life.do("train", seed)
        for seed in (0, 4, 7):
            life.do("skip", seed)
        life.do(last, 0)
        for seed in (0, 4, 7, 1):
            life.do("train", seed)
    assert len({tuple(a) for a in going_on.admitted}) > 2
    assert going_on.told == restarted.told
