"""How an expert is born: assembled from whole hidden units of several parents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minagi.pool.slots import level_names
from minagi.pool.telemetry import Telemetry
from minagi.weights import ExpertRecord

MAX_PARENTS = 16


@dataclass
class Newborn:
    """An assembled expert: weights, its parents' places, and each one's share of units (sums to 1)."""

    weights: dict[str, np.ndarray]
    parents: list[int]
    shares: np.ndarray


def choose_parents(telemetry: Telemetry, rng: np.random.Generator) -> list[int]:
    """Places of up to 16 experts drawn from the pool; the busiest is always among them."""
    count = min(MAX_PARENTS, len(telemetry))
    drawn = rng.choice(len(telemetry), size=count, replace=False).tolist()
    busiest = int(np.argmax(telemetry.recent))
    if busiest not in drawn:
        drawn[-1] = busiest
    return sorted(drawn)


def recombine(
    parents: list[int], weights_of: Callable[[int], ExpertRecord], depth: int, rng: np.random.Generator
) -> Newborn:
    """Take every hidden unit u, that is (w1[u], w3[u], w2[:, u]), whole from one parent.

    One parent's weights are held at a time, so that a pool larger than memory can give birth.
    """
    weights: dict[str, np.ndarray] = {}
    giver: list[np.ndarray] = []  # a level: which parent gives each unit
    for index, place in enumerate(parents):
        held = weights_of(place).weights
        for level in range(depth):
            w1, w3, w2 = level_names(level)
            if not index:
                weights |= {name: held[name].copy() for name in (w1, w3, w2)}
                giver.append(rng.integers(len(parents), size=(held[w1].shape[0],)))
            units = giver[level] == index
            weights[w1][units] = held[w1][units]
            weights[w3][units] = held[w3][units]
            weights[w2][:, units] = held[w2][:, units]
    counts = np.bincount(np.concatenate(giver), minlength=len(parents))
    return Newborn(weights, parents, counts / counts.sum())
