"""Nothing a terminal obeys gets through, and reply bytes decode whatever the cuts."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from minagi import protocol as p
from tui.sanitise import (
    NUMBER_LIMIT,
    clean_line,
    clean_text,
    decode_utf8,
    number,
    numbers,
    scrub,
    whole,
    wholes,
)

ANY_TEXT = st.text(alphabet=st.characters(codec=None), max_size=200)


def harmless(text: str, newlines: bool) -> bool:
    for character in text:
        if character == "\n" and newlines:
            continue
        if unicodedata.category(character) in ("Cc", "Cs") or character in "\u202e\u2066\u200f\ufeff\u061c":
            return False
    return True


@given(ANY_TEXT)
def test_texts_lose_everything_a_terminal_obeys(text: str) -> None:
    assert harmless(clean_text(text), newlines=True)
    assert harmless(clean_line(text), newlines=False)
    clean_text(text).encode()  # no lone surrogate is left


def test_escape_codes_lose_their_teeth_and_words_stay() -> None:
    assert clean_line("a\x1b[31mred\x1b]0;title\x07b\r\nc") == "a[31mred]0;titleb c"
    assert clean_text("tab\there\x9b2J\u202eevil") == "tab    here2Jevil"
    assert clean_line("日記 ünd 🌱") == "日記 ünd 🌱"
    assert clean_line("x" * 1000, 10) == "x" * 9 + "…"
    assert clean_line("bad\udcff name") == "bad\ufffd name"


@given(st.binary(max_size=60), st.lists(st.integers(1, 7), max_size=30))
def test_decoding_does_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    pending, text, place = b"", "", 0
    for size in [*cuts, len(data)]:
        part, pending = decode_utf8(pending, data[place : place + size].decode("latin-1"))
        text += part
        place += size
    rest, pending = decode_utf8(pending, "", final=True)
    assert text + rest == clean_text(data.decode("utf-8", "replace"))
    assert pending == b""


def test_code_points_that_are_no_bytes_do_not_stop_a_reply() -> None:
    assert decode_utf8(b"", "a\u4e00b") == ("a?b", b"")


def test_numbers_are_finite_and_within_reach() -> None:
    assert number(float("nan")) is None
    assert number(float("inf")) is None
    assert number(True) is None
    assert number("3") is None
    assert number(10**400) == 2.0**53
    assert whole(-5) == 0
    assert whole(None) == 0


@given(st.lists(st.one_of(st.integers(), st.floats(), st.just(10**400), st.booleans(), st.none(), st.text())))
def test_a_list_holds_what_its_entries_would_be_alone(values: list[object]) -> None:
    assert wholes(values) == [whole(value) for value in values]
    assert numbers(values) == [number(value) or 0.0 for value in values]
    deep = scrub(p.Probed(nats=values))  # type: ignore[arg-type]
    assert isinstance(deep, p.Probed)
    kept = [value for value in deep.nats if isinstance(value, (int, float))]
    assert all(abs(value) <= NUMBER_LIMIT for value in kept)  # neither infinite nor no number


def test_scrub_mends_what_is_broken_and_leaves_the_rest_alone() -> None:
    good = p.Metrics(step=3, chars=1536, loss=2.0)
    assert scrub(good) is good
    bad = scrub(p.Metrics(loss=float("nan"), rate_factor=float("inf"), chars=-4, subject="a\x1bb"))
    assert isinstance(bad, p.Metrics)
    assert (bad.loss, bad.rate_factor, bad.chars, bad.subject) == (None, 1.0, 0, "ab")
    deep = scrub(p.CorpusFound(subjects=[{"name": "x\x07", "chars": float("inf"), "more": [[[[[[[1]]]]]]]}]))
    assert isinstance(deep, p.CorpusFound)
    assert deep.subjects[0]["name"] == "x"
    assert deep.subjects[0]["chars"] is None
