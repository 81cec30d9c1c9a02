"""Files of a run that are only added to: the history, the event log, the samples.

Several runs may add to one file. What is added is whole or, after a crash, a torn last line that
the next addition closes off, so that it takes none with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO


class RecordFile:
    """The file at `path`. With `limit` (bytes) it is put aside as `path.1` before it outgrows that, what
    was `path.1` becomes `path.2`, and `keep` such files stay."""

    def __init__(self, path: Path, limit: int | None = None, keep: int = 3) -> None:
        self.path, self._limit, self._keep = path, limit, keep

    def append(self, data: bytes) -> None:
        """Add whole lines. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while not self._added(data):  # another run put the file aside in between
            pass

    def _added(self, data: bytes) -> bool:
        with self.path.open("ab+") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if not self._is_ours(file):
                return False
            size = file.seek(0, os.SEEK_END)
            if self._limit is not None and size and size + len(data) > self._limit:
                self._put_aside()
                return False
            if size:
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)
            return True

    def _is_ours(self, file: IO[bytes]) -> bool:
        """Whether the open file is still the one of that name."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def _put_aside(self) -> None:
        for number in range(self._keep - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._aside(number).replace(self._aside(number + 1))
        self.path.replace(self._aside(1))

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def beside(history: Path, name: str) -> Path | None:
    """The record `name` in the folder of the history; None where the history is kept nowhere (/dev/null)."""
    return None if history.exists() and not history.is_file() else history.with_name(name)
