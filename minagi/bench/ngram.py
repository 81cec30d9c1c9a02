"""A byte n-gram table with Witten-Bell smoothing: the floor that any model of text must clear.

p_n(c | h) = (count(h c) + T(h) · p_{n−1}(c | h')) / (N(h) + T(h)): N(h) is how often the context h was seen
before a byte, T(h) how many different bytes followed it, h' is h without its oldest byte; a context never
seen leaves p_{n−1}; order 0 is 1/256. Witten & Bell 1991, in the interpolated form of Chen & Goodman 1998.
"""

from __future__ import annotations

import numpy as np

from minagi.units import LN2

ORDER_MAX = 7  # bytes in one 64-bit key, the byte predicted among them


def bits_per_byte(train: bytes, test: bytes, order: int = 6) -> list[float]:
    """Mean bits of each byte of `test` under tables of `train`, for every order from 1 to `order`.

    Order n sees the n − 1 bytes before, those of `train`'s end included. Both texts need at least one byte.
    """
    chances = probabilities(train, test, order)
    return [float(-np.log(p).mean() / LN2) for p in chances[1:]]


def probabilities(train: bytes, test: bytes, order: int) -> list[np.ndarray]:
    """p of each byte of `test` [len(test)], by order from 0 to `order` (at most 7)."""
    if not 1 <= order <= ORDER_MAX:
        raise ValueError(f"order {order} is not one of 1 to {ORDER_MAX}")
    text = np.frombuffer(train + test, np.uint8)
    p = np.full(len(test), 1 / 256)
    found = [p]
    for n in range(1, order + 1):
        p = _raised(p, _grams(text, n), len(train))
        found.append(p)
    return found


def _grams(text: np.ndarray, n: int) -> np.ndarray:
    """The n bytes up to each place of text [L], oldest first, as one number each: [L − n + 1]."""
    key = np.zeros(max(len(text) - n + 1, 0), np.uint64)
    for place in range(n):
        key = (key << np.uint64(8)) | text[place : place + len(key)]
    return key


def _raised(lower: np.ndarray, grams: np.ndarray, train_bytes: int) -> np.ndarray:
    """p of the next order up from `lower` [M]; `grams` end at every place of both texts that they fit in."""
    n_missing = train_bytes + len(lower) - len(grams)  # places too near the beginning for a whole gram
    seen, asked = np.split(grams, [max(train_bytes - n_missing, 0)])
    p = lower.copy()
    if not len(seen) or not len(asked):
        return p
    kinds, counts = np.unique(seen, return_counts=True)
    contexts = kinds >> np.uint64(8)
    starts = np.flatnonzero(np.r_[True, contexts[1:] != contexts[:-1]])
    totals = np.add.reduceat(counts, starts)  # N(h)
    types = np.diff(np.r_[starts, len(kinds)])  # T(h)
    known, at = _looked_up(contexts[starts], asked >> np.uint64(8))
    held, place = _looked_up(kinds, asked)
    count = np.where(held, counts[place], 0)
    n, t = totals[at], types[at]
    rest = p[len(p) - len(asked) :]
    rest[known] = ((count + t * rest) / (n + t))[known]
    return p


def _looked_up(table: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each key is in the sorted table, and a place in it (meaningless where it is not)."""
    place = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return table[place] == keys, place
