"""Sentences on a terminal end their lines behind words; anywhere else they stay one line each."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from minagi.commands.doctor import NOTE, Finding, _told
from minagi.wrapping import width_of, wrapped
from tui import app

PARTING = "Left at step 2,028; everything is saved in /home/ada/models/a-rather-long-name-of-a-folder/notes."


@pytest.fixture
def terminal() -> Iterator[tuple[TextIO, int]]:
    """A terminal of 44 columns: what is printed on, and the end it can be read from."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 44, 0, 0))
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield stream, ours
    os.close(ours)


@given(
    st.lists(st.text("abc日é", min_size=1, max_size=30), min_size=1), st.integers(20, 120), st.integers(0, 9)
)
def test_no_word_is_broken_at_any_width(words: list[str], width: int, hang: int) -> None:
    lines = wrapped(" ".join(words), width, hang).split("\n")
    assert " ".join(line.strip() for line in lines).split() == words
    assert all(cell_len(line) <= width or len(line.split()) == 1 for line in lines)
    assert all(line.startswith(" " * hang) for line in lines[1:])


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_what_the_doctor_finds_is_whole_at_any_width(width: int) -> None:
    found = Finding(
        "terminal", NOTE, "none on stdin: minagi-tui reads without a screen here", "Start it there."
    )
    lines = [line for part in _told(found, width) for line in part.split("\n")]
    assert all(len(line) <= width for line in lines)
    assert " ".join(" ".join(lines).split()) == f"note terminal {found.text} {found.remedy}"
    assert len(_told(found, None)) == 2 and "\n" not in "".join(_told(found, None))


def test_the_last_words_of_the_app_are_wrapped_on_a_terminal_alone(
    terminal: tuple[TextIO, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, ours = terminal
    monkeypatch.setattr("sys.stderr", stream)
    app._say(PARTING)
    lines = os.read(ours, 4096).decode().splitlines()
    assert lines[:2] == ["Left at step 2,028; everything is saved in", PARTING.split()[-1]]
    with (tmp_path / "file").open("w+") as file:
        assert width_of(file) is None
        monkeypatch.setattr("sys.stderr", file)
        app._say(PARTING)
        assert (tmp_path / "file").read_text() == PARTING + "\n"
    assert width_of(file) is None, "closed"
