"""Adam's moments in bf16: the upper half of a float32, rounded to nearest, ties to even.

A checkpoint stores moments as int16 arrays that hold those 16 bits. Arithmetic on the bits is all it takes,
so this needs no library with a bf16 type. Moments in memory are either real numbers or such bits already
(what training copies for a checkpoint): an int16 array always means bits.
"""

from __future__ import annotations

import numpy as np

_BLOCK = 1 << 16  # elements converted at a time: the temporaries stay in the processor's cache


def to_bf16(array: np.ndarray) -> np.ndarray:
    """Bits of the nearest bf16 of every element, int16, the shape of `array` (any float type, or bits).

    Infinities stay, a NaN stays a NaN of the same sign.
    """
    if array.dtype == np.int16:
        return array
    source = np.ascontiguousarray(array, dtype=np.float32).reshape(-1).view(np.uint32)
    target = np.empty(source.size, dtype=np.uint16)
    for start in range(0, source.size, _BLOCK):
        bits = source[start : start + _BLOCK]
        # Half a unit of the last kept place, less one, plus that place's own bit: ties go to even.
        rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
        nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        if nan.any():  # the sum above may have carried a NaN over into zero or infinity
            rounded = np.where(nan, (bits >> 16) | np.uint32(0x40), rounded)
        target[start : start + _BLOCK] = rounded
    return target.view(np.int16).reshape(np.shape(array))


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The float32 values whose upper halves `bits` (int16 or uint16) holds; exact. Real numbers stay."""
    if bits.dtype.kind == "f":
        return bits.astype(np.float32, copy=False)
    wide = np.ascontiguousarray(bits).view(np.uint16).astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))


def all_finite(array: np.ndarray) -> bool:
    """Whether no number is infinite or NaN, of real numbers or of bf16 bits."""
    if array.dtype != np.int16:
        return bool(np.isfinite(array).all())
    exponent = np.int16(0x7F80)
    return bool((np.bitwise_and(array, exponent) != exponent).all())


def any_negative(array: np.ndarray) -> bool:
    """Whether a number is below zero, of finite real numbers or of bf16 bits. -0 is not."""
    if array.dtype != np.int16:
        return bool((array < 0).any())
    return bool(((array < 0) & (array != np.int16(-0x8000))).any())
