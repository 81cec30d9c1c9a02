"""Packed products: right, and used only where they are there and pay."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from packing import needs_packing

from minagi.model import packed


@pytest.fixture(autouse=True)
def unprobed() -> None:
    packed.pays.cache_clear()


@needs_packing
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (96, 32), (2048, 512)])
def test_a_vector_through_a_packed_matrix(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(shape, generator=generator).bfloat16()
    x = torch.randn(shape[1], generator=generator)
    wanted = matrix.double() @ x.bfloat16().double()
    got = packed.packed(matrix)(x.numpy())
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=0.01, atol=0.02 * shape[1] ** 0.5)


@pytest.mark.parametrize("error", [AttributeError("no such operator"), RuntimeError("not on this processor")])
def test_where_it_cannot_be_done_nothing_is_packed(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(weight: torch.Tensor) -> packed.Product:
        raise error

    monkeypatch.setattr(packed, "packed", missing)
    assert not packed.pays()


@pytest.mark.parametrize(
    ("wrong", "seconds", "pays"), [(1.0, (1, 2), True), (1.0, (1, 1.1), False), (1.05, (1, 9), False)]
)
def test_it_must_be_right_and_faster(
    wrong: float, seconds: tuple[float, float], pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter(seconds)
    monkeypatch.setattr(packed, "packed", lambda weight: lambda x: wrong * (weight.float().numpy() @ x))
    monkeypatch.setattr(packed, "_best_seconds", lambda products, x: next(taken))
    assert packed.pays() is pays


def test_threads_are_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), packed.one_thread():
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
