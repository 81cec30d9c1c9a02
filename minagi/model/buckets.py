"""Row counts rounded up, so that a processor's matrix library meets few different shapes.

Rows, slices of experts and visible keys come in every size there is. The CPU library compiles a
kernel for each new shape (0.2–0.5 ms and a quarter of a megabyte) and keeps about a thousand: met
with raw sizes it recompiles for ever. Rounding up by at most an eighth leaves some 30 sizes; the
rows added are zeros and change no result. Cards need none of this.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST = 16
PARTS = 8  # sizes between one power of two and the next


def bucket(rows: int, device: torch.device) -> int:
    """`rows` rounded up to a size of the processor's list; as it is on other devices, and for one row."""
    if rows <= 1 or device.type != "cpu":
        return rows
    step = max(SMALLEST, 1 << ((rows - 1).bit_length() - 1) >> (PARTS.bit_length() - 1))
    return -(-rows // step) * step


def padded(x: Tensor, rows: int) -> Tensor:
    """x [N, D] with rows of zeros behind it up to `rows`."""
    return x if x.shape[0] == rows else F.pad(x, (0, 0, 0, rows - x.shape[0]))
