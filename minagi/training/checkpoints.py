"""Saving and going back: what of a run is kept beside the weights, when, and how a revert restores it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from minagi import protocol
from minagi.errors import UsageError, WeightsError
from minagi.hardware import free_memory
from minagi.pool.copies import Copies
from minagi.protocol import Log, Message
from minagi.training.engine import Engine
from minagi.training.history import History
from minagi.training.progress import Progress
from minagi.training.request import NOTHING_SAVED
from minagi.units import size
from minagi.weights import SnapshotInfo

COPY_SHARE = 0.5  # of the free memory: what the copy of a checkpoint may take
ASKED = "asked"  # the reason of a revert that a person wanted


@dataclass
class _Begun:
    """A checkpoint whose state was taken: what there is to tell of it when it is complete."""

    began: float  # on the run's clock
    step: int
    chars: int
    held_out: float | None
    row: dict[str, Any]  # of the history
    ended: float | None = None

    def end(self, now: float) -> None:
        self.ended = now


class Checkpoints:
    """The weights directory as a run uses it. `gather` gives the manifest keys the trainer owns,
    `row` what it knows for a row of the history."""

    def __init__(
        self,
        engine: Engine,
        progress: Progress,
        history: History,
        gather: Callable[[], dict[str, Any]],
        row: Callable[[], dict[str, Any]],
        *,
        dry_run: bool,
        save_every: float,
        clock: Callable[[], float],
    ) -> None:
        self.engine, self.progress, self.history = engine, progress, history
        self._gather, self._row, self.dry_run, self._clock = gather, row, dry_run, clock
        self._every = save_every * 60
        self._saved_at = clock()
        self.guarded: Callable[[], AbstractContextManager[None]] = nullcontext  # nothing breaks in
        self._under_way: tuple[_Begun, Future[SnapshotInfo]] | None = None
        self._copies: Copies | None = None
        self._said_no_room = self._said_refused = False
        self.disk_bytes = 0
        self.measure_disk()

    def due(self) -> bool:
        """Whether `save_every` minutes have gone by with something new to save, and none is being written."""
        return (
            not self.dry_run
            and self._under_way is None
            and self.age() >= self._every
            and self.progress.unsaved_chars > 0
        )

    def age(self) -> float:
        """Seconds since the last checkpoint, or since the run began."""
        return self._clock() - self._saved_at

    def save(self, kind: str, name: str = "") -> Iterator[Message]:
        """Write a checkpoint now, which training waits for. A dry run has nowhere to put one and says so."""
        if self.dry_run:
            raise UsageError(NOTHING_SAVED)
        yield from self.finish()
        begun = self._begun()
        with self.guarded():
            info = self.engine.store.checkpoint(self.engine.state(self._gather()), kind=kind, name=name)
            self.engine.settle()
            self.progress.saved_chars = begun.chars
        yield from self._completed(begun, info)

    def begin(self, kind: str) -> Iterator[Message]:
        """Save unasked: training goes on while a copy is written. Where that fails it is tried again later.

        What comes of it is told by `told` or `finish`. Nothing in a dry run.
        """
        if self.dry_run:
            return
        yield from self.finish()
        copies = self._room()
        if copies is None:
            yield from self._tell_no_room()
            yield from self.attempt(kind)
            return
        begun = self._begun()
        with self.guarded():
            state = self.engine.state(self._gather(), copies)
            future = self.engine.store.begin_checkpoint(state, kind=kind)
            future.add_done_callback(lambda _: begun.end(self._clock()))
            self.engine.settle()
            self._under_way = (begun, future)

    def told(self, goes_on: bool = True) -> Iterator[Message]:
        """What there is to tell of a checkpoint that was begun, once it is complete; and of a disk that takes
        no experts, or takes them again. `goes_on` as for `finish`."""
        if self._under_way is not None and self._under_way[1].done():
            yield from self.finish(goes_on)
        refused = self.engine.pool.ram.refused
        if refused is not None and not self._said_refused:
            yield _log("warning", f"{refused} Until then it stays in memory, and training goes on.")
        elif refused is None and self._said_refused:
            yield _log("info", "Experts are put aside on disk again.")
        self._said_refused = refused is not None

    def finish(self, goes_on: bool = False) -> Iterator[Message]:
        """Wait for the checkpoint that was begun, if one was. `goes_on`: there is training before another."""
        if self._under_way is None:
            return
        begun, future = self._under_way
        with self.guarded():
            wait([future])
        self._under_way = None
        try:
            info = future.result()
        except WeightsError as error:
            self._copies = None  # the store keeps what it holds of them for the next one
            yield self._not_saved(error, goes_on)
        else:
            self.progress.saved_chars = begun.chars
            yield from self._completed(begun, info)

    def _room(self) -> Copies | None:
        """Memory for a copy, kept for the next one; None while there is too little."""
        needed = self.engine.copied_bytes
        if self._copies is None or self._copies.size < needed:
            self._copies = None
            if needed > free_memory() * COPY_SHARE:
                return None
            self._copies = Copies(needed)
        return self._copies.reused()

    def attempt(self, kind: str, goes_on: bool = True) -> Iterator[Message]:
        """`save` that nobody asked for: where it fails the run goes on, if it does, and it is tried later."""
        yield protocol.Phase(phase="saving")
        try:
            yield from self.save(kind)
        except WeightsError as error:
            yield self._not_saved(error, goes_on)

    def _tell_no_room(self) -> Iterator[Message]:
        if not self._said_no_room:
            self._said_no_room = True
            text = (
                "Too little memory is free to save while training goes on, so training waits for each save."
            )
            yield _log("warning", text)

    def _not_saved(self, error: WeightsError, goes_on: bool) -> Log:
        then = f" Training goes on; the next try is in {self._every / 60:g} minutes." if goes_on else ""
        return _log("error", f"Not saved: {error}{then}")

    def _begun(self) -> _Begun:
        """What there will be to tell of the checkpoint that is taken now."""
        progress, telemetry = self.progress, self.engine.pool.telemetry
        self._saved_at = self._clock()  # also when it fails: the next try comes a whole interval later
        row = {
            "time": time.time(),
            "model": str(self.engine.store.path),
            "step": progress.step,
            "chars": progress.chars,
            "val": progress.val,
            "experts": len(telemetry),
            "memory": self.engine.hardware.memory_used(),
            **self._row(),
            **telemetry.to_manifest(self.engine.net.pool.gate.tolist()),
        }
        return _Begun(self._saved_at, progress.step, progress.chars, progress.val, row)

    def _completed(self, begun: _Begun, info: SnapshotInfo) -> Iterator[Message]:
        seconds = (self._clock() if begun.ended is None else begun.ended) - begun.began
        self.measure_disk()
        self.engine.pool.ram.refused = None
        yield protocol.Saved(
            at=time.time(),
            snapshot=info.id,
            name=info.name,
            kind=info.kind,
            step=begun.step,
            chars=begun.chars,
            held_out=begun.held_out,
            seconds=seconds,
            bytes_written=info.bytes_written,
        )
        trouble = self.history.append(begun.row)
        if trouble:
            yield _log("warning", trouble)

    def resumed(self) -> Iterator[Message]:
        """Bring the history to where the model goes on from."""
        model = str(self.engine.store.path)
        trouble = "" if self.dry_run else self.history.drop_after(self.progress.step, model)
        if trouble:
            yield _log("warning", trouble)

    def revert(self, to: str, reason: str, restore: Callable[[dict[str, Any]], None]) -> Iterator[Message]:
        """Become snapshot `to` again ("" the last checkpoint, "best" the best); the present is kept first."""
        store, progress = self.engine.store, self.progress
        yield from self.finish()
        if not store.exists:
            raise UsageError("Nothing has been saved yet, so there is nothing to go back to.")
        target = undo = ""
        if self.dry_run:
            if to not in ("", "last"):
                raise UsageError(
                    "A dry run can only go back to where it started, which is the last checkpoint."
                )
            store.forget_spilled()
        else:
            target = self._find(to)
            kept = progress.unsaved_chars == 0 or (yield from self._keep_present(reason))
            with self.guarded():
                left = store.revert(target)
            undo = left.undo if kept else ""
            if left.fault is not None:
                yield _log(
                    "warning", f"The present could not be kept, so this cannot be undone: {left.fault}"
                )
        self.engine.reload()
        restore(store.manifest)
        self.measure_disk()
        yield from self.resumed()
        yield protocol.Reverted(
            at=time.time(),
            snapshot=target,
            undo=undo,
            step=progress.step,
            chars=progress.chars,
            held_out=progress.val,
            reason=reason,
        )

    def _keep_present(self, reason: str) -> Generator[Message, None, bool]:
        """Save what is about to be left. A run that goes back by itself, from a present too broken to be
        saved, goes back all the same; False then."""
        try:
            self.engine.store.checkpoint(self.engine.state(self._gather()), kind="before-revert")
        except WeightsError as error:
            if reason == ASKED:
                raise
            yield _log("warning", f"What was learned since the last checkpoint is lost: {error}")
            return False
        self.engine.settle()
        self.progress.saved_chars = self.progress.chars
        return True

    def _find(self, to: str) -> str:
        """The id of the snapshot meant by `to`."""
        store = self.engine.store
        if to not in ("", "last", "best"):
            return store.find(to).id
        best = self.best(self.progress.other_text_until) if to == "best" else ""
        return best or store.present().id

    def best(self, after: int) -> str:
        """The id of the snapshot with the lowest reading, of those past step `after`; "" if there is none."""
        kept = [
            info
            for info in self.engine.store.snapshots()
            if info.kind == "best" and info.held_out is not None and info.step > after
        ]
        return min(kept, key=lambda info: info.held_out or 0.0).id if kept else ""

    def snapshots(self) -> protocol.Snapshots:
        """Every kept checkpoint, newest first."""
        store = self.engine.store
        return protocol.Snapshots([asdict(info) for info in store.snapshots()], store.standing())

    def delete(self, wanted: str) -> Iterator[Message]:
        """Remove a kept checkpoint; what that gave back, and those that are left."""
        if self.dry_run:
            raise UsageError(
                "This is a dry run, which changes nothing of the model: no checkpoint is deleted."
            )
        yield from self.finish()
        store = self.engine.store
        info = store.find(wanted)
        with self.guarded():
            store.delete_snapshot(info.id)
        self.measure_disk()
        which = f" “{info.name}”" if info.name else ""
        what = f"The checkpoint{which} of step {info.step:,} is deleted"
        yield _log("info", f"{what}, which gave back {size(info.bytes_freed)}.")
        yield self.snapshots()

    def measure_disk(self) -> None:
        """Look at the size of the weights directory; done after each save, for it walks every file."""
        self.disk_bytes = self.engine.store.disk_bytes()


def _log(level: str, text: str) -> Log:
    return Log(at=time.time(), level=level, topic="checkpoint", text=text)
