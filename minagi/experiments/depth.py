"""Does depth follow difficulty? The rows a model takes on the answers of additions, by their length."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from minagi.experiments.additions import DIGITS, Addition, questions
from minagi.training.request import Looked

WORKING = 0.15  # rows that the longest additions take more than the shortest


@dataclass(frozen=True)
class DepthOf:
    """Rows a character on the answers of additions of one length. `right`: share answered without a fault."""

    digits: int
    mean: float
    spread: float  # standard deviation over characters
    largest: int
    right: float


@dataclass(frozen=True)
class DepthProbe:
    """Every length's depth, shortest first."""

    lengths: tuple[DepthOf, ...]

    @property
    def difference(self) -> float:
        """Rows that the longest take more than the shortest."""
        return self.lengths[-1].mean - self.lengths[0].mean

    @property
    def verdict(self) -> str:
        """working | flat"""
        return "working" if self.difference >= WORKING else "flat"


def probe(look: Callable[[bytes], Looked], samples: int, seed: int) -> DepthProbe:
    """Have `look` read `samples` additions of each length, each as a text of its own that begins a line.

    The characters that count are those from which a digit of the answer is predicted: `=`, and every
    digit of the answer but the last.
    """
    lengths = []
    for digits in DIGITS:
        rows: list[int] = []
        right = 0
        for addition in questions(digits, samples, seed):
            taken, correct = _answered(look, addition)
            rows += taken
            right += correct
        lengths.append(
            DepthOf(digits, statistics.fmean(rows), statistics.pstdev(rows), max(rows), right / samples)
        )
    return DepthProbe(tuple(lengths))


def _answered(look: Callable[[bytes], Looked], addition: Addition) -> tuple[list[int], bool]:
    """Rows of the characters before each digit of the answer, and whether all digits were foreseen."""
    asked = b"\n" + addition.question
    looked = look(asked + addition.answer)
    before = slice(len(asked) - 1, -1)
    return looked.rows[before], looked.expected[before] == list(addition.answer)
