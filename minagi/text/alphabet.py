"""The alphabet: every byte, and nine markers. A character is one of these 265 symbols.

Ids 0..255 are the byte values of UTF-8 text; the markers follow. `decode(encode(data)) == data` for
every byte string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

MARKERS = (
    b"<think>", b"</think>", b"<user>", b"</user>", b"<bot>", b"</bot>", b"<g>", b"</g>", b"<|endoftext|>",
)  # fmt: skip
BYTES = 256
VOCAB_SIZE = BYTES + len(MARKERS)
ID_OF = {marker: BYTES + i for i, marker in enumerate(MARKERS)}

END_OF_TEXT = ID_OF[b"<|endoftext|>"]

_LONGEST = max(map(len, MARKERS))
_MARKER = re.compile(rb"</?(?:think|user|bot|g)>|<\|endoftext\|>")

Ids = npt.NDArray[np.uint16]


def encode(data: bytes, markers: bool = True) -> Ids:
    """The ids of `data`, shape (characters,), dtype uint16.

    A literal marker becomes its single id, unless `markers` is False: what a person types must not
    be able to speak for the model.
    """
    ids = np.frombuffer(data, np.uint8).astype(np.uint16)
    found = list(_MARKER.finditer(data)) if markers and b"<" in data else []
    if not found:
        return ids
    starts = np.array([match.start() for match in found])
    ends = np.array([match.end() for match in found])
    ids[starts] = [ID_OF[match[0]] for match in found]
    inside = np.zeros(len(ids) + 1, np.int8)  # +1 behind a marker's first byte, -1 at its end
    inside[starts + 1] += 1
    inside[ends] -= 1
    return ids[np.cumsum(inside[:-1]) == 0]


def encode_blocks(blocks: Iterable[bytes]) -> Iterator[Ids]:
    """The ids of a text that comes in blocks; a marker may lie across two of them."""
    rest = b""
    for block in blocks:
        data = rest + block
        begun = data.rfind(b"<", max(0, len(data) - _LONGEST + 1))  # of a marker the next block may end
        done = len(data) if begun < 0 else begun
        rest = data[done:]
        if done:
            yield encode(data[:done])
    if rest:
        yield encode(rest)


def broken(data: bytes) -> bytes:
    """`data` with every literal marker broken open, so that it is read as the text it is."""
    return _MARKER.sub(lambda match: b"< " + match[0][1:], data)


def decode(ids: npt.ArrayLike) -> bytes:
    """The bytes that `ids` stand for, markers spelled out. Raises ValueError for an id outside 0..264."""
    array = np.asarray(ids)
    if array.size == 0:
        return b""
    if array.min() < 0 or array.max() >= VOCAB_SIZE:
        raise ValueError(f"ids go from 0 to {VOCAB_SIZE - 1}, these from {array.min()} to {array.max()}")
    pieces, done = [], 0
    for place in np.flatnonzero(array >= BYTES):
        pieces += [array[done:place].astype(np.uint8).tobytes(), MARKERS[int(array[place]) - BYTES]]
        done = int(place) + 1
    return b"".join([*pieces, array[done:].astype(np.uint8).tobytes()])
