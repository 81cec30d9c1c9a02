"""Trained experts that left RAM between two checkpoints.

They lie beside the checkpoint, never in it, in fp32 exactly, and live as long as the process: a crash
returns to the checkpoint, so nothing here is synced, named for others or read by them. The names, shapes and
places of a file's arrays are kept in memory.

A checkpoint takes what is spilled (`current`; `mark`, if training goes on meanwhile), writes it, and lets
it go (`drop`). An expert spilled again meanwhile is newer than the checkpoint and stays.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minagi.weights import files
from minagi.weights.faults import FileFault, Missing, Unreadable
from minagi.weights.tensors import Arrays, ExpertRecord, as_written

_REMEDY = "Revert to the last checkpoint."


@dataclass
class Spilled:
    """One expert's file in the spill."""

    uid: int
    path: Path
    weights: dict[str, tuple[int, ...]]  # name -> shape, in the file's order
    average: dict[str, tuple[int, ...]]
    moments: dict[str, tuple[int, ...]]
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
        parts = (record.weights, record.average or {}, record.moments or {})
        arrays = [np.ascontiguousarray(a, np.float32) for part in parts for a in part.values()]
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

    def read(self, uid: int, *, moments: bool) -> ExpertRecord | None:
        """The expert as it was spilled; None when it is not here."""
        with self._lock:  # opened under the lock: a checkpoint that ends may remove the name
            entry = self._current.get(uid)
            if entry is None:
                return None
            fd = _opened(entry)
        return _read(entry, fd, moments)

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
    return _read(entry, _opened(entry), True)


def _opened(entry: Spilled) -> int:
    try:
        return files.open_regular(entry.path)
    except Missing:
        raise FileFault(entry.path, "was removed by another program", _REMEDY) from None


def _discard(path: Path) -> None:
    """Removes a file nobody needs. One that stays is removed when the directory is next opened."""
    with suppress(OSError):
        files.unlink(path)


def _sizes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _read(entry: Spilled, fd: int, moments: bool) -> ExpertRecord:
    """Reads and closes `fd`."""
    parts: list[Arrays] = []
    at = 0
    try:
        for sizes in (entry.weights, entry.average, entry.moments if moments else {}):
            parts.append({name: np.empty(size, np.float32) for name, size in sizes.items()})
            for array in parts[-1].values():
                if not files.read_into(fd, array, at):
                    raise FileFault(entry.path, "was cut short by another program", _REMEDY)
                at += array.nbytes
    except OSError as error:
        raise Unreadable(entry.path, error) from None
    finally:
        os.close(fd)
    weights, average, state = parts
    record = ExpertRecord(entry.uid, weights, state or None, average or None)
    return as_written(record) if entry.rounded else record
