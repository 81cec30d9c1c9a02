"""The expert pool: which experts exist, which are on the card, and whose moments are where.

Places are positions in the pool's arrays (they change when an expert is pruned); uids are permanent.
An expert on the card keeps its slot. A newcomer takes an empty slot, else the slot of the expert
admitted longest ago among those this forward was not admitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minagi.pool.copies import Copies, round_to_bf16, ways
from minagi.pool.ram import Disk, RamTier
from minagi.pool.slots import ExpertSlots
from minagi.pool.telemetry import Telemetry
from minagi.weights import ExpertRecord


@dataclass
class _Slot:
    """What one slot holds. `stale`: RAM's record is older than the slot; `dirty`: so is the disk's."""

    uid: int | None = None
    used: int = -1  # forward that admitted it last
    moments: bool = False  # the slot's moments are its expert's own
    averaged: bool = False  # the slot's average is more than the weights it came with
    stale: bool = False
    dirty: bool = False


class ExpertPool:
    """Three tiers of experts behind the interface routing needs (`minagi.model.routing.Card`)."""

    def __init__(self, slots: ExpertSlots, disk: Disk, telemetry: Telemetry, ram_limit: int) -> None:
        self.slots = slots
        self.telemetry = telemetry
        self.ram = RamTier(disk, ram_limit)
        self._slots = [_Slot() for _ in range(slots.count)]
        self._slot_of: dict[int, int] = {}
        # called by every forward with whether it trains: on the newest weights then, else on their averages
        self.use_weights: Callable[[bool], None] = lambda newest: slots.use_average(not newest)
        self._clock = 0
        self._to_step: set[int] = set()  # slots a training forward was admitted and no step has settled
        self._stepped: list[int] = []  # slots that the last step changed
        self.arrived: list[int] = []  # uids loaded since the last training forward began
        self.loads = 0

    @property
    def experts(self) -> int:
        return len(self.telemetry)

    def resident(self) -> list[int]:
        """Uids on the card, by slot."""
        return [slot.uid for slot in self._slots if slot.uid is not None]

    # ---- a forward

    def begin_forward(self, training: bool, opens: bool = True) -> None:
        """A new forward: admissions start over. Slots waiting for a step stay where they are.

        `opens`: it reads a text from its first character on, which is what the text clock counts.
        """
        self.use_weights(training)
        self._clock += 1
        self._training = training
        if training:
            self.telemetry.begin_forward(opens)
            self.arrived = []

    def admission_share(self) -> Tensor:
        """[E] each expert's share of recent admissions, sums to 1."""
        return torch.from_numpy(self.telemetry.share()).float().to(self.slots.levels[0].up.device)

    def fitting(self, experts: list[int]) -> list[int]:
        """Of these experts (places), in order, those that have a slot beside what waits for a step."""
        waiting = {self._slots[index].uid for index in self._to_step}
        free = self.slots.count - len(waiting)
        fitting = []
        for place in experts:
            if self.telemetry.uid[place] in waiting:
                fitting.append(place)
            elif free:
                fitting.append(place)
                free -= 1
        return fitting

    def waiting(self) -> list[int]:
        """Places of the experts that were admitted since the last step."""
        uids = {self._slots[index].uid for index in self._to_step}
        return [place for place, uid in enumerate(self.telemetry.uid) if uid in uids]

    def admit(self, experts: list[int]) -> list[int]:
        """Bring experts (places) onto the card; returns their slots in the same order."""
        uids = [self.telemetry.uid[place] for place in experts]
        for uid in uids:
            if uid in self._slot_of:
                self._slots[self._slot_of[uid]].used = self._clock
        slots = [self._slot_of[uid] if uid in self._slot_of else self._bring(uid) for uid in uids]
        if self._training:
            self.telemetry.admitted(experts)
            self.slots.zero_grad([slot for slot in slots if slot not in self._to_step])
            self._to_step.update(slots)
        return slots

    def _bring(self, uid: int) -> int:
        index = self._free_slot()
        record = self.ram.weights(uid)
        self.slots.load_weights(index, record.weights, record.average)
        self._slots[index] = _Slot(uid, used=self._clock, averaged=record.average is not None)
        self._slot_of[uid] = index
        self.arrived.append(uid)
        self.loads += 1
        return index

    def _free_slot(self) -> int:
        for index, slot in enumerate(self._slots):
            if slot.uid is None:
                return index
        idle = [i for i, s in enumerate(self._slots) if s.used != self._clock and i not in self._to_step]
        index = min(idle, key=lambda i: self._slots[i].used)
        self._evict(index)
        return index

    def _evict(self, index: int) -> None:
        slot = self._slots[index]
        assert slot.uid is not None
        if slot.stale:
            self.ram.put(self._record(index), slot.dirty)
        del self._slot_of[slot.uid]
        self._slots[index] = _Slot()

    def _record(self, index: int) -> ExpertRecord:
        uid = self._slots[index].uid
        assert uid is not None
        slots = self.slots
        return ExpertRecord(uid, slots.weights_of(index), slots.moments_of(index), slots.average_of(index))

    # ---- a step

    def to_step(self) -> list[int]:
        """Slots the coming optimiser step changes, by uid, with each one's own moments in place."""
        for index in self._to_step:
            slot = self._slots[index]
            if not slot.moments:
                assert slot.uid is not None
                self.slots.load_moments(index, self.ram.moments(slot.uid))
                slot.moments = True
        return sorted(self._to_step, key=lambda index: self._slots[index].uid or 0)

    def stepped(self) -> None:
        """The optimiser changed those slots."""
        stepped = sorted(self._to_step)
        self.slots.refresh(stepped)
        for index in stepped:
            slot = self._slots[index]
            assert slot.uid is not None
            slot.stale = slot.dirty = slot.averaged = True
            self.ram.forget(slot.uid)
        self._stepped = stepped
        self._to_step.clear()

    def average(self, share: float) -> None:
        """Move the averages of what was just stepped by `share` of the way to the weights."""
        self.slots.average(self._stepped, share)

    def skip_step(self) -> None:
        """There will be no step for what the last training forward was admitted."""
        self._to_step.clear()

    # ---- a checkpoint

    def changed(self, copies: Copies | None = None) -> dict[int, ExpertRecord]:
        """Every expert in memory that disk does not have like this, by uid, as a checkpoint takes it.

        Those on the card are copied into `copies`; without, they are good until the next step only. What is
        in RAM is never changed in place, so it is not copied.
        """
        weights, moments = ways(copies)
        records = self.ram.dirty()
        for index, slot in enumerate(self._slots):
            if slot.dirty:
                assert slot.uid is not None
                records[slot.uid] = ExpertRecord(
                    slot.uid,
                    self.slots.weights_of(index, weights),
                    self.slots.moments_of(index, moments),
                    self.slots.average_of(index, moments),
                )
        return records

    def settle(self) -> None:
        """Everything is in a checkpoint now. Live moments and averages become what its files hold:
        bf16 values.

        So a resumed or reverted model repeats the same steps to the bit, wherever an expert sat.
        """
        self.ram.settle()
        for index, slot in enumerate(self._slots):
            if slot.moments:  # of a step that was given up, too: the spill they came from was exact
                round_to_bf16(self.slots.moments_in(index))
            if slot.averaged:
                round_to_bf16(self.slots.averages_in(index))
            slot.dirty = False

    def drop_all(self) -> None:
        """Forget what is on the card and in RAM, saving nothing: the directory was reverted."""
        self.ram.clear()
        self._slots = [_Slot() for _ in self._slots]
        self._slot_of.clear()
        self._to_step.clear()

    # ---- birth and death

    def tier(self, uid: int) -> str:
        """Where an expert is: 'card', 'ram' or 'disk'."""
        return "card" if uid in self._slot_of else "ram" if uid in self.ram else "disk"

    def record(self, place: int) -> ExpertRecord:
        """An expert's weights as they are now, wherever it is; its moments may be missing."""
        uid = self.telemetry.uid[place]
        if uid in self._slot_of:
            return ExpertRecord(uid, self.slots.weights_of(self._slot_of[uid]), None)
        return self.ram.weights(uid)

    def add(self, weights: dict[str, np.ndarray]) -> int:
        """A newborn, written to disk and not to the card; its uid. Where disk refuses, nobody is born."""
        self.ram.disk.spill_expert(ExpertRecord(self.telemetry.next_uid, weights, None))
        return self.telemetry.append()

    def remove(self, places: list[int]) -> None:
        """Delete experts that are not on the card; disk drops their files at the next checkpoint."""
        for place in places:
            uid = self.telemetry.uid[place]
            assert uid not in self._slot_of, "an expert on the card is never pruned"
            self.ram.forget(uid)
        gone = set(places)
        self.telemetry.keep([place for place in range(self.experts) if place not in gone])
