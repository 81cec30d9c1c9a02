"""Which word a character stands in, and which came before it: hashes that rows of the n-gram tables go by.

What follows "shal" hangs on the word more than on its last letters, and what begins a word on the one
before. A word is a run of letters, digits, underscores, apostrophes and bytes from 128 on (letters of most
scripts); capitals count as small letters, for n-grams tell them apart. Only so much of the past counts that a
text read in parts finds what it would find whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from minagi.text.alphabet import BYTES, VOCAB_SIZE

PRIME = (1 << 31) - 1  # hashes are taken modulo this, so that a product of two fits 63 bits
MULTIPLIER = 0x2E6F1A35
KINDS = 2  # the word so far, and that with the word before it
LETTERS = 16  # the last characters of a word, which are all that counts of it
NEAR = 32  # characters back to the end of a word that still counts as one before
REACH = NEAR + LETTERS - 1  # characters before a character that its hashes may hang on

Hash = TypeVar("Hash", int, Tensor)

_POWERS = [MULTIPLIER**back % PRIME for back in range(LETTERS)]
_IN_WORD = [False] + [
    symbol < BYTES and (symbol >= 128 or chr(symbol).isalnum() or symbol in b"_'")
    for symbol in range(VOCAB_SIZE)
]
_FOLDED = [0] + [
    1 + (symbol + 32 if ord("A") <= symbol <= ord("Z") else symbol) for symbol in range(VOCAB_SIZE)
]


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """By symbol: whether it is of a word, its small letter. By letters back: how many, and their power."""
    inside, folded = torch.tensor(_IN_WORD, device=device), torch.tensor(_FOLDED, device=device)
    return inside, folded, torch.arange(LETTERS, device=device), torch.tensor(_POWERS, device=device)


def hashes(symbols: Tensor, count: int) -> Tensor:
    """Of the last `count` of `symbols` [N], ids + 1 with 0 for none: [KINDS, count], each below PRIME.

    In a word these are the word so far, and that with the word before. Behind a word they are the
    character with the last word, and that with the word before it.
    """
    device = symbols.device
    of_word, small, back, powers = _tables(device)
    inside, folded = of_word.index_select(0, symbols), small.index_select(0, symbols)
    place = torch.arange(symbols.shape[0], device=device)
    length = place - torch.where(inside, -1, place).cummax(0).values  # of the word so far
    letters = F.pad(folded, (LETTERS - 1, 0)).unfold(0, LETTERS, 1).flip(1) * (back < length[:, None])
    word = (letters * powers).sum(1) % PRIME
    ends = torch.where(inside[:-1] & ~inside[1:], place[:-1], -1)
    before = F.pad(ends, (1, 0), value=-1).cummax(0).values  # where the last word before ended

    def word_at(end: Tensor) -> Tensor:
        near = (end >= 0) & (place - end <= NEAR)
        return torch.where(near, word.index_select(0, end.clamp_min(0)), 0)

    first = word_at(before)
    second = word_at(torch.where(before < 0, -1, before.index_select(0, before.clamp_min(0))))
    here = torch.where(inside, word, _then(folded, first))
    pair = _then(here, torch.where(inside, first, second))
    return torch.stack((here, pair))[:, symbols.shape[0] - count :]


def last_hashes(symbols: Sequence[int]) -> tuple[int, int]:
    """`hashes` of the last of `symbols` alone, in plain numbers: for writing character by character."""
    at = len(symbols) - 1
    begin, word = _word(symbols, at)
    first, second = 0, 0
    end = _end(symbols, begin, at)
    if end >= 0:
        begin, first = _word(symbols, end)
        end = _end(symbols, begin, at)
        second = _word(symbols, end)[1] if end >= 0 else 0
    if _IN_WORD[symbols[at]]:
        return word, _then(word, first)
    here = _then(_FOLDED[symbols[at]], first)
    return here, _then(here, second)


def _word(symbols: Sequence[int], end: int) -> tuple[int, int]:
    """Where the word up to `end` begins, `end` itself where there is none, and its hash."""
    hashed, begin = 0, end
    for back, power in enumerate(_POWERS):
        at = end - back
        if at < 0 or not _IN_WORD[symbols[at]]:
            break
        hashed, begin = hashed + _FOLDED[symbols[at]] * power, at
    while begin > 0 and _IN_WORD[symbols[begin]] and _IN_WORD[symbols[begin - 1]]:
        begin -= 1
    return begin, hashed % PRIME


def _end(symbols: Sequence[int], begin: int, at: int) -> int:
    """Where the last word before `begin` ends, if near enough to `at`; −1 where there is none."""
    for place in range(begin - 1, max(at - NEAR, 0) - 1, -1):
        if _IN_WORD[symbols[place]]:
            return place
    return -1


def _then(newer: Hash, older: Hash) -> Hash:
    return (newer * MULTIPLIER + older) % PRIME
