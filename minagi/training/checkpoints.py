"""Saving and going back: what of a run is kept beside the weights, when, and how a revert restores it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

from minagi import protocol
from minagi.errors import UsageError, WeightsError
from minagi.protocol import Log, Message
from minagi.training.engine import Engine
from minagi.training.history import History
from minagi.training.progress import Progress

ASKED = "asked"  # the reason of a revert that a person wanted
OURS = "minagi"  # the manifest key under which this program keeps what the public layout has no place for


def ours_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier run of this program kept in a manifest; {} where there is nothing usable."""
    ours = manifest.get(OURS)
    return ours if isinstance(ours, dict) else {}


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
        self.disk_bytes = 0
        self.measure_disk()

    def due(self) -> bool:
        """Whether `save_every` minutes have gone by with something new to save."""
        return not self.dry_run and self.age() >= self._every and self.progress.unsaved_chars > 0

    def age(self) -> float:
        """Seconds since the last checkpoint, or since the run began."""
        return self._clock() - self._saved_at

    def save(self, kind: str, name: str = "") -> Iterator[Message]:
        """Write a checkpoint; a dry run has nowhere to put one and says so."""
        if self.dry_run:
            raise UsageError(
                "This is a dry run: nothing is saved. Start one that saves to keep what it learns."
            )
        began = self._clock()
        self._saved_at = began  # also when it fails: the next try comes a whole interval later
        progress, store = self.progress, self.engine.store
        with self.guarded():
            info = store.checkpoint(self.engine.state(self._gather()), kind=kind, name=name)
            self.engine.settle()
            progress.saved_chars = progress.chars
        self.measure_disk()
        seconds = self._clock() - began
        yield protocol.Saved(
            at=time.time(),
            snapshot=info.id,
            name=info.name,
            kind=info.kind,
            step=progress.step,
            chars=progress.chars,
            held_out=progress.val,
            seconds=seconds,
            bytes_written=info.bytes_written,
        )
        yield from self._record()

    def resumed(self) -> Iterator[Message]:
        """Bring the history to where the model goes on from."""
        model = str(self.engine.store.path)
        trouble = "" if self.dry_run else self.history.drop_after(self.progress.step, model)
        if trouble:
            yield Log(at=time.time(), level="warning", topic="checkpoint", text=trouble)

    def _record(self) -> Iterator[Message]:
        progress, telemetry = self.progress, self.engine.pool.telemetry
        trouble = self.history.append(
            {
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
        )
        if trouble:
            yield Log(at=time.time(), level="warning", topic="checkpoint", text=trouble)

    def revert(self, to: str, reason: str, restore: Callable[[dict[str, Any]], None]) -> Iterator[Message]:
        """Become snapshot `to` again ("" the last checkpoint, "best" the best); the present is kept first."""
        store, progress = self.engine.store, self.progress
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
            present = store.present().id
            target = self._find(to, present)
            undo = present if target != present else ""
            if progress.unsaved_chars > 0:
                undo = yield from self._keep_present(reason)
            with self.guarded():
                store.revert(target)
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

    def _keep_present(self, reason: str) -> Generator[Message, None, str]:
        """Save what is about to be left; the id to come back to it by. A run that goes back by itself, from
        a present too broken to be saved, goes back all the same."""
        try:
            info = self.engine.store.checkpoint(self.engine.state(self._gather()), kind="before-revert")
        except WeightsError as error:
            if reason == ASKED:
                raise
            text = f"What was learned since the last checkpoint is lost: {error}"
            yield Log(at=time.time(), level="warning", topic="checkpoint", text=text)
            return ""
        self.engine.settle()
        self.progress.saved_chars = self.progress.chars
        return info.id

    def _find(self, to: str, present: str) -> str:
        """The id of the snapshot meant by `to`; `present` is the last checkpoint's."""
        if to in ("", "last"):
            return present
        kept = self.engine.store.snapshots()
        if to == "best":
            best = [info for info in kept if info.kind == "best" and info.held_out is not None]
            return min(best, key=lambda info: info.held_out or 0.0).id if best else present
        wanted = [info for info in kept if info.id == to] or [info for info in kept if info.name == to]
        if not wanted:
            there = ", ".join(info.id for info in kept[:8]) or "none"
            raise UsageError(f"There is no snapshot {to!r}. There are: {there}.")
        return wanted[0].id

    def snapshots(self) -> protocol.Snapshots:
        """Every kept checkpoint, newest first."""
        return protocol.Snapshots(items=[asdict(info) for info in self.engine.store.snapshots()])

    def measure_disk(self) -> None:
        """Look at the size of the weights directory; done after each save, for it walks every file."""
        self.disk_bytes = self.engine.store.disk_bytes()
