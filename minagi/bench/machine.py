"""What the machine itself does now: the figures that others are to be held against."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

PRODUCT_SIZE = 1024  # rows and columns of the matrices multiplied
SECONDS = 0.25  # that each of these figures takes


def gflops(dtype: torch.dtype) -> float:
    """Matrix products in 10^9 operations a second, the best of several."""
    a, b = torch.randn(2, PRODUCT_SIZE, PRODUCT_SIZE).to(dtype)
    return 2 * PRODUCT_SIZE**3 / best_seconds(lambda: a @ b, SECONDS) / 1e9


def best_seconds(work: Callable[[], object], seconds: float) -> float:
    """The shortest of several runs of `work`; after `seconds` no more are begun. The first is not counted."""
    work()
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


@contextmanager
def products_beside(found: dict[str, Any]) -> Iterator[None]:
    """Adds `gflops_fp32` and `gflops_bf16` to `found`: the better of before and after what is measured."""
    kinds = {"gflops_fp32": torch.float32, "gflops_bf16": torch.bfloat16}
    before = {name: gflops(dtype) for name, dtype in kinds.items()}
    yield
    found |= {name: round(max(before[name], gflops(dtype)), 1) for name, dtype in kinds.items()}


def copy_rate(size: int) -> float:
    """Bytes a second from memory to memory, in one piece of `size` bytes, by one thread."""
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    return size / best_seconds(lambda: np.copyto(target, source), SECONDS)


def read_rate(path: Path) -> float:
    """Bytes a second from a file the system holds in memory into ours, as dd reads it."""
    buffer = memoryview(bytearray(path.stat().st_size))

    def read() -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            at = 0
            while at < len(buffer):
                at += os.readv(fd, [buffer[at:]])
        finally:
            os.close(fd)

    return len(buffer) / best_seconds(read, SECONDS)
