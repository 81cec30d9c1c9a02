"""A day with the app: talk while it learns, pause, save, leave, come back, go on, take it back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from conftest import Place
from terminal_program import CTRL_Q, DOWN, ENTER, ESCAPE, LOOK, Program

pytestmark = pytest.mark.pty
Start = Callable[..., Program]


def written(app: Program) -> int:
    """Characters of the reply being written."""
    found = re.search(r"✎ (\d+) characters", app.screen)
    return int(found[1]) if found else 0


def until_more(app: Program, characters: int) -> None:
    """It streams: characters are added to those that are there."""
    app.until(lambda: written(app) != characters)


def test_a_message_is_answered_in_the_middle_of_training_and_can_be_cancelled(
    place: Place, start: Start
) -> None:
    # many rows a character, so that a reply takes seconds and there is something to cancel
    app = start(place, "minagi-tui", "text.txt", "--weights", "w", "--max-steps", "48", "--min-steps", "48")
    app.until_step()
    for attempt in range(5):  # a reply may also be over by itself, by chance
        app.press("i", f"message {attempt}", ENTER)  # in one go, as a paste comes
        app.until(lambda: written(app) > 0)
        until_more(app, written(app))
        app.press(ESCAPE)
        app.until(lambda: not written(app))
        assert f"› message {attempt}" in app.screen
        if "cancelled" in app.screen:
            break
    app.until("cancelled")
    app.until_step()


def test_pause_stops_the_steps(made: Place, start: Start) -> None:
    app = start(made)
    app.until_step()
    app.press(" ")
    app.until("‖ paused")
    app.pump(10 * LOOK)  # what was on its way
    step = app.step
    app.pump(20 * LOOK)
    assert app.step == step
    app.press(" ")
    app.until_step()


def evaluated(place: Place) -> dict:
    done = place.run("minagi", "eval", "probe.txt", "--weights", "w", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def window(app: Program) -> int:
    found = re.search(r"│ (\d+) characters of 64", app.screen)
    return int(found[1]) if found else 0


def test_save_leave_come_back_train_on_and_revert(made: Place, start: Start) -> None:
    (made.folder / "probe.txt").write_text("we rowed home singing under a pale moon\n" * 8)
    app = start(made)
    app.until_step(20)
    app.press(" ")
    app.until("‖ paused")
    app.press("s")
    app.until(lambda: made.read_only_step() > 40)
    step = made.read_only_step()
    app.until(lambda: app.step == step)
    grown = window(app)
    assert grown > 36, "the window had grown when the model was made, and went on growing"
    app.press(CTRL_Q)
    app.until("Everything is saved")
    app.press(ENTER)
    assert app.end() == 0
    then = evaluated(made)

    app = start(made)
    app.until(f"Goes on at step {step}:")
    app.until(lambda: window(app) > 0)
    assert grown <= window(app) <= grown + 1
    app.until_step(20)
    app.press("s")
    app.until(lambda: made.read_only_step() > step)
    later = made.read_only_step()
    assert evaluated(made) != then
    app.press("r")
    app.until(f"step {step:>9}")
    app.press(*[DOWN] * 2)  # Cancel is first, then the newest
    app.until("can be undone")
    app.press(ENTER)
    app.until(f"Reverted to step {step}")
    assert made.read_only_step() == step
    assert evaluated(made) == then
    app.until_step()
    app.press(CTRL_Q, CTRL_Q)
    assert app.end() == 0
    assert step < made.saved_step() < later + 10_000
