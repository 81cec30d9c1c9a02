"""One writer at a time: a lock that names its owner and is let go of by the system when the owner dies.

The lock is `flock` on `.minagi/lock`; the kernel drops it with the process, whatever kills that, so a
lock that can be taken has no live owner on this machine, and a process id that was given out again
misleads nobody. The JSON in the file says who holds it, for people. Only where another machine may share
the directory can the kernel not know: an owner of another machine is therefore never taken over.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from minagi.errors import LockedError
from minagi.weights import files
from minagi.weights.faults import FileFault

_OWNER_MAX = 1 << 14
_TRIES = 20  # at a file that keeps its name: some file systems number a file anew every time they look
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Owner:
    """Who writes a weights directory."""

    pid: int = 0
    host: str = ""
    role: str = ""  # "trainer", "revert", …
    since: float = 0.0  # Unix time
    boot: str = ""  # the kernel's own id of its present start, where it has one


class Lock:
    """Held from `Lock(path, role)` until `release()` or the end of the process."""

    def __init__(self, path: Path, role: str, clock: Callable[[], float] = time.time) -> None:
        """Takes the lock at `path`, whose folder exists. LockedError when someone else has it."""
        self.path = path
        self._fd = self._open()
        try:
            held = not self._try()
            for _ in range(_TRIES):
                if held or self._named():
                    break
                gone, self._fd = self._fd, self._open()  # its last owner removed the file meanwhile
                os.close(gone)
                held = not self._try()
            owner = _read_owner(self._fd)
            if held:
                raise LockedError(self._refusal(owner))
            if owner is not None and self._elsewhere(owner):
                raise LockedError(
                    f"{self._refusal(owner)} If nothing runs there any more, delete {path} and start again."
                )
            files.truncate(self._fd)
            mine = Owner(os.getpid(), socket.gethostname(), role, clock(), _boot())
            files.write_all(self._fd, json.dumps(asdict(mine)).encode())
        except BaseException:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """Lets the next writer in. Releasing twice is harmless."""
        if self._fd < 0:
            return
        try:
            with suppress(OSError):  # a stale name in the file misleads nobody who gets the lock
                files.truncate(self._fd)  # the file stays: removing it could take a new owner's lock away
        finally:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """The same, and the file goes. Whoever opened it meanwhile sees that it has lost its name."""
        with suppress(OSError):
            self.path.unlink()
        os.close(self._fd)
        self._fd = -1

    def _named(self) -> bool:
        """Whether the open file is still the one of that name."""
        there, mine = files.identity(self.path), files.identity_of(os.fstat(self._fd))
        return there is not None and there[:2] == mine[:2]

    def _open(self) -> int:
        with suppress(FileExistsError):
            os.close(files.create(self.path))
        try:
            return os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FileFault(self.path, "is a symbolic link", "Remove it.") from None
            raise

    def _try(self) -> bool:
        """Whether the kernel gave the lock. Where it has none to give, the owner's process decides."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            owner = _read_owner(self._fd)
            return owner is None or owner.pid == os.getpid() or not _alive(owner.pid)
        return True

    def _elsewhere(self, owner: Owner) -> bool:
        """Whether a past owner may live on another machine: another name and not this kernel's start."""
        return owner.host != socket.gethostname() and (not owner.boot or owner.boot != _boot())

    def _refusal(self, owner: Owner | None) -> str:
        model = self.path.parent.parent
        advice = (
            "Wait until it ends or quit it; or name another directory (--weights), or keep nothing of this "
            "run (--dry-run). minagi info, write and eval only read, and may run beside it."
        )
        if owner is None:
            return f"{model} is being written by another process. {advice}"
        here = owner.host == socket.gethostname()
        place = "this machine" if here else owner.host
        who = "this very process" if here and owner.pid == os.getpid() else f"process {owner.pid}"
        since = time.strftime("%H:%M on %d %B %Y", time.localtime(owner.since))
        return f"{model} is being written by {who} ({owner.role}) on {place} since {since}. {advice}"


def _read_owner(fd: int) -> Owner | None:
    """What the lock's file says; None when it is empty or makes no sense."""
    try:
        said = json.loads(os.pread(fd, _OWNER_MAX, 0))
        owner = Owner(
            int(said["pid"]), str(said["host"]), str(said["role"]), float(said["since"]), str(said["boot"])
        )
        time.localtime(owner.since)
    except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return None
    return owner


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
