"""A newborn is made of whole hidden units of up to 16 parents."""

from __future__ import annotations

import numpy as np
import pytest

from minagi.pool import Telemetry
from minagi.pool.birth import MAX_PARENTS, choose_parents, recombine
from minagi.weights import ExpertRecord

D, W = 3, 40


def parent(place: int, depth: int = 1) -> ExpertRecord:
    """Every number of a unit says whose it is and which."""
    weights = {}
    for level in range(depth):
        prefix = f"b{level - 1}_" if level else ""
        unit = 1000 * place + 100 * level + np.arange(W, dtype=np.float32)
        weights |= {
            f"{prefix}w1": np.repeat(unit[:, None], D, 1),
            f"{prefix}w3": np.repeat(unit[:, None], D, 1) + 0.25,
            f"{prefix}w2": np.repeat(unit[None], D, 0) + 0.5,
        }
    return ExpertRecord(place, weights)


@pytest.mark.parametrize("depth", [1, 3])
def test_units_come_whole_and_from_their_own_place(depth: int) -> None:
    parents = [2, 5, 6]
    newborn = recombine(parents, lambda p: parent(p, depth), depth, np.random.default_rng(0))
    given = np.zeros(len(parents))
    for level in range(depth):
        prefix = f"b{level - 1}_" if level else ""
        w1, w3, w2 = (newborn.weights[prefix + name] for name in ("w1", "w3", "w2"))
        assert (w1 == w1[:, :1]).all() and (w2 == w2[:1]).all()
        np.testing.assert_array_equal(w3, w1 + 0.25)
        np.testing.assert_array_equal(w2.T, w1 + 0.5)
        np.testing.assert_array_equal(w1[:, 0] % 100, np.arange(W))
        givers = (w1[:, 0] // 1000).astype(int)
        assert set(givers) <= set(parents)
        given += [(givers == p).sum() for p in parents]
    np.testing.assert_allclose(newborn.shares, given / (W * depth))
    assert newborn.shares.sum() == pytest.approx(1)
    assert (newborn.shares > 0).all()


def test_parents_are_not_touched() -> None:
    kept = {p: parent(p) for p in range(3)}
    newborn = recombine([0, 1, 2], kept.__getitem__, 1, np.random.default_rng(1))
    newborn.weights["w1"][:] = -1
    for place, record in kept.items():
        np.testing.assert_array_equal(record.weights["w1"], parent(place).weights["w1"])


def test_one_parent_gives_a_copy() -> None:
    newborn = recombine([4], parent, 1, np.random.default_rng(1))
    np.testing.assert_array_equal(newborn.weights["w2"], parent(4).weights["w2"])
    assert newborn.shares.tolist() == [1.0]


@pytest.mark.parametrize("experts", [1, 3, 16, 17, 200])
def test_the_busiest_is_always_among_the_parents(experts: int) -> None:
    telemetry = Telemetry(experts)
    telemetry.recent[experts // 2] = 0.5
    for seed in range(20):
        parents = choose_parents(telemetry, np.random.default_rng(seed))
        assert experts // 2 in parents
        assert len(parents) == len(set(parents)) == min(MAX_PARENTS, experts)
        assert all(0 <= p < experts for p in parents)
