from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.text.alphabet import MARKERS, VOCAB_SIZE, decode, encode

pieces = st.sampled_from([*MARKERS, b"<", b"/", b">", b"<th", b"ink>", b"|", "é".encode(), b"\xff", b"a"])
marked = st.one_of(st.binary(max_size=200), st.lists(pieces, max_size=30).map(b"".join))


def one_at_a_time(data: bytes) -> list[int]:
    """The slow way, from the definition."""
    ids, i = [], 0
    while i < len(data):
        marker = next((m for m in MARKERS if data.startswith(m, i)), None)
        ids.append(data[i] if marker is None else 256 + MARKERS.index(marker))
        i += 1 if marker is None else len(marker)
    return ids


@given(marked)
def test_round_trip_with_and_without_markers(data):
    assert decode(encode(data)) == data
    assert decode(encode(data, markers=False)) == data


@given(marked)
def test_encoding_is_what_the_definition_says(data):
    ids = encode(data)
    assert ids.dtype == np.uint16 and ids.tolist() == one_at_a_time(data)
    assert encode(data, markers=False).tolist() == list(data)


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=50))
def test_any_ids_decode(ids):
    spelled = b"".join(bytes([i]) if i < 256 else MARKERS[i - 256] for i in ids)
    assert decode(ids) == spelled
    assert decode(np.array(ids, np.int64)) == spelled


def test_the_nine_markers_in_their_order():
    assert VOCAB_SIZE == 265 and len(MARKERS) == 9
    assert encode(b"".join(MARKERS)).tolist() == list(range(256, 265))
    assert decode([264]) == b"<|endoftext|>" and decode([260]) == b"<bot>"


@pytest.mark.parametrize("ids", [[265], [-1], [0, 70_000]])
def test_ids_outside_the_alphabet_are_refused(ids):
    with pytest.raises(ValueError, match="0 to 264"):
        decode(ids)


def test_empty():
    assert encode(b"").shape == (0,) and decode([]) == b""


def test_encoding_a_window_costs_far_under_a_millisecond():
    data = b"the quick <brown> fox " * 47 + b"</bot>"
    encode(data)
    start = time.process_time()
    for _ in range(20):
        encode(data)
    assert (time.process_time() - start) / 20 < 0.001
