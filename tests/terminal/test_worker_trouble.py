"""A worker that dies, hangs or is refused is shown as such, and can be started again or left."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from conftest import Place
from terminal_program import CTRL_Q, ENTER, ESCAPE, Program

pytestmark = pytest.mark.pty
Start = Callable[..., Program]


def test_a_killed_worker_is_shown_and_started_again_from_the_last_checkpoint(
    made: Place, start: Start
) -> None:
    app = start(made)
    app.until_step()
    app.press("s")
    app.until(lambda: made.read_only_step() > 40)
    checkpoint = made.read_only_step()
    app.until_step()
    app.worker.kill()
    app.until("The worker ended")
    assert "killed by signal 9" in app.screen
    assert "Start again (R)" in app.screen
    assert "starts: " in app.screen.replace("\n", " "), "the last lines of its log"
    app.press("R")
    app.until_gone("Start again (R)")
    assert app.until_step() > checkpoint
    app.press(CTRL_Q)
    app.until("Save and quit")
    app.press(ENTER)
    assert app.end() == 0
    assert app.left_on() == []
    assert made.saved_step() > checkpoint


def test_a_dead_worker_can_be_left(made: Place, start: Start) -> None:
    app = start(made)
    app.until_step()
    app.worker.kill()
    app.until("The worker ended")
    app.press(ESCAPE)
    app.until_gone("Start again (R)")
    app.until("worker died")
    app.press("q")
    app.end()
    assert app.left_on() == []
    assert made.saved_step() == 40


def test_a_worker_that_hangs_is_shown_and_the_way_out_still_works(made: Place, start: Start) -> None:
    app = start(made)
    app.until_step()
    worker = app.worker
    worker.suspend()
    app.until("stalled")
    app.press(CTRL_Q)
    app.until("Save and quit")
    app.press(ENTER)
    app.until("Do not wait")
    app.press(ENTER)
    app.until("told to terminate")
    app.press(CTRL_Q)  # as good as the button
    app.end()
    assert app.left_on() == []
    assert not worker.is_running()
    assert made.saved_step() == 40


def test_a_second_app_on_the_same_weights_names_their_owner(made: Place, start: Start) -> None:
    first = start(made)
    seen = first.until_step()
    second = start(made, "minagi-tui", "text.txt", "--weights", "w", columns=400)
    assert second.end() == 4
    (sentence,) = second.parting.strip().splitlines()
    assert f"is being written by process {first.worker.pid}" in sentence
    assert second.left_on() == []
    first.until_step()
    first.signal(signal.SIGTERM)
    assert first.end() == 143
    assert made.saved_step() >= seen
