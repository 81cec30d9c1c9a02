"""How the faults of files become sentences: which file, what is wrong with it, what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minagi.errors import EXIT_FAILED, WeightsError

LINK = "is a symbolic link, and a model's files must lie in its own directory"


class FileFault(WeightsError):
    """One file cannot be trusted. `fault` completes the sentence that begins with its path."""

    def __init__(self, path: Path, fault: str, remedy: str = "") -> None:
        super().__init__(f"{path} {fault}.{' ' + remedy if remedy else ''}")
        self.path = path
        self.fault = fault
        self.remedy = remedy

    def mended(self, path: Path, remedy: str) -> FileFault:
        """The same fault of the file under the name `path`, with what to do about it."""
        return FileFault(path, self.fault, remedy)


class Unreadable(FileFault):
    """The system would not read a file."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(path, f"cannot be read: {(error.strerror or '').lower()}")


class DiskFault(WeightsError):
    """A change could not be made, through no fault of the files: the disk is full, or failed."""

    exit_status = EXIT_FAILED


class Missing(FileFault):
    """A file that should be there is not."""

    def __init__(self, path: Path, remedy: str = "") -> None:
        super().__init__(path, "is missing", remedy)

    def mended(self, path: Path, remedy: str) -> FileFault:
        """The same fault of the file under the name `path`, with what to do about it."""
        return Missing(path, remedy)


_REASONS = {
    errno.ENOSPC: "the disk is full. Free some space (deleting snapshots may do), then try again",
    errno.EDQUOT: "your disk quota is used up. Free some space, then try again",
    errno.EACCES: "permission was denied. Change the permissions, or name another weights directory",
    errno.EPERM: "permission was denied. Change the permissions, or name another weights directory",
    errno.EROFS: "it is on a read-only file system. Copy the model to a place that can be written",
    errno.EIO: "the disk reported an input/output error. Check the disk before going on",
    errno.EISDIR: "a folder is in the way. Move it aside, then try again",
    errno.ENOENT: "another program removed a part of the model. Put it back, or begin anew from a copy",
    errno.EMFILE: "too many files are open. Raise the limit with `ulimit -n`",
}
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR)


@contextmanager
def spoken(action: str, path: Path) -> Iterator[None]:
    """Turns an OSError into a WeightsError that says `action` (as in "save the model") failed and why.

    It is a DiskFault unless the place itself is the matter.
    """
    try:
        yield
    except OSError as error:
        code = error.errno if error.errno is not None else -1
        reason = _REASONS.get(code, f"{error.strerror or error}")
        file = error.filename2 or error.filename  # of a rename or a link, what it would have made
        where = f" ({file})" if file and str(file) != str(path) else ""
        kind = WeightsError if code in _NOT_OURS else DiskFault
        raise kind(f"Could not {action} in {path}{where}: {reason}.") from error
