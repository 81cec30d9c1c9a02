"""A weights directory, open: what the pool, the trainer and the commands use of this package."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from minagi.errors import UsageError, WeightsError
from minagi.weights import files, layout, snapshots, traces
from minagi.weights.contents import Contents
from minagi.weights.faults import Missing, spoken
from minagi.weights.layout import Model, Places
from minagi.weights.lock import Lock
from minagi.weights.present import Left, Present
from minagi.weights.snapshots import SnapshotInfo
from minagi.weights.spill import SpillArea, Spilled
from minagi.weights.tensors import Arrays, ExpertRecord, Optim, as_written
from minagi.weights.view import View, look, remedied
from minagi.weights.writing import CheckpointState, Previous, build


class Store:
    """An open weights directory. `open` makes one; use as a context, or call `close`.

    One thread uses it. The thread that `begin_checkpoint` starts is the store's own, and reading and
    spilling go on meanwhile; whatever changes the directory waits for it.
    """

    def __init__(self, places: Places, spill: Path | None, clock: Callable[[], float]) -> None:
        self.path = places.root
        self._places = places
        self._clock = clock
        self._lock: Lock | None = None
        self._made: list[Path] = []  # folders that were not there before it was opened
        self._present = Present(places)
        self._spill = None if spill is None else SpillArea(spill)
        self._contents = Contents(places)
        self._handed: dict[int, ExpertRecord] = {}  # handed over for a checkpoint that is not complete yet
        self._thread = ThreadPoolExecutor(1, "minagi-checkpoint")
        self._under_way: Future[SnapshotInfo] | None = None
        self._committing = threading.RLock()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        write: bool,
        role: str = "trainer",
        scratch: Path | None = None,
        repair: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> Store:
        """Opens the weights directory `path`.

        With `write` the directory is made if there is none, its lock is taken, and a commit that was
        interrupted is completed or undone. Without, nothing there is ever written, and the whole checkpoint
        that was found stays readable beside a live writer; `scratch`, a folder elsewhere, then takes spilled
        experts (a dry run). `repair` opens a damaged directory too, so that it can be reverted.

        LockedError names a live owner; WeightsError says what is wrong with a file, and what to do.
        """
        places = Places(Path(path).absolute())
        store = cls(places, places.spill if write else scratch, clock)
        if write:
            store._open_for_writing(role, repair)
        else:
            store._present.read_only()
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for a checkpoint under way, forgets what is spilled, lets lock and snapshot go."""
        self._thread.shutdown()
        with self._committing:
            spill, lock = self._spill, self._lock
            self._spill = self._lock = None
            try:
                if spill is not None:
                    spill.clear()
            finally:
                unborn = self._present.unborn
                self._present.close()
                if lock is not None and unborn:
                    traces.remove(self._places, self._made, lock)
                elif lock is not None:
                    lock.release()

    def _open_for_writing(self, role: str, repair: bool) -> None:
        places = self._places
        if not repair:
            with remedied(places):
                look(places.root).close()  # whatever is wrong shows before anything is written
        with spoken("open the model for writing", self.path):
            self._made = traces.missing(places)
            files.make_folders(self.path)
            files.make_folder(places.private)
            self._lock = Lock(places.lock, role, self._clock)
            try:
                files.make_folder(places.snapshots)
                files.remove_tree(places.spill)
                self._present.recover(repair)
            except BaseException:
                self._lock.release()
                raise

    def _here(self) -> View:
        view = self._present.view
        if self._present.unsettled:
            with self._committing, spoken("complete the last save", self.path):
                self._present.settle()
                view = self._present.view
        return view

    # -------------------------------------------------------------------------------------- reading

    @property
    def exists(self) -> bool:
        """Whether there is a model; False in a new directory, or one with a manifest alone."""
        return self._here().model is not None

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as it was read or last written; not to be changed."""
        return self._here().manifest

    @property
    def shape(self) -> dict[str, Any]:
        """The manifest's `cfg`, checked; `pool_experts` is the number of experts there are. Before a model is
        made: those of its values that the manifest gives, if any."""
        view = self._here()
        if view.model is not None:
            return view.model.shape
        return layout.check_shape(self.path / layout.MANIFEST, view.manifest, complete=False)

    @property
    def uids(self) -> list[int]:
        """The experts in pool order, as of the checkpoint."""
        return list(self._model().experts)

    def read_core(self) -> Arrays:
        """Every trunk tensor, fp32."""
        return self._contents.core(self._here())

    def read_routers(self) -> Arrays:
        """`pool.gate` [E], router rows [E, D] and depth embeddings [D], fp32."""
        return self._contents.routers(self._here())

    def read_optim(self) -> Optim:
        """Parameter -> (m, v, t) for all but experts; {} where the directory has no optim.npz.

        m and v are None where they start at zero, as they do when their shape no longer fits. The
        experts' shared step counts are there too, as `pool.w1` … without moments.
        """
        return self._contents.optim(self._here())

    def read_average(self) -> Arrays | None:
        """The averages of the trunk and the routers by name, fp32; None where there are none."""
        return self._contents.average(self._here())

    def read_expert(self, uid: int, moments: bool = True, weights: bool = True) -> ExpertRecord:
        """An expert as it was last spilled, handed over or checkpointed. Moments are None when they are zero
        or not asked for, weights {} when not asked for. Its arrays are not to be changed."""
        parts = {"weights": weights, "moments": moments}
        if self._spill is not None and (record := self._spill.read(uid, **parts)) is not None:
            return record
        if (handed := self._handed.get(uid)) is not None:
            return as_written(handed, **parts)
        try:
            return self._contents.expert(self._here(), uid, **parts)
        except Missing:
            if self._lock is None:
                raise
            with self._committing:  # the file may just have been renamed by a commit of the other thread
                return self._contents.expert(self._here(), uid, **parts)

    def _model(self) -> Model:
        return self._here().made()

    # -------------------------------------------------------------------------------------- spilling

    def spill_expert(self, record: ExpertRecord) -> None:
        """Keeps a trained or newborn expert outside RAM until the next checkpoint, in fp32 exactly."""
        if self._spill is None:
            raise UsageError(f"{self.path} is open for reading only: no expert can be put aside.")
        with spoken("put an expert aside", self._spill.folder):
            self._spill.write(record)

    def forget_spilled(self) -> None:
        """Forgets what was spilled since the checkpoint, also in a dry run's scratch folder: experts read as
        the checkpoint has them again."""
        if self._spill is not None:
            self._spill.clear()

    # ------------------------------------------------------------------------------------ committing

    def checkpoint(self, state: CheckpointState, *, kind: str = "auto", name: str = "") -> SnapshotInfo:
        """Makes `state` what the directory is, all of it or nothing; what it is kept as.

        Experts that neither changed in memory nor lie in the spill keep their files. A caller clears its own
        marks of what changed after this returns, not before. `kind` is one of `snapshots.KINDS`; a `name`
        keeps the snapshot until it is deleted. WeightsError when it could not be written: the last
        checkpoint stands.
        """
        with self._changing("save the model") as spill:
            return self._write(state, spill.current(), kind, name)

    def begin_checkpoint(
        self, state: CheckpointState, *, kind: str = "auto", name: str = ""
    ) -> Future[SnapshotInfo]:
        """`checkpoint` by a thread of its own, while training goes on; waits for the one before.

        `state` is the store's until it is written: nobody changes its arrays. Its experts, and what is
        spilled now, read at once as the checkpoint will hold them, moments rounded, so the caller clears its
        marks of what changed when this returns. If the write fails they stay here, for the next checkpoint.
        """
        with self._changing("save the model") as spill:
            state = replace(state, experts=self._unwritten(state, spill.current()) | state.experts)
            self._handed = state.experts
            spilled = spill.mark()
            spill.drop({uid: spilled.pop(uid) for uid in state.experts if uid in spilled})
            self._under_way = self._thread.submit(self._write, state, spilled, kind, name)
            return self._under_way

    def _unwritten(self, state: CheckpointState, spilled: dict[int, Spilled]) -> dict[int, ExpertRecord]:
        """Experts of a checkpoint that failed, unchanged since: they go into the next one."""
        newer = spilled.keys() | state.experts.keys()
        return {uid: record for uid, record in self._handed.items() if uid in state.uids and uid not in newer}

    def _write(
        self, state: CheckpointState, spilled: dict[int, Spilled], kind: str, name: str
    ) -> SnapshotInfo:
        if kind not in snapshots.KINDS:
            raise UsageError(f"A snapshot's kind is one of {', '.join(snapshots.KINDS)}, not {kind!r}.")
        with self._committed("save the model") as spill:
            self._present.settle()
            state = replace(state, experts=self._unwritten(state, spilled) | state.experts)
            base = self._present.kept()
            number = snapshots.next_number(self._places.snapshots)

            def describe(model: Model) -> SnapshotInfo:
                info = snapshots.describe(model, number, kind, name, self._clock())
                return replace(info, ways=snapshots.ways_to(info, base))

            previous = Previous(self._here().manifest, self._here().model, base)
            snapshot, model, written = build(self._places, state, spilled, previous, describe)
            self._present.become(snapshot, model, base)
            self._handed = {}
            spill.drop(spilled)
            if kind != "before-revert":  # the snapshot about to be gone back to may be the oldest there is
                with suppress(OSError, WeightsError):  # the checkpoint stands; the next one can do this
                    snapshots.expire(self._places.snapshots, self._places.trash)
            return replace(snapshot.info, bytes_written=written)

    def snapshots(self) -> list[SnapshotInfo]:
        """Every kept checkpoint, newest first."""
        return snapshots.listing(self._places.snapshots)

    def find(self, wanted: str) -> SnapshotInfo:
        """The kept checkpoint with this id, or else with this name. UsageError when there is none."""
        return snapshots.find(self._places.snapshots, wanted)

    def keep(self, *, kind: str = "before-revert", name: str = "") -> SnapshotInfo:
        """Makes a snapshot of the directory as it is on disk, which costs links and no bytes."""
        with self._changing("keep a snapshot"):
            self._present.settle()
            return self._present.keep(kind, name, self._clock()).info

    def present(self) -> SnapshotInfo:
        """The snapshot that the directory is now, as it is on disk; made if there is none, of links alone."""
        with self._changing("keep a snapshot"):
            self._present.settle()
            self._model()
            kept = self._present.kept()
            assert kept is not None
            return kept.info

    def standing(self) -> str:
        """Id of the snapshot that the present goes on from; "" where there is none, or nothing is written."""
        if self._lock is None:
            return ""
        if (known := self._present.standing) is not None:
            return known
        with self._changing("look at the snapshots"):
            self._present.settle()
            return self._present.find_standing()

    def revert(self, snapshot_id: str) -> Left:
        """Makes the directory what it was at a snapshot, given by id or by name; "" forgets only what was
        spilled since the last checkpoint. UsageError when there is no such snapshot and WeightsError when it
        is damaged: nothing has changed then.

        The present is not lost: unless a snapshot of it is kept already, one is made, if its files are sound.
        """
        left = Left()
        with self._changing("revert the model") as spill:
            self._present.settle()
            if snapshot_id:
                left = self._present.revert(snapshot_id)
            self._handed = {}
            spill.clear()
        return left

    def delete_snapshot(self, snapshot_id: str) -> None:
        """Removes a snapshot, given by id or by name. The model as it is never changes by this. UsageError
        where there is no such snapshot, or the model goes on from it."""
        with self._changing("delete a snapshot"):
            self._present.settle()
            self._present.delete(snapshot_id)

    def disk_bytes(self) -> int:
        """Bytes of everything under the directory, snapshots and spill included; looks at every file."""
        return files.disk_bytes(self.path)

    @contextmanager
    def _changing(self, action: str) -> Iterator[SpillArea]:
        """Around a change of the directory, which waits for a checkpoint that is under way."""
        if self._under_way is not None:
            wait([self._under_way])  # whoever began it hears of its faults
        with self._committed(action) as spill:
            yield spill

    @contextmanager
    def _committed(self, action: str) -> Iterator[SpillArea]:
        if self._lock is None or self._spill is None:
            raise UsageError(f"{self.path} is open for reading only: cannot {action}.")
        with self._committing, remedied(self._places), spoken(action, self.path):
            yield self._spill
