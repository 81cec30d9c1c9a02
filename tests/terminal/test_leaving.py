"""Every way out of the app: the terminal is as it was, the worker is gone, nothing that was read is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from conftest import Place
from terminal_program import CTRL_C, CTRL_Q, ENTER, LOOK, Program

pytestmark = pytest.mark.pty
Start = Callable[..., Program]
BROKEN = """
import sys
from tui.shell import MinagiApp
from tui.app import main
MinagiApp.action_units = lambda self: 1 / 0
sys.exit(main())
"""


def until_dead(program: Program, worker: psutil.Process) -> None:
    program.until(lambda: not worker.is_running())


def test_the_quit_key_asks_and_each_answer_is_kept_to(made: Place, start: Start) -> None:
    app = start(made)
    app.until_step()
    app.press(CTRL_Q)
    app.until("Save and quit")
    assert "characters were read since" in app.screen
    app.press("\t", "\t", ENTER)  # stay
    app.until_gone("Save and quit")
    app.until_step()
    worker = app.worker
    app.press("q")
    app.until("Save and quit")
    app.press("\t", ENTER)  # quit without saving
    assert app.end() == 0
    assert app.left_on() == []
    assert not worker.is_running()
    assert made.saved_step() == 40


def test_quit_and_save_in_the_middle_of_a_step(made: Place, start: Start) -> None:
    app = start(made)
    seen = app.until_step()
    worker = app.worker
    app.press(CTRL_Q)
    app.until("Save and quit")
    app.press(ENTER)
    assert app.end() == 0
    assert app.left_on() == []
    assert not worker.is_running()
    assert made.saved_step() >= seen


def test_ctrl_c_twice_saves_and_quits(made: Place, start: Start) -> None:
    app = start(made)
    seen = app.until_step()
    app.press(CTRL_C)
    app.until("once more")
    assert app.child.isalive()
    for _ in range(100):  # two within two seconds, and more of them until the process is gone
        if not app.child.isalive():
            break
        app.press(CTRL_C)
        app.pump(LOOK)
    assert app.end() == 0
    assert app.left_on() == []
    assert made.saved_step() >= seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal_and_saves(number: signal.Signals, made: Place, start: Start) -> None:
    app = start(made)
    seen = app.until_step()
    worker = app.worker
    app.signal(number)
    assert app.end() == 128 + number
    assert app.left_on() == []
    assert "Saving what was learned" in app.parting
    assert "Traceback" not in app.parting
    assert not worker.is_running()
    assert made.saved_step() >= seen


def test_a_lost_connection_saves(made: Place, start: Start) -> None:
    app = start(made)
    seen = app.until_step()
    worker = app.worker
    app.hang_up()
    app.until(lambda: not app.child.isalive())
    assert not worker.is_running()
    assert made.saved_step() >= seen


def test_a_killed_app_takes_its_worker_along_in_order(made: Place, start: Start) -> None:
    app = start(made)
    seen = app.until_step()
    worker = app.worker
    app.signal(signal.SIGKILL)
    killed = time.monotonic()
    until_dead(app, worker)
    assert time.monotonic() - killed < 10
    assert made.saved_step() >= seen


def test_a_defect_of_the_app_is_told_in_a_sentence_and_the_worker_saves(made: Place, start: Start) -> None:
    app = start(made, "python", "-c", BROKEN, "text.txt", "--weights", "w", "--yes")
    seen = app.until_step()
    worker = app.worker
    app.press("u")
    assert app.end() == 1
    assert app.left_on() == []
    assert "Traceback" not in app.parting
    told = " ".join(app.parting.split())  # in lines as wide as the terminal
    assert "Something went wrong inside the app (ZeroDivisionError: division by zero)." in told
    log = told.partition("The log has the details: ")[2].split()[0]
    assert "ZeroDivisionError" in Path(log).read_text()
    assert not worker.is_running()
    assert made.saved_step() >= seen
