"""Memory is used again when the last array over it is gone, and never before."""

from __future__ import annotations

import numpy as np
import pytest

from minagi.weights import memory

FLOATS = np.dtype(np.float32)
ROWS = memory.LEAST // 4 // 8
SHAPE = (ROWS, 8)


@pytest.fixture(autouse=True)
def nothing_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free", {})


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_what_nobody_holds_is_used_again_in_any_form() -> None:
    first = memory.empty(SHAPE, FLOATS)
    first[:] = 3
    where = address(first)
    del first
    again = memory.empty((8, 2, ROWS), np.dtype(np.int16))
    assert address(again) == where and again.shape == (8, 2, ROWS) and again.dtype == np.int16
    again[:] = 1  # writable


def test_a_view_keeps_its_memory() -> None:
    first = memory.empty(SHAPE, FLOATS)
    first[:] = 3
    view = first[1:].T[0].view(np.int32)
    where = address(first)
    del first
    other = memory.empty(SHAPE, FLOATS)
    other[:] = 4
    assert address(other) != where
    assert (view.view(np.float32) == 3).all()
    del view
    assert address(memory.empty(SHAPE, FLOATS)) == where


def test_only_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SPARE", 2 * memory.LEAST)
    held = [memory.empty(SHAPE, FLOATS) for _ in range(5)]
    assert len({address(array) for array in held}) == 5
    held.clear()
    (free,) = memory._free.values()
    assert len(free) == 2


def test_small_arrays_are_the_allocators() -> None:
    assert memory.empty((ROWS, 7), FLOATS).base is None
    assert memory.empty((0, 3), FLOATS).shape == (0, 3)
    assert not memory._free
