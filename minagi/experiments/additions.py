"""Additions made to order: text to learn them from, and questions whose difficulty is known.

One a line, in decimal and without spaces: `347+158=505`. Both numbers have the same count of digits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

DIGITS = range(1, 9)


@dataclass(frozen=True)
class Addition:
    """Two numbers to add."""

    left: int
    right: int

    @property
    def question(self) -> bytes:
        return b"%d+%d=" % (self.left, self.right)

    @property
    def answer(self) -> bytes:
        return b"%d" % (self.left + self.right)


def questions(digits: int, count: int, seed: int) -> list[Addition]:
    """`count` additions of two numbers of `digits` digits each; the same for the same seed."""
    rng = random.Random(f"{seed}/asked/{digits}")
    return [_drawn(rng, digits) for _ in range(count)]


def lines(count: int, seed: int) -> Iterator[bytes]:
    """`count` lines to learn from, of every length in `DIGITS` alike. Drawn apart from `questions`."""
    rng = random.Random(f"{seed}/told")
    for _ in range(count):
        addition = _drawn(rng, rng.choice(DIGITS))
        yield addition.question + addition.answer + b"\n"


def _drawn(rng: random.Random, digits: int) -> Addition:
    low = 0 if digits == 1 else 10 ** (digits - 1)
    return Addition(rng.randrange(low, 10**digits), rng.randrange(low, 10**digits))
