"""Additions made to order, and what a reader's rows on their answers say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.experiments.additions import DIGITS, lines, questions
from minagi.experiments.depth import WORKING, probe
from minagi.training.request import Looked


@given(st.sampled_from(DIGITS), st.integers(0, 10**15))
def test_questions_have_their_length_and_their_seed(digits: int, seed: int) -> None:
    asked = questions(digits, 20, seed)
    assert asked == questions(digits, 20, seed)
    for addition in asked:
        assert re.fullmatch(rb"\d{%d}\+\d{%d}=" % (digits, digits), addition.question)
        assert int(addition.answer) == addition.left + addition.right
    assert digits == 1 or len(set(asked)) > 10


def test_lines_are_additions_of_every_length_and_not_those_that_are_asked() -> None:
    told = list(lines(2_000, 5))
    assert told == list(lines(2_000, 5)) != list(lines(2_000, 6))
    lengths = set()
    for line in told:
        found = re.fullmatch(rb"(\d+)\+(\d+)=(\d+)\n", line)
        assert found is not None
        assert int(found[1]) + int(found[2]) == int(found[3])
        lengths.add((len(found[1]), len(found[2])))
    assert lengths == {(digits, digits) for digits in DIGITS}
    asked = {addition.question for digits in range(4, 9) for addition in questions(digits, 100, 5)}
    assert not asked & {line.partition(b"=")[0] + b"=" for line in told}


def reader(rows_of_answer: dict[int, int], wrong: bytes = b"") -> object:
    """Takes so many rows, by count of digits, on what predicts the answer, and 9 on everything else."""

    def look(text: bytes) -> Looked:
        question, _, answer = text.partition(b"=")
        digits = question.index(b"+") - 1
        assert text.startswith(b"\n")
        rows = [9] * len(question) + [rows_of_answer[digits]] * len(answer) + [9]
        expected = [0] * len(question) + list(answer.translate(None, wrong)) + [0]
        return Looked(rows[: len(text)], expected[: len(text)])

    return look


def test_only_what_predicts_the_answer_counts() -> None:
    found = probe(reader({d: d for d in DIGITS}), 10, 0)
    assert [depth.mean for depth in found.lengths] == [float(d) for d in DIGITS]
    assert [depth.largest for depth in found.lengths] == list(DIGITS)
    assert {depth.spread for depth in found.lengths} == {0.0}
    assert {depth.right for depth in found.lengths} == {1.0}
    assert found.verdict == "working" and found.difference == 7


@pytest.mark.parametrize(("longest", "verdict"), [(2, "working"), (1, "flat"), (0, "flat")])
def test_the_verdict_is_of_the_longest_against_the_shortest(longest: int, verdict: str) -> None:
    assert probe(reader({**dict.fromkeys(DIGITS, 5), 1: 1, 8: longest}), 4, 0).verdict == verdict


def test_an_answer_with_one_wrong_digit_is_not_right() -> None:
    found = probe(reader(dict.fromkeys(DIGITS, 1), wrong=b"1"), 64, 0)
    for depth in found.lengths:
        asked = questions(depth.digits, 64, 0)
        assert depth.right == sum(b"1" not in a.answer for a in asked) / 64
    assert 0 < found.lengths[0].right < 1


def test_spread_is_over_characters() -> None:
    def look(text: bytes) -> Looked:
        rows = [1] * len(text)
        rows[text.index(b"=")] = 3
        return Looked(rows, [0] * len(text))

    found = probe(look, 1, 0).lengths[-1]
    digits = len(questions(8, 1, 0)[0].answer)
    mean = (digits + 2) / digits
    assert found.mean == pytest.approx(mean) and found.largest == 3
    assert found.spread == pytest.approx((((3 - mean) ** 2 + (digits - 1) * (1 - mean) ** 2) / digits) ** 0.5)


def test_the_bound_itself_is_working() -> None:
    """Of 20 answers of 1 digit exactly 3 take a row more, on the longest."""
    count = 0

    def look(text: bytes) -> Looked:
        nonlocal count
        digits = text.index(b"+") - 1
        rows = [1] * len(text)
        if digits == DIGITS[-1]:
            answer = len(text) - text.index(b"=") - 1
            for place in range(text.index(b"="), text.index(b"=") + answer):
                rows[place] += count % 20 < 3
                count += 1
        return Looked(rows, [0] * len(text))

    found = probe(look, 200, 0)
    assert found.difference == pytest.approx(WORKING, abs=0.002)
