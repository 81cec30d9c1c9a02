"""The only door from this package to the file system's changes, and careful reading.

Every change is made by one of the functions named in OPERATIONS, each of them one system call or one
open-and-sync. A test replaces them to crash, or to fail, at the k-th change of a save; nothing else
in the package creates, writes, renames or removes anything.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from minagi.weights.faults import LINK, FileFault, Missing, Unreadable

OPERATIONS = (
    "create", "write", "fsync", "fsync_folder", "rename", "link", "unlink", "mkdir", "rmdir", "truncate",
)  # fmt: skip

_COPY = 1 << 22  # bytes read at a time when a file is copied
_NO_LINKS = (
    errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES, errno.EINVAL,
)  # fmt: skip
_NO_FOLDER_SYNC = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
_END = 22  # bytes of a zip archive's end record without a comment


# ----------------------------------------------------------------------------------------- changes


def create(path: Path) -> int:
    """A descriptor of a new, empty file for writing. FileExistsError when there is one."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def write(fd: int, data: memoryview) -> int:
    """Writes some of `data`; how many bytes."""
    return os.write(fd, data)


def fsync(fd: int) -> None:
    """Waits until the file's bytes are on the disk."""
    os.fsync(fd)


def fsync_folder(path: Path) -> None:
    """Waits until the folder's entries (names made, renamed, removed) are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(fd)


def rename(source: Path, target: Path) -> None:
    """Moves `source` to `target`, replacing a file there in one step."""
    os.rename(source, target)  # noqa: PTH104  (one system call, by its own name)


def link(source: Path, target: Path) -> None:
    """Gives the file `source` the second name `target`."""
    os.link(source, target, follow_symlinks=False)


def unlink(path: Path) -> None:
    """Removes a name."""
    path.unlink()


def mkdir(path: Path) -> None:
    """Makes one folder."""
    path.mkdir()


def rmdir(path: Path) -> None:
    """Removes an empty folder."""
    path.rmdir()


def truncate(fd: int) -> None:
    """Empties an open file."""
    os.ftruncate(fd, 0)


# --------------------------------------------------------------------------------- built from them


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes all of `data`, however many pieces the system takes it in."""
    rest = memoryview(data).cast("B")
    while rest:
        done = write(fd, rest)
        rest = rest[done:]


def write_file(path: Path, chunks: Iterable[bytes | memoryview], *, sync: bool = True) -> int:
    """Makes a new file of `chunks`; its size. With `sync` it is on the disk afterwards, its name not yet."""
    fd = create(path)
    try:
        size = 0
        for chunk in chunks:
            write_all(fd, chunk)
            size += memoryview(chunk).nbytes
        if sync:
            fsync(fd)
    finally:
        os.close(fd)
    return size


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for `source`; a copy, written through to the disk, where there are no hard links."""
    try:
        link(source, target)
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    part = target.with_name(target.name + ".part")
    remove_tree(part)
    write_file(part, _pieces(source))
    rename(part, target)


def remove_tree(path: Path) -> None:
    """Removes `path` and what is under it, following no symbolic link. Nothing there is no fault."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        unlink(path)
        return
    for child in sorted(path.iterdir()):
        remove_tree(child)
    rmdir(path)


def make_folder(path: Path) -> None:
    """Makes `path`, on the disk with its name, unless it is there. Refuses a file or a link in its place."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        mkdir(path)
        fsync_folder(path.parent)
        return
    if not stat.S_ISDIR(status.st_mode):
        raise FileFault(path, "is in the way: a folder is needed there", "Move it aside.")


def make_folders(path: Path) -> None:
    """Makes a folder and those above it, as far as they are missing."""
    if not path.is_dir():
        make_folders(path.parent)
        make_folder(path)


# ----------------------------------------------------------------------------------------- reading


def open_regular(path: Path) -> int:
    """A descriptor for reading an ordinary file. Links, pipes, devices and folders are refused."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Missing(path) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileFault(path, LINK) from None
        raise FileFault(path, f"cannot be opened: {(error.strerror or '').lower()}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileFault(path, "is not an ordinary file")
    return fd


def read_small(path: Path, limit: int) -> bytes:
    """All bytes of a file of at most `limit` bytes; a larger one is refused unread."""
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > limit:
            raise FileFault(path, f"has {size:,} bytes, and at most {limit:,} were expected")
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(limit)
    except OSError as error:
        raise Unreadable(path, error) from None
    finally:
        os.close(fd)


def read_into(fd: int, array: np.ndarray, offset: int) -> bool:
    """Fills a contiguous `array` with the file's bytes from `offset`; False when the file ends before."""
    rest = array.reshape(-1).view(np.uint8).data
    while rest:
        done = os.preadv(fd, [rest], offset)
        if not done:
            return False
        rest = rest[done:]
        offset += done
    return True


def _pieces(path: Path) -> Iterable[bytes]:
    fd = open_regular(path)
    with os.fdopen(fd, "rb") as file:
        while piece := file.read(_COPY):
            yield piece


def identity(path: Path) -> tuple[int, int, int, int] | None:
    """What tells a file apart from another or a later one under its name; None when there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return identity_of(status)


def identity_of(status: os.stat_result) -> tuple[int, int, int, int]:
    """The same of a file whose status is known."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def fingerprint(path: Path) -> tuple[int, int]:
    """(size, checksum) of a file. Of an archive only the directory is read: it holds every member's CRC."""
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        start = 0
        if path.suffix == ".npz" and size >= _END:
            end = os.pread(fd, _END, size - _END)
            start = int.from_bytes(end[16:20], "little")
            if end[:4] != b"PK\x05\x06" or start >= size:
                start = 0
        checksum = 0
        while piece := os.pread(fd, _COPY, start):
            checksum = zlib.crc32(piece, checksum)
            start += len(piece)
        return size, checksum
    except OSError as error:
        raise Unreadable(path, error) from None
    finally:
        os.close(fd)


def disk_bytes(folder: Path) -> int:
    """Bytes of every file under `folder`, one with several names counted once."""
    seen: dict[tuple[int, int], int] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                status = (Path(root) / name).lstat()
                seen[status.st_dev, status.st_ino] = status.st_size
    return sum(seen.values())
