"""Workers that flood, babble, fall silent or go deaf: the screen stays whole and the keys go on working."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from conftest import Place
from terminal_program import CTRL_Q, ENTER, ESCAPE, LOOK, Program

pytestmark = pytest.mark.pty
HOSTILE = Path(__file__).with_name("hostile_worker.py")
BEHIND = """
import sys
from tui import app
app.worker_command = lambda _: [sys.executable, {hostile!r}, {how!r}]
sys.exit(app.main(["text.txt", "--weights", "w", "--yes"]))
"""
MEMORY_MAX = 150e6  # bytes


@pytest.fixture
def behind(place: Place) -> Iterator[Callable[[str], Program]]:
    """The app in front of a worker that misbehaves."""
    programs: list[Program] = []

    def start(how: str) -> Program:
        code = BEHIND.format(hostile=str(HOSTILE), how=how)
        programs.append(Program([sys.executable, "-c", code], place.folder, place.environ))
        return programs[-1]

    yield start
    for program in programs:
        program.close()


def keys_work(app: Program) -> None:
    app.press("?")
    app.until("Pause or resume training")
    app.press(ESCAPE)
    app.until_gone("Pause or resume training")
    app.press("3")
    app.until("┏━ 3 pool")
    app.press(ENTER)
    app.until_gone(" 1 loss ")
    app.press(ENTER)  # and see it obeyed: a key that acts everywhere would overtake it
    app.until(" 1 loss ")


def leaves(app: Program) -> None:
    app.press(CTRL_Q)
    app.until("Quit?")
    app.press(ENTER)
    app.end()
    assert app.left_on() == []
    assert "Traceback" not in app.parting


def test_ten_thousand_events_a_second(behind: Callable[[str], Program]) -> None:
    app = behind("flood")
    app.until_step(8_000)
    keys_work(app)
    step = app.step
    app.until(lambda: app.step >= step + 8_000)
    assert psutil.Process(app.child.pid).memory_info().rss < MEMORY_MAX
    leaves(app)


def test_garbage_is_counted_and_never_reaches_the_terminal(behind: Callable[[str], Program]) -> None:
    app = behind("garbage")
    app.until_step(5)
    app.press("l")
    app.until("made no sense")
    keys_work(app)
    assert b"gotcha\x07" not in app.output
    leaves(app)


def test_a_line_without_an_end_fills_no_memory(behind: Callable[[str], Program]) -> None:
    app = behind("endless")
    app.until("running")
    app.pump(40 * LOOK)  # 200 kB a hundred times a second
    keys_work(app)
    assert psutil.Process(app.child.pid).memory_info().rss < MEMORY_MAX
    leaves(app)


def test_one_that_never_says_a_word_can_be_left(behind: Callable[[str], Program]) -> None:
    app = behind("silent")
    app.until("starting")
    keys_work(app)
    app.press(CTRL_Q)
    app.until("Quit?")
    app.press(ENTER)
    app.until("Do not wait")
    app.press(ENTER)
    app.end()
    assert app.left_on() == []


def test_a_deaf_one_is_killed_at_the_end_of_the_ladder(behind: Callable[[str], Program]) -> None:
    app = behind("deaf")
    app.until_step(2)
    app.press(" ")
    app.until("pausing…")
    app.press(CTRL_Q)
    app.until("Quit?")
    app.press(ENTER)
    app.until("Do not wait")
    app.press(ENTER)
    app.until("told to terminate")
    app.press(ENTER)
    app.end()
    assert app.left_on() == []


def test_a_crash_in_the_middle_of_a_word_is_told(behind: Callable[[str], Program]) -> None:
    app = behind("crash")
    app.until("Start again (R)")
    assert "killed by signal 6" in app.screen
    app.press(ESCAPE)
    app.until_gone("Start again (R)")
    assert "worker died" in app.screen
    keys_work(app)
    app.press("q")
    app.end()
    assert app.left_on() == []
