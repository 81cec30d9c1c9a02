"""While it runs: talk, pause, and what a terminal does to it. One app for all of it."""

from __future__ import annotations

import contextlib
import random
import re
import signal
from collections.abc import Iterator

import psutil
import pytest
from conftest import SCRIPTS, make_place
from terminal_program import CTRL_Z, ENTER, ESCAPE, LOOK, Program

pytestmark = pytest.mark.pty


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """An app that trains: many rows a character, so that a reply takes seconds and can be cancelled."""
    place = make_place(tmp_path_factory.mktemp("running"))
    rows = ("--max-steps", "256", "--min-steps", "256")
    program = Program(
        [SCRIPTS / "minagi-tui", "text.txt", "--weights", "w", "--yes", *rows], place.folder, place.environ
    )
    yield program
    program.close()


@pytest.fixture
def app(running: Program) -> Program:
    """The same app, training and with the keys in effect."""
    running.until_step()
    to_the_keys(running)
    return running


def to_the_keys(app: Program) -> None:
    """Leave the text field, as the footer tells."""
    if "esc leave" in app.screen:
        app.press(ESCAPE)
    app.until("space pause")


def written(app: Program) -> int:
    """Characters of the reply being written."""
    found = re.search(r"✎ (\d+) characters", app.screen)
    return int(found[1]) if found else 0


def until_more(app: Program, characters: int) -> None:
    """It streams: characters are added to those that are there."""
    app.until(lambda: written(app) != characters)


def test_a_message_is_answered_in_the_middle_of_training_and_can_be_cancelled(app: Program) -> None:
    for attempt in range(5):  # a reply may also be over by itself, by chance
        app.press("i", f"message {attempt}", ENTER)  # in one go, as a paste comes
        app.until(f"› message {attempt}")
        with contextlib.suppress(AssertionError):  # of the wait, where the reply was over too soon
            app.until(lambda: written(app) > 0, 10)
            until_more(app, written(app))
        app.press(ESCAPE)
        app.until(lambda: not written(app))
        if "cancelled" in app.screen:
            break
        to_the_keys(app)
    app.until("cancelled")
    app.until_step()


def test_pause_stops_the_steps(app: Program) -> None:
    app.press(" ")
    app.until("‖ paused")
    app.pump(10 * LOOK)  # what was on its way
    step = app.step
    app.pump(20 * LOOK)
    assert app.step == step
    app.press(" ")
    app.until_step()


def test_without_a_shell_to_go_back_to_ctrl_z_does_not_freeze(app: Program) -> None:
    app.press(CTRL_Z)
    app.until("no shell")
    app.until_step()


def test_a_storm_of_sizes(app: Program) -> None:
    chance = random.Random(3)
    for _ in range(60):
        app.resize(chance.randrange(1, 220), chance.randrange(1, 70))
        app.pump(LOOK / 5)
    app.resize(40, 12)
    app.until("running")
    app.resize(110, 34)
    app.until("8 log")
    app.until_step()


def test_stopped_and_woken_from_outside_it_still_gives_the_terminal_back(app: Program) -> None:
    """The last one: it ends the app."""
    app.signal(signal.SIGSTOP)
    app.until(lambda: psutil.Process(app.child.pid).status() == psutil.STATUS_STOPPED)
    app.signal(signal.SIGCONT)
    app.until_step()
    app.signal(signal.SIGTERM)
    assert app.end() == 143
    assert app.left_on() == []
