"""Figures in words."""

from __future__ import annotations

import math

from tui import words


def test_counts_sizes_and_times() -> None:
    assert [words.count(n) for n in (0, 950, 999.6, 12_345, 1_240_118, 3.2e9)] == [
        "0", "950", "1000", "12.3k", "1.24M", "3.20G",
    ]  # fmt: skip
    assert [words.size(n) for n in (512, 2000, 5_000_000, 3_000_000_000)] == [
        "512 B",
        "2.00 kB",
        "5.00 MB",
        "3.00 GB",
    ]
    assert [words.duration(s) for s in (-3, 45, 720, 12_000, 187_200)] == [
        "0 s", "45 s", "12 min", "3 h 20 min", "2 d 4 h",
    ]  # fmt: skip
    assert [words.duration(s) for s in (89, 90, 3599)] == ["89 s", "2 min", "1 h"], "none looks younger"
    assert words.duration(1e15) == "years"
    assert words.ago(2) == "just now"


def test_losses_and_shares() -> None:
    assert words.loss(math.log(2), True) == "1.000"
    assert words.loss(None, True) == "–"
    assert words.loss(1e9, False) == "huge"
    assert [words.share(s) for s in (None, 0.0, 0.004, 0.12, 1.0)] == ["–", "0%", "0.4%", "12%", "100%"]


def test_sentences_begin_large_and_end_full() -> None:
    assert words.sentence("the disk is full") == "The disk is full."
    assert words.sentence("Really?") == "Really?"
    assert words.sentence("  ") == ""
    assert words.plural(1, "file") == "1 file"
    assert words.plural(1200, "file") == "1,200 files"
