"""The card: who gets which slot, whose moments travel, and what is copied back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import CPU, MemoryDisk, copied

from minagi.errors import WeightsError
from minagi.pool import ExpertPool, ExpertSlots, Telemetry
from minagi.weights import ExpertRecord
from minagi.weights.moments import from_bf16

D, W = 4, 3


def record(uid: int, moments: bool = True) -> ExpertRecord:
    shapes = {"w1": (W, D), "w3": (W, D), "w2": (D, W)}
    weights = {name: np.full(shape, uid + 0.25, np.float32) for name, shape in shapes.items()}
    state = {
        f"{n}_{k}": np.full(s, uid + (0.5 if k == "m" else 0.75), np.float32)
        for n, s in shapes.items()
        for k in "mv"
    }
    return ExpertRecord(uid, weights, state if moments else None)


class WatchedDisk(MemoryDisk):
    """Remembers what was asked for with moments."""

    def __init__(self, experts: int) -> None:
        super().__init__({uid: record(uid) for uid in range(experts)})
        self.with_moments: list[int] = []
        self.with_weights: list[int] = []

    def read_expert(self, uid: int, moments: bool = True, weights: bool = True) -> ExpertRecord:
        if moments:
            self.with_moments.append(uid)
        if weights:
            self.with_weights.append(uid)
        return super().read_expert(uid, moments, weights)


def pool_of(
    experts: int = 5, slots: int = 2, ram: int = 0, averaged: bool = False
) -> tuple[ExpertPool, WatchedDisk]:
    disk = WatchedDisk(experts)
    card = ExpertSlots(slots, D, W, 1, torch.float32, CPU, averaged)
    return ExpertPool(card, disk, Telemetry(experts), ram), disk


def admit(pool: ExpertPool, *experts: int, training: bool = False) -> list[int]:
    pool.begin_forward(training)
    return pool.admit(list(experts))


def step(pool: ExpertPool, *experts: int) -> None:
    """A training step that adds 1 to every number of the experts and their moments."""
    admit(pool, *experts, training=True)
    for slot in pool.to_step():
        level = pool.slots.levels[0]
        for tensor in (level.up, level.down, level.up_m, level.down_m, level.up_v, level.down_v):
            tensor[slot] += 1
    pool.stepped()


def moments_of(pool: ExpertPool, uid: int) -> dict[str, np.ndarray]:
    return pool.slots.moments_of(pool._slot_of[uid])


def test_an_expert_keeps_its_slot_and_a_newcomer_takes_an_empty_one_first() -> None:
    pool, _ = pool_of(slots=3)
    (first,) = admit(pool, 4)
    assert admit(pool, 1, 4)[1] == first
    assert pool.resident() == [4, 1]
    admit(pool, 2)
    assert pool.resident() == [4, 1, 2]


def test_the_expert_admitted_longest_ago_makes_room_and_never_one_of_this_forward() -> None:
    pool, _ = pool_of(slots=3)
    admit(pool, 0, 1)
    admit(pool, 2)
    admit(pool, 0)
    slots = admit(pool, 0, 3)  # 1 was admitted longest ago
    assert sorted(pool.resident()) == [0, 2, 3]
    assert admit(pool, 3, 0) == slots[::-1]
    admit(pool, 1, 2, 4)  # 2 is here already: the other two must go although they are newer
    assert sorted(pool.resident()) == [1, 2, 4]


def test_what_a_training_forward_admitted_stays_until_its_step() -> None:
    pool, _ = pool_of(slots=3)
    admit(pool, 0, 1, training=True)
    admit(pool, 2)
    admit(pool, 3)
    assert set(pool.resident()) == {0, 1, 3}
    pool.to_step()
    pool.stepped()
    admit(pool, 2, 4)
    assert set(pool.resident()) >= {2, 4}


def test_reading_moves_no_moments_and_copies_nothing_back() -> None:
    pool, disk = pool_of(slots=2, ram=1)
    for expert in (0, 1, 2, 3, 4, 0, 2):
        admit(pool, expert)
    assert disk.with_moments == [] and disk.spilled == {} and pool.changed() == {}
    assert len(pool.ram) == 1


def test_an_arrival_is_stepped_with_its_own_moments_and_not_its_slots() -> None:
    pool, disk = pool_of(slots=1)
    step(pool, 0)
    step(pool, 3)
    assert disk.with_moments == disk.with_weights == [0, 3]  # and both but once
    assert float(moments_of(pool, 3)["w1_m"][0, 0]) == 4.5
    assert float(moments_of(pool, 3)["w2_v"][0, 0]) == 4.75
    step(pool, 0)  # comes back from RAM with what its step left
    assert disk.with_moments == [0, 3]
    assert float(moments_of(pool, 0)["w3_v"][0, 0]) == 2.75


def test_an_expert_without_moments_starts_at_zero() -> None:
    pool, disk = pool_of(slots=1)
    disk.held[2] = record(2, moments=False)
    step(pool, 1)
    step(pool, 2)
    assert all((array == 1).all() for array in moments_of(pool, 2).values())


@pytest.mark.parametrize("ram", [0, 1, 2])
def test_own_moments_through_every_tier(ram: int) -> None:
    pool, disk = pool_of(slots=1, ram=ram)
    for _ in range(3):
        for expert in range(5):
            step(pool, expert)
            admit(pool, (expert + 2) % 5)  # a reply pages it out
    disk.checkpoint(pool)
    for uid in range(5):
        assert float(disk.held[uid].weights["w1"][0, 0]) == uid + 3.25
        moments = disk.held[uid].moments
        assert moments is not None and float(from_bf16(moments["w1_m"])[0, 0]) == uid + 3.5


def test_an_expert_that_no_step_touched_is_not_copied_back() -> None:
    pool, disk = pool_of(slots=1, ram=1)
    step(pool, 0)
    disk.checkpoint(pool)
    before = {uid: copied(held) for uid, held in disk.held.items()}
    admit(pool, 1)
    admit(pool, 2, training=True)
    pool.to_step()
    pool.skip_step()
    admit(pool, 0)
    assert disk.spilled == {} and pool.changed() == {}
    for uid, held in before.items():
        np.testing.assert_array_equal(held.weights["w2"], disk.held[uid].weights["w2"])


def test_a_checkpoint_rounds_averages_wherever_an_expert_sits() -> None:
    """Also of one that was spilled, read back, and not stepped since: on the card, and in RAM."""
    pool, disk = pool_of(experts=7, slots=2, ram=3, averaged=True)
    for expert in range(7):
        step(pool, expert)
        pool.average(0.3)
    assert disk.spilled.keys() >= {0, 1}
    for expert in (0, 1, 6):
        admit(pool, expert)
    assert pool.tier(0) == "ram" and pool.tier(1) == "card"
    disk.checkpoint(pool)
    (slot,) = admit(pool, 1)
    for found, uid in ((pool.slots.average_of(slot), 1), (pool.ram.weights(0).average, 0)):
        assert found is not None
        for name, array in (disk.held[uid].average or {}).items():
            np.testing.assert_array_equal(from_bf16(found[name]), from_bf16(array))


def test_ram_counts_averages_among_its_bytes() -> None:
    pool, _ = pool_of(experts=3, slots=1, averaged=True)
    step(pool, 0)
    admit(pool, 1)  # 0 leaves the card
    held = pool.ram.weights(0)
    assert held.average is not None and held.moments is not None
    arrays = [*held.weights.values(), *held.moments.values(), *held.average.values()]
    one = sum(array.nbytes for array in pool.ram.weights(1).weights.values())
    assert pool.ram.bytes == sum(array.nbytes for array in arrays) + one


class FullDisk(WatchedDisk):
    full = True

    def spill_expert(self, record: ExpertRecord) -> None:
        if self.full:
            raise WeightsError("The disk is full.")
        super().spill_expert(record)


@pytest.mark.parametrize("over", ["room again", "checkpoint"])
def test_what_a_full_disk_refuses_stays_in_memory_while_that_has_room(over: str) -> None:
    disk = FullDisk(7)
    pool = ExpertPool(ExpertSlots(1, D, W, 1, torch.float32, CPU), disk, Telemetry(7), 2)
    pool.ram.roomy = lambda: True
    for uid in range(5):
        step(pool, uid)
    assert str(pool.ram.refused) == "The disk is full."
    assert sorted(pool.ram.dirty()) == [0, 1, 2, 3] and not disk.spilled
    admit(pool, 5)
    admit(pool, 6)
    assert 5 not in pool.ram, "what disk has as it is makes room first"
    if over == "checkpoint":
        disk.checkpoint(pool)
        admit(pool, 5)
    else:
        disk.full = False
        admit(pool, 5)
        assert pool.ram.refused is None
    assert len(pool.ram) == 2
    for uid in range(5):
        admit(pool, uid)
        assert pool.slots.weights_of(0)["w1"][0, 0] == uid + 1.25


def test_what_a_full_disk_refuses_ends_the_run_when_memory_is_full_too() -> None:
    disk = FullDisk(6)
    pool = ExpertPool(ExpertSlots(1, D, W, 1, torch.float32, CPU), disk, Telemetry(6), 2)
    step(pool, 0)
    step(pool, 1)
    with pytest.raises(WeightsError, match="The disk is full"):
        step(pool, 2)
    assert sorted(pool.changed()) == [0, 1], "nothing is lost by that"


def test_only_what_changed_is_saved() -> None:
    pool, disk = pool_of(slots=2, ram=1)
    for expert in (0, 1, 2):
        step(pool, expert)
    assert set(pool.changed()) | set(disk.spilled) == {0, 1, 2}
    disk.checkpoint(pool)
    assert pool.changed() == {}
    step(pool, 3)
    assert set(pool.changed()) == {3}


def test_ram_keeps_no_copy_of_what_a_step_changed() -> None:
    pool, _ = pool_of(slots=2)
    step(pool, 0)
    assert 0 not in pool.ram
    admit(pool, 1)
    assert 1 in pool.ram  # unchanged: the copy is good


def test_dropping_all_forgets_what_was_learned() -> None:
    pool, disk = pool_of(slots=2)
    step(pool, 0, 1)
    pool.drop_all()
    disk.spilled.clear()
    assert pool.resident() == [] and pool.changed() == {} and len(pool.ram) == 0
    assert float(pool.record(0).weights["w1"][0, 0]) == 0.25


def test_tiers_have_names() -> None:
    pool, _ = pool_of(slots=1, ram=2)
    admit(pool, 0)
    admit(pool, 1)
    assert [pool.tier(uid) for uid in range(3)] == ["ram", "card", "disk"]


def test_gradients_of_an_arrival_begin_at_zero() -> None:
    pool, _ = pool_of(slots=1)
    admit(pool, 0, training=True)
    pool.slots.levels[0].up_grad[0] = 7
    pool.to_step()
    pool.skip_step()
    admit(pool, 1, training=True)
    assert float(pool.slots.levels[0].up_grad.abs().max()) == 0
    pool.slots.levels[0].up_grad[0] = 3
    pool.begin_forward(True)  # a second text before the step adds to the first
    pool.admit([1])
    assert float(pool.slots.levels[0].up_grad.max()) == 3


def test_pruned_experts_leave_and_uids_stay() -> None:
    pool, _ = pool_of(experts=5)
    admit(pool, 4)
    assert pool.add(record(9).weights) == 5
    pool.remove([1, 3])
    assert pool.telemetry.uid == [0, 2, 4, 5]
    assert pool.add(record(9).weights) == 6
    pool.remove([4])
    assert pool.add(record(9).weights) == 7, "a name is never given twice"
    assert float(pool.record(1).weights["w1"][0, 0]) == 2.25
    with pytest.raises(AssertionError):
        pool.remove([2])  # uid 4 is on the card


def test_what_a_checkpoint_need_not_round_is_not_copied_after_it() -> None:
    pool, _ = pool_of(slots=1)
    step(pool, 0)
    admit(pool, 1)  # 0 leaves for RAM, exact
    admit(pool, 2)  # and so does 1, as it was read: without moments
    exact, untouched = pool.ram._held[0], pool.ram._held[1]
    pool.settle()
    moments = pool.ram.moments(0)
    assert moments is not None and all(array.dtype == np.int16 for array in moments.values())
    pool.settle()
    again = pool.ram.moments(0)
    assert again is not None and all(again[name] is array for name, array in moments.items())
    for uid, before in ((0, exact), (1, untouched)):
        now = pool.ram.weights(uid)
        assert all(now.weights[name] is array for name, array in before.weights.items())
