"""Products of a vector with a large bf16 matrix, laid out beforehand as the library multiplies it.

oneDNN, with which torch multiplies bf16 on a processor, brings a matrix into an order of its own for every
product, which for a single vector takes longer than the product itself. Laid out once, a matrix is read as
fast as memory gives it, at half of fp32's bytes (docs/decisions/speed.md). torch offers this to its compiler
only, as operators that may change: so they are tried first, and where they are missing, wrong or slower
nothing is packed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray
Product = Callable[[Array], Array]  # a vector through a matrix

PROBE_SHAPE = (4096, 512)
PROBE_COPIES = 8  # matrices measured in turn, so that each comes from memory as a model's experts do
PROBE_GAIN = 1.2  # times faster than numpy's fp32 that packed products must be
PROBE_ERROR = 0.01  # largest relative error; rounding to bf16 costs 0.002


def packed(weight: Tensor) -> Product:
    """x -> weight · x in fp32, for a matrix [out, in] of bf16; later changes of `weight` are not seen."""
    operators = torch.ops.mkldnn
    laid_out = operators._reorder_linear_weight(weight.detach(), 1)
    multiply = operators._linear_pointwise.default

    def product(x: Array) -> Array:
        y = multiply(torch.from_numpy(x).bfloat16()[None], laid_out, None, "none", [], "")
        return y.float().numpy()[0]

    return product


@functools.cache
def pays() -> bool:
    """Whether packed products are right and faster than numpy's in fp32 on this processor; takes 60 ms."""
    generator = torch.Generator().manual_seed(0)
    matrix, x = (
        torch.randn(PROBE_SHAPE, generator=generator),
        torch.randn(PROBE_SHAPE[1], generator=generator),
    )
    plain: list[Product] = [matrix.clone().numpy().dot for _ in range(PROBE_COPIES)]
    vector = x.numpy()
    try:
        products = [packed(matrix.bfloat16()) for _ in range(PROBE_COPIES)]
        with one_thread():
            error = np.linalg.norm(products[0](vector) - plain[0](vector)) / np.linalg.norm(plain[0](vector))
            packed_best, plain_best = _best_seconds(products, vector), _best_seconds(plain, vector)
    except (AttributeError, RuntimeError):  # no such operator, or not on this processor
        return False
    return bool(error <= PROBE_ERROR) and plain_best >= PROBE_GAIN * packed_best


def _best_seconds(products: list[Product], x: Array) -> float:
    best = float("inf")
    for product in products:
        began = time.perf_counter()
        product(x)
        best = min(best, time.perf_counter() - began)
    return best


@contextmanager
def one_thread() -> Iterator[None]:
    """torch's products in here are this thread's alone: sharing one of 100 µs costs more than it gains."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
