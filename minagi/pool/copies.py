"""How numbers reach a checkpoint: seen where they are, or copied so that training may go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from minagi.weights import memory

Take = Callable[[Tensor], np.ndarray]
_ALIGN = 64  # bytes
_PIECE = 1 << 18  # numbers rounded at a time: what is in between stays in the processor's cache


def seen(tensor: Tensor) -> np.ndarray:
    """The numbers themselves, where they are in memory: good until they are changed."""
    return tensor.detach().cpu().numpy()


def copied(tensor: Tensor) -> np.ndarray:
    """A copy of the numbers."""
    numbers = seen(tensor)
    if tensor.device.type != "cpu":
        return numbers
    array = memory.empty(numbers.shape, numbers.dtype)
    np.copyto(array, numbers)
    return array


class Copies:
    """Copies of tensors in one block of `size` bytes, for a checkpoint that another thread writes.

    Training stands still while they are made, and memory that the system has to find first takes many
    times as long to fill: so the block is kept, and `reused` for the next checkpoint. What does not fit gets
    memory of its own.
    """

    def __init__(self, size: int) -> None:
        self._block = np.empty(size, np.uint8)
        self._used = 0

    @property
    def size(self) -> int:
        """Bytes of the block."""
        return self._block.size

    def reused(self) -> Copies:
        """The same block, empty: nobody may need what was copied into it any more."""
        self._used = 0
        return self

    def weights(self, tensor: Tensor) -> np.ndarray:
        """A copy in fp32."""
        array = self._room(tensor, np.dtype(np.float32))
        torch.from_numpy(array).copy_(tensor.detach())
        return array

    def moments(self, tensor: Tensor) -> np.ndarray:
        """A copy in bf16, as the int16 bits that a checkpoint keeps of moments and averages."""
        bits = self._room(tensor, np.dtype(np.int16))
        torch.from_numpy(bits).view(torch.bfloat16).copy_(tensor.detach())
        return bits

    def _room(self, tensor: Tensor, dtype: np.dtype) -> np.ndarray:
        size = tensor.numel() * dtype.itemsize
        start, self._used = self._used, self._used + size + -size % _ALIGN
        if self._used > self._block.size:
            return np.empty(tensor.shape, dtype)
        return self._block[start : start + size].view(dtype).reshape(tensor.shape)


def ways(copies: Copies | None) -> tuple[Take, Take]:
    """How weights, and how moments and averages, are taken for a checkpoint."""
    return (seen, seen) if copies is None else (copies.weights, copies.moments)


def round_to_bf16(tensors: Iterable[Tensor]) -> None:
    """Give contiguous tensors, in place, the values that a checkpoint keeps of moments and averages."""
    for tensor in tensors:
        flat = tensor.detach().view(-1)
        for start in range(0, flat.numel(), _PIECE):
            piece = flat[start : start + _PIECE]
            piece.copy_(piece.bfloat16())
