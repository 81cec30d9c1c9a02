"""A file system that fails on purpose: every change the package makes is counted, and one of them goes wrong.

Modes: `kill` stops the process before the k-th change and `killed-after` just behind it; `power` also undoes
every name that was not synced to its folder, and empties every file that was not synced; `power-data` only
empties the files, as when names reached the disk and data did not. `EIO` fails one change, `ENOSPC` every
one from there on that needs space, and `short` writes half of what it was given.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from minagi.weights import files

KILLS = ("kill", "killed-after", "power", "power-data")
ERRORS = ("EIO", "ENOSPC", "short")
_SPACE = ("create", "write", "mkdir", "link")


class Killed(BaseException):
    """The process is gone: nothing may catch this and go on."""


class FaultyDisk:
    """Replaces the operations of `minagi.weights.files` until the test ends. `at` 0 only counts."""

    def __init__(
        self, patch: pytest.MonkeyPatch, backups: Path, mode: str = "", at: int = 0, links: bool = True
    ) -> None:
        self.mode, self.at, self.links = mode, at, links
        self.count = 0
        self.log: list[tuple[str, object]] = []  # (operation, the path it ends at, or the descriptor)
        self.fired = False
        self.dead = False
        self._backups = backups
        self._names: list[tuple[Path, str, Path, Path | None]] = []  # folder, kind, path, other path
        self._unsynced: dict[int, int] = {}  # descriptor being written -> one of ours for the same file
        self._never: list[int] = []  # of files that were closed without a sync
        self._real = {name: getattr(files, name) for name in files.OPERATIONS}
        for name in files.OPERATIONS:
            patch.setattr(files, name, self._wrapped(name))

    def heal(self) -> None:
        """From here on everything works, and nothing is counted."""
        self.mode, self.at, self.dead = "", 0, False

    def cut_power(self) -> None:
        """What the disk forgets when the machine stops."""
        for fd in (*self._unsynced.values(), *self._never):
            os.ftruncate(fd, 0)
        if self.mode == "power":
            for _, kind, path, other in reversed(self._names):
                self._undo(kind, path, other)

    def close(self) -> None:
        """Closes what was kept for `cut_power`."""
        for fd in (*self._unsynced.values(), *self._never):
            os.close(fd)

    def _wrapped(self, name: str):
        def operation(*args):
            if self.dead:
                raise Killed
            self.count += 1
            self.log.append((name, args[1] if name in ("rename", "link") else args[0]))
            if self.at and (self.count == self.at or (self.mode == "ENOSPC" and self.count > self.at)):
                return self._fail(name, args)
            return self._do(name, args)

        return operation

    def _fail(self, name: str, args: tuple):
        if self.mode == "ENOSPC":
            if name not in _SPACE:
                return self._do(name, args)
            self.fired = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.fired = True
        if self.mode == "EIO":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.mode == "short":
            if name != "write" or len(args[1]) < 2:
                return self._do(name, args)
            return self._do(name, (args[0], args[1][: len(args[1]) // 2]))
        if self.mode != "kill":
            with suppress(OSError):
                self._do(name, args)
        self.dead = True
        raise Killed

    def _do(self, name: str, args: tuple):
        if name == "link" and not self.links:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if name in ("fsync", "fsync_folder"):  # the real ones would only make the tests slow
            self._synced(name, args[0])
            return None
        backup = self._backup(name, args)
        result = self._real[name](*args)
        self._remember(name, args, result, backup)
        return result

    # ------------------------------------------------------------------- what a power cut would undo

    def _backup(self, name: str, args: tuple) -> Path | None:
        target = args[1] if name == "rename" else args[0] if name == "unlink" else None
        if target is None or not Path(target).is_file():
            return None
        backup = self._backups / str(self.count)
        os.link(target, backup)
        return backup

    def _remember(self, name: str, args: tuple, result: object, backup: Path | None) -> None:
        if name == "create":
            if result in self._unsynced:  # the number of a file that was closed is given out again
                self._never.append(self._unsynced.pop(result))
            self._unsynced[result] = os.dup(result)
            self._names.append((args[0].parent, name, args[0], None))
        elif name in ("mkdir", "rmdir"):
            self._names.append((args[0].parent, name, args[0], None))
        elif name == "unlink":
            self._names.append((args[0].parent, name, args[0], backup))
        elif name == "link":
            self._names.append((args[1].parent, name, args[1], None))
        elif name == "rename":
            if backup:  # undone last: the file that was replaced comes back
                self._names.append((args[1].parent, "unlink", args[1], backup))
            self._names.append((args[1].parent, name, args[1], args[0]))

    def _synced(self, name: str, what: int | Path) -> None:
        if name == "fsync":
            kept = self._unsynced.pop(what, None)
            if kept is not None:
                os.close(kept)
        else:
            self._names = [entry for entry in self._names if entry[0] != what]

    def _undo(self, kind: str, path: Path, other: Path | None) -> None:
        with suppress(OSError):
            if kind in ("create", "link"):
                path.unlink()
            elif kind == "mkdir":
                shutil.rmtree(path)
            elif kind == "rmdir":
                path.mkdir()
            elif kind == "unlink":
                path.unlink(missing_ok=True)
                os.link(other, path)
            else:
                path.rename(other)


def copy_tree(source: Path, target: Path) -> None:
    """A copy in which files that were one file still are."""
    first: dict[int, Path] = {}
    for root, folders, names in os.walk(source):
        here = target / Path(root).relative_to(source)
        here.mkdir(exist_ok=True)
        for name in names:
            inode = (Path(root) / name).lstat().st_ino
            if inode in first:
                os.link(first[inode], here / name)
            else:
                first[inode] = here / name
                shutil.copy2(Path(root) / name, here / name)
        folders.sort()
