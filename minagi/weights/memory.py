"""Memory of large arrays, used again when nobody needs what was in it.

Experts come and go by megabytes with every step. Memory that the system has to find first takes many times
as long to fill as memory that is ours already, and the allocator gives such pieces back when they are free.
"""

from __future__ import annotations

from collections import deque

import numpy as np

LEAST = 1 << 18  # bytes from which arrays are kept; smaller ones the allocator keeps itself
SPARE = 1 << 26  # bytes kept for each size of array

_free: dict[int, deque[np.ndarray]] = {}  # size in bytes -> pieces that nobody uses


class _Loan:
    """A piece in use. Every array over it keeps it alive; with the last of them the piece is free again."""

    def __init__(self, piece: np.ndarray) -> None:
        self.__array_interface__ = piece.__array_interface__
        self._piece = piece

    def __del__(self) -> None:
        free = _free.get(self._piece.nbytes)
        if free is not None:
            free.append(self._piece)  # the oldest falls out where there are enough


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """`np.empty`, in memory used before where there is some. Safe for several threads."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size < LEAST:
        return np.empty(shape, dtype)
    free = _free.setdefault(size, deque(maxlen=max(1, SPARE // size)))
    try:
        piece = free.pop()
    except IndexError:
        piece = np.empty(size, np.uint8)
    return np.asarray(_Loan(piece)).view(dtype).reshape(shape)
