"""Saving and going back: what of a run is kept beside the weights, when, and how a revert restores it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from minagi import protocol
from minagi.errors import UsageError
from minagi.protocol import Log, Message
from minagi.training.engine import Engine
from minagi.training.history import History
from minagi.training.progress import Progress

OURS = "minagi"  # the manifest key under which this program keeps what the public layout has no place for


class Checkpoints:
    """The weights directory as a run uses it. `gather` gives the manifest keys the trainer owns."""

    def __init__(
        self,
        engine: Engine,
        progress: Progress,
        history: History,
        gather: Callable[[], dict[str, Any]],
        *,
        dry_run: bool,
        save_every: float,
        clock: Callable[[], float],
    ) -> None:
        self.engine, self.progress, self.history = engine, progress, history
        self._gather, self.dry_run, self._clock = gather, dry_run, clock
        self._every = save_every * 60
        self._saved_at = clock()
        self.disk_bytes = 0
        self.measure_disk()

    def due(self) -> bool:
        """Whether `save_every` minutes have gone by with something new to save."""
        return (
            not self.dry_run
            and self._clock() - self._saved_at >= self._every
            and self.progress.unsaved_chars > 0
        )

    def save(self, kind: str, name: str = "") -> Iterator[Message]:
        """Write a checkpoint; a dry run has nowhere to put one and says so."""
        if self.dry_run:
            raise UsageError(
                "This is a dry run: nothing is saved. Start one that saves to keep what it learns."
            )
        began = self._clock()
        self._saved_at = began  # also when it fails: the next try comes a whole interval later
        progress, store = self.progress, self.engine.store
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

    def _record(self) -> Iterator[Message]:
        progress, telemetry = self.progress, self.engine.pool.telemetry
        trouble = self.history.append(
            {
                "time": time.time(),
                "step": progress.step,
                "chars": progress.chars,
                "val": progress.val,
                "experts": len(telemetry),
                "memory": self.engine.hardware.memory_used(),
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
        undo = ""
        if self.dry_run:
            if to not in ("", "last"):
                raise UsageError(
                    "A dry run can only go back to where it started, which is the last checkpoint."
                )
        else:
            target = self._find(to)
            if progress.unsaved_chars > 0:
                info = store.checkpoint(self.engine.state(self._gather()), kind="before-revert")
                undo = info.id
            store.revert(target)
        self.engine.reload()
        restore(store.manifest)
        self.measure_disk()
        trouble = "" if self.dry_run else self.history.drop_after(progress.step)
        if trouble:
            yield Log(at=time.time(), level="warning", topic="checkpoint", text=trouble)
        yield protocol.Reverted(
            at=time.time(),
            snapshot="" if self.dry_run else target,
            undo=undo,
            step=progress.step,
            chars=progress.chars,
            held_out=progress.val,
            reason=reason,
        )

    def _find(self, to: str) -> str:
        """The id of the snapshot meant by `to`."""
        kept = self.engine.store.snapshots()
        if to in ("", "last"):
            wanted = [info for info in kept if info.kind != "damaged"]
        elif to == "best":
            wanted = [info for info in kept if info.kind == "best"] or kept
        else:
            wanted = [info for info in kept if to in (info.id, info.name)]
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
