"""Trained experts that left RAM between two checkpoints.

They lie beside the checkpoint, never in it, exactly as they were in RAM, and live as long as the process: a
crash returns to the checkpoint, so nothing here is synced, named for others or read by them. The names,
kinds, shapes and places of a file's arrays are kept in memory.

A checkpoint takes what is spilled (`current`; `mark`, if training goes on meanwhile), writes it, and lets
it go (`drop`). An expert spilled again meanwhile is newer than the checkpoint and stays.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from minagi.weights import files, memory
from minagi.weights.faults import FileFault, Missing, Unreadable
from minagi.weights.tensors import Arrays, ExpertRecord, as_written

Sizes = dict[str, tuple[tuple[int, ...], np.dtype]]  # name -> shape and kind, in the file's order
_REMEDY = "Revert to the last checkpoint."


@dataclass
class Spilled:
    """One expert's file in the spill."""

    uid: int
    path: Path
    weights: Sizes
    average: Sizes
    moments: Sizes
    rounded: bool = False  # a checkpoint has taken it: moments and average read as that wrote them


class SpillArea:
    """The spilled experts of one open directory. Safe for several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # made when it is first needed
        self._lock = threading.Lock()
        self._current: dict[int, Spilled] = {}
        self._retired: list[Spilled] = []  # replaced, but a checkpoint may still be reading them
        self._made = 0

    def __contains__(self, uid: int) -> bool:
        return uid in self._current

    def write(self, record: ExpertRecord) -> None:
        """Keeps `record`, in place of an older one of the same expert. OSError when it cannot be written."""
        with self._lock:
            self._made += 1
            path = self.folder / f"{record.uid}-{os.getpid()}-{self._made}"
        if not self.folder.is_dir():
            with suppress(FileExistsError):
                files.mkdir(self.folder)
        parts = [_plain(part or {}) for part in (record.weights, record.average, record.moments)]
        arrays = [array for part in parts for array in part.values()]
        try:
            files.write_file(path, (a.reshape(-1).view(np.uint8).data for a in arrays), sync=False)
        except OSError:
            _discard(path)
            raise
        weights, average, moments = map(_sizes, parts)
        new = Spilled(record.uid, path, weights, average, moments)
        with self._lock:
            old = self._current.get(record.uid)
            self._current[record.uid] = new
            if old is not None and old.rounded:
                self._retired.append(old)
                old = None
        if old is not None:
            _discard(old.path)

    def read(self, uid: int, *, weights: bool, moments: bool) -> ExpertRecord | None:
        """What is asked for of the expert, as it was spilled; None when it is not here."""
        with self._lock:  # opened under the lock: a checkpoint that ends may remove the name
            entry = self._current.get(uid)
            if entry is None:
                return None
            fd = _opened(entry)
        return _read(entry, fd, weights, moments)

    def current(self) -> dict[int, Spilled]:
        """What a checkpoint taken now has to write."""
        with self._lock:
            return dict(self._current)

    def mark(self) -> dict[int, Spilled]:
        """The same for one that another thread writes: from here on the moments of these read as rounded."""
        with self._lock:
            for entry in self._current.values():
                entry.rounded = True
            return dict(self._current)

    def drop(self, marked: dict[int, Spilled]) -> None:
        """Forgets what a completed checkpoint wrote; experts spilled since stay."""
        with self._lock:
            gone = [*marked.values(), *self._retired]
            self._retired.clear()
            for uid, entry in marked.items():
                if self._current.get(uid) is entry:
                    del self._current[uid]
        for path in sorted({entry.path for entry in gone}):
            _discard(path)

    def clear(self) -> None:
        """Forgets everything."""
        self.drop(self.current())


def read_spilled(entry: Spilled) -> ExpertRecord:
    """The expert as `SpillArea.mark` found it, moments rounded."""
    return _read(entry, _opened(entry), True, True)


def _opened(entry: Spilled) -> int:
    try:
        return files.open_regular(entry.path)
    except Missing:
        raise FileFault(entry.path, "was removed by another program", _REMEDY) from None


def _discard(path: Path) -> None:
    """Removes a file nobody needs. One that stays is removed when the directory is next opened."""
    with suppress(OSError):
        files.unlink(path)


def _plain(arrays: Arrays) -> Arrays:
    """The arrays in one piece each, in fp32 where they are not bf16 bits."""
    return {
        n: np.ascontiguousarray(a, None if a.dtype == np.int16 else np.float32) for n, a in arrays.items()
    }


def _sizes(arrays: Arrays) -> Sizes:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _read(entry: Spilled, fd: int, weights: bool, moments: bool) -> ExpertRecord:
    """Reads and closes `fd`."""
    parts: list[Arrays] = []
    at = 0
    try:
        for sizes, wanted in ((entry.weights, weights), (entry.average, weights), (entry.moments, moments)):
            parts.append({})
            for name, (shape, dtype) in sizes.items():
                if wanted:
                    array = parts[-1][name] = memory.empty(shape, dtype)
                    if not files.read_into(fd, array, at):
                        raise FileFault(entry.path, "was cut short by another program", _REMEDY)
                at += prod(shape) * dtype.itemsize
    except OSError as error:
        raise Unreadable(entry.path, error) from None
    finally:
        os.close(fd)
    record = ExpertRecord(entry.uid, parts[0], parts[2] or None, parts[1] or None)
    return as_written(record) if entry.rounded else record
