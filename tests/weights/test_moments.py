from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from minagi.weights.moments import all_finite, any_negative, from_bf16, to_bf16


def round_moments(array: np.ndarray) -> np.ndarray:
    """What a checkpoint keeps of `array`, in fp32."""
    return from_bf16(to_bf16(array))


bits32 = arrays(np.uint32, st.integers(0, 40), elements=st.integers(0, 2**32 - 1))


@given(bits32)
def test_rounding_is_that_of_torch_for_every_bit_pattern(bits: np.ndarray) -> None:
    values = bits.view(np.float32)
    expected = torch.from_numpy(values.copy()).bfloat16().float().numpy()
    found = round_moments(values)
    nan = np.isnan(values)
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(found[~nan].view(np.uint32), expected[~nan].view(np.uint32))
    assert np.array_equal(np.signbit(found), np.signbit(values))


@given(arrays(np.int16, st.integers(0, 40), elements=st.integers(-(2**15), 2**15 - 1)))
def test_what_was_rounded_stays(bits: np.ndarray) -> None:
    values = from_bf16(bits)
    kept = ~np.isnan(values)
    assert np.array_equal(to_bf16(values)[kept], bits[kept])


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1.0, 1.0),
        (1.00390625, 1.0),  # half way: to the even neighbour, downwards
        (1.01171875, 1.015625),  # and upwards
        (np.float32(3.4e38), np.inf),
        (-0.0, -0.0),
        (1e-45, 0.0),
    ],
)
def test_known_values(value: float, rounded: float) -> None:
    found = round_moments(np.array([value], np.float32))
    assert found == np.float32(rounded)
    assert np.signbit(found) == np.signbit(np.float32(rounded))


def test_shapes_kinds_and_strides_are_kept_or_coped_with() -> None:
    wide = np.arange(24, dtype=np.float64).reshape(4, 6)
    assert to_bf16(wide[:, ::2]).shape == (4, 3)
    assert np.array_equal(round_moments(wide[:, ::2]), wide[:, ::2])
    assert round_moments(np.float32(2.0)).shape == ()
    assert round_moments(np.empty((0, 3), np.float32)).shape == (0, 3)
    assert np.array_equal(from_bf16(to_bf16(wide).view(np.uint16)), wide)


def test_the_given_array_is_left_alone() -> None:
    given_array = np.full(5, 1.001, np.float32)
    rounded = round_moments(given_array)
    assert (given_array == np.float32(1.001)).all()
    assert not np.shares_memory(given_array, rounded)


@given(arrays(np.int16, st.integers(0, 40), elements=st.integers(-(2**15), 2**15 - 1)))
def test_bits_are_judged_as_the_numbers_they_are(bits: np.ndarray) -> None:
    values = from_bf16(bits)
    finite = np.isfinite(values)
    assert all_finite(bits) == finite.all()
    assert any_negative(bits[finite]) == any_negative(values[finite]) == bool((values[finite] < 0).any())
