"""The RAM tier: the experts used most recently, between the card and the disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from minagi.errors import WeightsError
from minagi.weights import ExpertRecord
from minagi.weights.tensors import Arrays, rounded


class Disk(Protocol):
    """What the tiers need of the weights directory (`minagi.weights.Store`)."""

    def read_expert(self, uid: int, moments: bool = True, weights: bool = True) -> ExpertRecord:
        """An expert as it was last spilled or checkpointed, without the moments or the weights (with their
        average) when nobody asks for them."""

    def spill_expert(self, record: ExpertRecord) -> None:
        """Keep a trained expert until the next checkpoint, exactly as it is."""


class RamTier:
    """Least-recently-used records, at most `limit` (0 = all). A changed one goes to disk when it leaves.

    Those that disk refuses stay here beyond the limit, as long as `roomy` says that memory has room for them:
    they go when disk takes them again, or once a checkpoint holds them.
    """

    def __init__(self, disk: Disk, limit: int) -> None:
        self.disk, self.limit = disk, limit
        self.roomy: Callable[[], bool] = lambda: False
        self.refused: WeightsError | None = None  # why disk took nothing when it was last asked to
        self._held: OrderedDict[int, ExpertRecord] = OrderedDict()
        self._without_moments: set[int] = set()
        self._dirty: set[int] = set()
        self._unrounded: set[int] = set()  # a checkpoint has rounded these, here it is still to be done
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, uid: int) -> bool:
        return uid in self._held

    @property
    def bytes(self) -> int:
        """Bytes of everything held."""
        return sum(
            array.nbytes
            for record in self._held.values()
            for arrays in (record.weights, record.moments or {}, record.average or {})
            for array in arrays.values()
        )

    def weights(self, uid: int) -> ExpertRecord:
        """An expert with at least its weights, from here or from disk."""
        if uid in self._held:
            self.hits += 1
            self._held.move_to_end(uid)
        else:
            self.misses += 1
            self._without_moments.add(uid)
            self._keep(self.disk.read_expert(uid, moments=False))
        return self._settled(uid)

    def moments(self, uid: int) -> Arrays | None:
        """An expert's moments; None = zeros. Those read from disk are not kept: a step is about to change
        them."""
        if uid not in self._held or uid in self._without_moments:
            return self.disk.read_expert(uid, weights=False).moments
        return self._settled(uid).moments

    def _settled(self, uid: int) -> ExpertRecord:
        if uid in self._unrounded:
            self._unrounded.discard(uid)
            self._held[uid] = rounded(self._held[uid])
        return self._held[uid]

    def put(self, record: ExpertRecord, dirty: bool) -> None:
        """Take a whole expert that leaves the card; `dirty` when disk does not have it like this."""
        self.forget(record.uid)
        if dirty:
            self._dirty.add(record.uid)
        self._keep(record)

    def forget(self, uid: int) -> None:
        """Drop an expert: it was changed on the card, or it is no more."""
        self._held.pop(uid, None)
        for known in (self._dirty, self._unrounded, self._without_moments):
            known.discard(uid)

    def clear(self) -> None:
        """Drop everything: the directory was reverted."""
        self._held.clear()
        for known in (self._dirty, self._unrounded, self._without_moments):
            known.clear()

    def dirty(self) -> dict[int, ExpertRecord]:
        """The records that disk does not have, by uid."""
        return {uid: self._held[uid] for uid in self._dirty}

    def settle(self) -> None:
        """Everything held is in a checkpoint now. Moments and averages become what its files hold when an
        expert is next asked for: rounding all of them at once would hold training up."""
        self._unrounded = set(self._held)
        self._dirty.clear()

    def _keep(self, record: ExpertRecord) -> None:
        self._held[record.uid] = record
        self._held.move_to_end(record.uid)
        if not self.limit or len(self._held) <= self.limit:
            return
        refused = None
        for uid in list(self._held)[:-1]:
            if uid in self._dirty and (refused := refused or self._refusal(uid)):
                continue
            self.forget(uid)
            if len(self._held) <= self.limit:
                break
        if refused and not self.roomy():
            raise refused

    def _refusal(self, uid: int) -> WeightsError | None:
        """Put an expert aside on disk, or say why that cannot be."""
        try:
            self.disk.spill_expert(self._held[uid])
        except WeightsError as error:
            self.refused = error
        else:
            self.refused = None
        return self.refused
