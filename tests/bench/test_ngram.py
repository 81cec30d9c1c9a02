from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.bench import ngram


def by_the_book(train: bytes, context: bytes, byte: int, order: int) -> float:
    """p(byte | context) by counting, one context at a time."""
    if order == 0:
        return 1 / 256
    lower = by_the_book(train, context, byte, order - 1)
    history = context[len(context) - order + 1 :]
    if len(history) < order - 1:
        return lower
    followers: dict[int, int] = defaultdict(int)
    for place in range(len(history), len(train)):
        if train[place - len(history) : place] == history:
            followers[train[place]] += 1
    seen, kinds = sum(followers.values()), len(followers)
    return lower if not seen else (followers[byte] + kinds * lower) / (seen + kinds)


def test_a_case_worked_by_hand() -> None:
    # "abab" then "a": order 1 saw a and b twice each, two kinds: (2 + 2/256) / (4 + 2);
    # order 2 saw b follow a twice and a follow b once, so after b: (1 + 1·p1) / (1 + 1)
    p0, p1, p2 = (float(p[0]) for p in ngram.probabilities(b"abab", b"a", 2))
    assert p0 == 1 / 256
    assert p1 == pytest.approx((2 + 2 / 256) / 6)
    assert p2 == pytest.approx((1 + p1) / 2)
    assert ngram.bits_per_byte(b"abab", b"a", 2) == pytest.approx([-math.log2(p1), -math.log2(p2)])


texts = st.binary(min_size=1, max_size=40) | st.text("ab ", min_size=1, max_size=60).map(str.encode)


@given(train=texts, test=texts, order=st.integers(1, 7))
def test_every_byte_has_the_chance_that_counting_gives(train: bytes, test: bytes, order: int) -> None:
    (*_, p) = ngram.probabilities(train, test, order)
    for place, byte in enumerate(test):
        assert p[place] == pytest.approx(by_the_book(train, train + test[:place], byte, order))


@given(train=texts, context=texts, order=st.integers(1, 6))
def test_the_chances_of_all_bytes_sum_to_one(train: bytes, context: bytes, order: int) -> None:
    total = sum(ngram.probabilities(train, context + bytes([b]), order)[-1][-1] for b in range(256))
    assert total == pytest.approx(1)


def test_what_it_is_tested_on_teaches_it_nothing() -> None:
    p = ngram.probabilities(b"aaaa", b"zzzz", 3)[-1]
    assert np.all(p[1:] == p[1]), "z after z is as new the third time as the first"


@pytest.mark.parametrize("order", [0, 8])
def test_an_order_that_does_not_fit_a_key_is_refused(order: int) -> None:
    with pytest.raises(ValueError, match="order"):
        ngram.probabilities(b"a", b"b", order)
