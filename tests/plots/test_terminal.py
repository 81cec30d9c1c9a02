from __future__ import annotations

import pytest
from plot_rows import HOSTILE, read_rows, stream_rows

from minagi.plots.run import Run, runs_of
from minagi.plots.terminal import Look, drawn


def last(rows: list) -> Run:
    return list(runs_of(rows).values())[-1]


def test_every_chart_has_its_title_and_its_last_value() -> None:
    text = drawn(last(read_rows(30)), Look(80))
    for words in (
        "Loss, bits a character", "train  2.", "held-out  2.", "Held-out by subject", "a letters",
        "b logbook",
        "Experts: 7", "Window, characters: 286", "Learning rate, factor: 0.97", "100k",
    ):  # fmt: skip
        assert words in text
    assert "⠉" in text and "bbb" in text


@pytest.mark.parametrize("width", [1, 24, 40, 80, 200, 10**6])
def test_no_line_is_wider_than_asked_for(width: int) -> None:
    lines = drawn(last(read_rows(30)), Look(width)).splitlines()
    assert max(map(len, lines)) <= min(max(width, 40), 120)


def test_without_colour_there_are_no_escapes_and_with_it_there_are() -> None:
    run = last(read_rows(30))
    assert "\x1b" not in drawn(run, Look(80))
    assert "\x1b[" in drawn(run, Look(80, colour=True))


def test_ascii_where_there_is_no_more() -> None:
    assert drawn(last(read_rows(30)), Look(80, ascii_only=True)).isascii()


def test_a_stream_is_drawn_too() -> None:
    text = drawn(last(stream_rows()), Look(80))
    assert "Learning rate: 0.0002" in text and "Held-out by subject" in text


def test_one_reading_is_told_in_words() -> None:
    text = drawn(last(read_rows(1)), Look(80))
    assert "one reading" in text
    assert "held-out  2." in text
    assert "Experts: 4\n  at 50k characters" in text
    assert "b logbook" in text
    assert not set("⠉┌└") & set(text), "nothing is drawn"
    assert "one reading" not in drawn(last(read_rows(2)), Look(80))


def test_a_curve_of_one_reading_among_longer_ones_is_a_point() -> None:
    rows = read_rows(3)
    del rows[0]["val"], rows[1]["val"]
    text = drawn(last(rows), Look(80))
    assert "o" in text.partition("held-out")[2].partition("\n\n")[0] and "┌" in text


def test_nothing_is_nothing() -> None:
    assert drawn(Run(), Look(80)) == ""


@pytest.mark.parametrize("row", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_rows_are_drawn_or_passed_over(row: dict) -> None:
    text = drawn(last([*read_rows(2), {"model": "/models/mine", **row}]), Look(60))
    assert "\x1b" not in text
    drawn(last([row]), Look(60))


def test_many_subjects_are_counted() -> None:
    rows = read_rows(2)
    for place, row in enumerate(rows):
        row["subjects"] = {f"s{n}": {"val": 1.0 + n * place} for n in range(20)}
    text = drawn(last(rows), Look(80))
    assert "14 more not drawn" in text and "a s14" in text and "f s19" in text
