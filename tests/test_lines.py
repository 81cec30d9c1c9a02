"""Lines out of a stream of bytes, however they arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minagi.lines import LineReader


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20), st.integers(4, 30))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, cuts: list[int], limit: int) -> None:
    whole = LineReader(limit).feed(data + b"\n")
    reader, lines, place = LineReader(limit), [], 0
    for size in cuts:
        lines += reader.feed(data[place : place + size])
        place += size
    lines += reader.feed(data[place:] + b"\n")
    assert lines == whole
    assert all(line is None or len(line) <= limit for line in lines)


def test_a_line_that_is_too_long_is_dropped_not_kept() -> None:
    reader = LineReader(limit=10)
    for _ in range(1000):
        assert reader.feed(b"x" * 8) == []
    assert reader.feed(b"\n{}\n") == [None, b"{}"]
