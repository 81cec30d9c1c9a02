"""Plain `.npz` archives: uncompressed zip files of `.npy` arrays, read straight into their arrays.

numpy's own reader copies every array through zip streams and takes memory before it looks at sizes. This one
checks the archive's directory and each array's header against the file first, then reads a member with
one call into the array that is returned. Nothing is ever unpickled. What is written opens in numpy.

Format: PKWARE's APPNOTE (sections 4.3 and 4.5.3) and numpy's `numpy.lib.format`.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType

import numpy as np

from minagi.weights import files
from minagi.weights.faults import FileFault, Unreadable

ZIP64_FROM = 0xFFFFFFFF  # sizes and offsets from here on need the 64-bit records
_COUNT_MAX = 0xFFFF
_DIRECTORY_MAX = 1 << 24  # bytes; some 100,000 arrays
_END_MAX = 22 + 0xFFFF + 76  # bytes of all end records, the longest comment included
_ALIGN = 64  # arrays begin at multiples of this in the file
_PAD_ID = 0xD935  # the extra field that tools use to align members
_HEADER_MAX = 4096  # bytes of an array's header
_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    r"\s*\{\s*'descr':\s*'(?P<descr>[<>|=]?[a-zA-Z]\d*)',\s*'fortran_order':\s*(?P<fortran>True|False),"
    r"\s*'shape':\s*\((?P<shape>[\d,\s]{0,200})\),?\s*\}\s*"
)
_DESCR = re.compile(r"[<>|=]?[fiu][1248]")
_STORED = 0
Empty = Callable[[tuple[int, ...], np.dtype], np.ndarray]
_DAY = 0x21  # 1 January 1980, always: equal arrays make equal files


@dataclass(frozen=True)
class _Entry:
    """One record of an archive's directory."""

    plain: bool  # neither compressed nor encrypted
    crc: int
    size: int
    offset: int  # of the local header


@dataclass(frozen=True)
class Member:
    """One array of an archive."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    header: bytes  # the bytes before the array's own, part of the checksum
    offset: int  # of the array's bytes in the file
    crc: int


class Npz:
    """An archive open for reading; use as a context. Raises FileFault for whatever is wrong with it.

    `empty` finds the memory that arrays are read into.
    """

    def __init__(self, path: Path, empty: Empty = np.empty) -> None:
        self.path = path
        self._empty = empty
        self._fd = files.open_regular(path)
        try:
            status = os.fstat(self._fd)
            self.identity = files.identity_of(status)
            self._size = status.st_size
            self._entries = self._directory()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Npz:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def names(self) -> list[str]:
        """Names of the arrays, in the file's order."""
        return list(self._entries)

    def _directory(self) -> dict[str, _Entry]:
        if self._size == 0:
            raise FileFault(self.path, "is empty")
        size, start = self._end_record()
        if size > _DIRECTORY_MAX or start + size > self._size:
            raise FileFault(self.path, "is cut short or not an .npz archive: its directory is damaged")
        try:
            return self._records(self._pread(size, start, "its directory") if size else b"")
        except (struct.error, UnicodeDecodeError):
            raise FileFault(self.path, "is damaged: its directory is not readable") from None

    def _end_record(self) -> tuple[int, int]:
        """Size and offset of the directory."""
        first = max(0, self._size - _END_MAX)
        tail = self._pread(self._size - first, first, "its end")
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < 22:
            raise FileFault(self.path, "is cut short or not an .npz archive: its directory is missing")
        size, start = struct.unpack("<II", tail[at + 12 : at + 20])
        if at >= 76 and tail[at - 20 : at - 16] == b"PK\x06\x07":  # the 64-bit records precede it
            size, start = struct.unpack("<QQ", tail[at - 76 + 40 : at - 20])
        return size, start

    def _records(self, data: bytes) -> dict[str, _Entry]:
        entries: dict[str, _Entry] = {}
        at = 0
        while at < len(data):
            signature, flags, method, crc, packed, size, *lengths, offset = struct.unpack(
                "<4s4xHH4xIIIHHH8xI", data[at : at + 46]
            )
            if signature != b"PK\x01\x02":
                raise FileFault(self.path, "is damaged: its directory is not readable")
            at += 46
            name = data[at : at + lengths[0]].decode().removesuffix(".npy")
            extra = data[at + lengths[0] : at + lengths[0] + lengths[1]]
            at += sum(lengths)
            size, packed, offset = _wide(extra, size, packed, offset)
            if name in entries:
                raise FileFault(self.path, f"holds the array {name!r} twice")
            plain = method == _STORED and not flags & 1 and packed == size
            entries[name] = _Entry(plain, crc, size, offset)
        return entries

    def member(self, name: str) -> Member | None:
        """Kind, shape and place of array `name`, checked against the file; None when there is none."""
        info = self._entries.get(name)
        if info is None:
            return None
        if not info.plain:
            raise FileFault(self.path, f"holds {name!r} compressed or encrypted; plain arrays are needed")
        local = self._pread(30, info.offset, name)
        if local[:4] != b"PK\x03\x04":
            raise FileFault(self.path, f"is damaged: {name!r} does not begin where the directory says")
        start = info.offset + 30 + sum(struct.unpack("<HH", local[26:30]))
        if start + info.size > self._size:
            raise FileFault(self.path, f"is cut short or damaged: {name!r} does not fit into the file")
        head = self._pread(min(_HEADER_MAX, info.size), start, name)
        dtype, shape, length = parse_header(self.path, name, head)
        if length + prod(shape) * dtype.itemsize != info.size:
            raise FileFault(self.path, f"is damaged: {name!r} has not the bytes its shape needs")
        return Member(name, dtype, shape, head[:length], start + length, info.crc)

    def read(self, member: Member, *, check: bool) -> np.ndarray:
        """The array of `member`, its own memory; with `check` its checksum is verified."""
        array = self._empty(member.shape, member.dtype)
        try:
            whole = files.read_into(self._fd, array, member.offset)
        except OSError as error:
            raise Unreadable(self.path, error) from None
        if not whole:
            raise FileFault(self.path, f"is cut short inside {member.name!r}")
        if check and zlib.crc32(_raw(array), zlib.crc32(member.header)) != member.crc:
            raise FileFault(self.path, f"is damaged: the checksum of {member.name!r} does not match")
        return array

    def _pread(self, count: int, offset: int, name: str) -> bytes:
        try:
            data = os.pread(self._fd, count, offset) if 0 <= offset < self._size else b""
        except OSError as error:
            raise Unreadable(self.path, error) from None
        if len(data) < count:
            raise FileFault(self.path, f"is cut short or damaged around {name!r}")
        return data


def parse_header(path: Path, name: str, head: bytes) -> tuple[np.dtype, tuple[int, ...], int]:
    """dtype, shape and header length of the `.npy` array whose first bytes are `head`."""
    wide = head[6:7] == b"\x02"
    at = 12 if wide else 10
    if head[:6] != _MAGIC or head[6:8] not in (b"\x01\x00", b"\x02\x00") or len(head) < at:
        raise FileFault(path, f"is damaged: {name!r} is not a numpy array")
    length = at + int.from_bytes(head[8:at], "little")
    text = head[at:length].decode("latin-1")
    match = _HEADER.fullmatch(text)
    if length > len(head) or match is None:
        raise FileFault(path, f"is damaged: {name!r} is no array of plain numbers")
    if not _DESCR.fullmatch(match["descr"]):
        raise FileFault(path, f"holds {name!r} as {match['descr']!r}, not as plain numbers")
    try:
        dtype = np.dtype(match["descr"])
        shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    except (TypeError, ValueError):
        raise FileFault(path, f"is damaged: the header of {name!r} makes no sense") from None
    if match["fortran"] == "True" and len(shape) > 1:
        raise FileFault(path, f"holds {name!r} in Fortran order; C order is needed")
    return dtype, shape, length


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], *, sync: bool = True) -> int:
    """Makes the archive `path` of `arrays`; its size. Equal arrays always make equal bytes."""
    return files.write_file(path, _archive(arrays), sync=sync)


def check_npz(path: Path) -> None:
    """Reads every array of an archive against its checksum. FileFault when one does not match."""
    with Npz(path) as archive:
        for name in archive.names:
            member = archive.member(name)
            if member is not None:
                archive.read(member, check=True)


def _wide(extra: bytes, *values: int) -> list[int]:
    """`values` (size, packed size, offset), those too large for 32 bits taken from the 64-bit field."""
    wide = []
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack("<HH", extra[at : at + 4])
        if kind == 1:
            field = extra[at + 4 : at + 4 + length // 8 * 8]
            wide = list(struct.unpack(f"<{len(field) // 8}Q", field))
        at += 4 + length
    return [wide.pop(0) if value == 0xFFFFFFFF and wide else value for value in values]


def _raw(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _archive(arrays: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """The bytes of an archive, in pieces: each member, then the directory, then the end records."""
    offset = 0
    directory = []
    for name, given in arrays.items():
        array = np.ascontiguousarray(given).reshape(np.shape(given))
        npy_header = _npy_header(array)
        size = len(npy_header) + array.nbytes
        crc = zlib.crc32(_raw(array), zlib.crc32(npy_header))
        encoded = (name + ".npy").encode()
        local, entry = _entry(encoded, crc, size, offset)
        directory.append(entry)
        yield local + npy_header
        yield _raw(array)
        offset += len(local) + size
    entries = b"".join(directory)
    yield entries + _end(len(directory), len(entries), offset)


def _npy_header(array: np.ndarray) -> bytes:
    """Version 1.0 header, padded so that the array's bytes begin at a multiple of 64."""
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape!r}, }}".encode()
    padded = text + b" " * (-(len(text) + 11) % _ALIGN) + b"\n"
    return _MAGIC + b"\x01\x00" + struct.pack("<H", len(padded)) + padded


def _entry(name: bytes, crc: int, size: int, offset: int) -> tuple[bytes, bytes]:
    """Local header (padded to the alignment) and directory record of one stored member."""
    large_size, large_offset = size >= ZIP64_FROM, offset >= ZIP64_FROM
    version = 45 if large_size or large_offset else 20
    shown = 0xFFFFFFFF if large_size else size
    sizes = struct.pack("<QQ", size, size) if large_size else b""
    flags = 0 if name.isascii() else 0x800
    common = (version, flags, 0, 0, _DAY, crc, shown, shown, len(name))
    local_extra = _extra(1, sizes)
    padding = b"\0" * (-(offset + 34 + len(name) + len(local_extra)) % _ALIGN)
    local_extra += _extra(_PAD_ID, padding, keep=True)
    local = struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", *common, len(local_extra)) + name + local_extra
    extra = _extra(1, sizes + (struct.pack("<Q", offset) if large_offset else b""))
    place = 0xFFFFFFFF if large_offset else offset
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", 45, *common, len(extra), 0, 0, 0, 0, place)
    return local, central + name + extra


def _extra(kind: int, data: bytes, *, keep: bool = False) -> bytes:
    return struct.pack("<HH", kind, len(data)) + data if data or keep else b""


def _end(count: int, size: int, offset: int) -> bytes:
    records = b""
    if max(size, offset) >= ZIP64_FROM or count >= _COUNT_MAX:
        records = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
        records += struct.pack("<4sIQI", b"PK\x06\x07", 0, offset + size, 1)
    count, size, offset = min(count, 0xFFFF), min(size, 0xFFFFFFFF), min(offset, 0xFFFFFFFF)
    if records:
        offset = 0xFFFFFFFF
    return records + struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, size, offset, 0)
