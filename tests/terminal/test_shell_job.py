"""The app as a job of a shell: stopped and brought back, resized, and pressed into any size."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest
from conftest import SCRIPTS, Place
from terminal_program import CTRL_Z, LOOK, Program

pytestmark = pytest.mark.pty
Start = Callable[..., Program]
PROMPT = "what next? "


@pytest.fixture
def shell(made: Place, start: Start) -> Program:
    """An interactive shell with job control."""
    environ = {**made.environ, "PS1": PROMPT, "HISTFILE": ""}
    place = Place(made.folder, environ)
    opened = start(place, "/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
    opened.until(PROMPT.strip())
    return opened


def test_ctrl_z_gives_the_terminal_back_and_fg_returns(shell: Program, made: Place) -> None:
    """Under make, as the README says: the whole job must stop, or no prompt would come."""
    (made.folder / "Makefile").write_text(f"tui:\n\t@{SCRIPTS}/minagi-tui text.txt --weights w\n")
    shell.press("make tui\r")
    step = shell.until_step()
    worker = shell.worker
    shell.press(CTRL_Z)
    shell.until(lambda: "Stopped" in shell.parting and PROMPT in shell.parting)
    assert shell.left_on() == []
    shell.press("echo $((6 * 7))\r")
    shell.until(lambda: "\n42\n" in shell.parting)
    assert worker.status() != "stopped", "training goes on meanwhile"
    shell.press("fg\r")
    shell.until(lambda: shell.step > step)
    shell.press("q")
    shell.until("Save and quit")
    shell.press("\r")
    shell.until(lambda: shell.parting.endswith(PROMPT))
    assert shell.left_on() == []
    assert "Error" not in shell.parting
    assert not worker.is_running()
    assert made.saved_step() > step


def test_without_a_shell_to_go_back_to_ctrl_z_does_not_freeze(made: Place, start: Start) -> None:
    app = start(made)
    app.until_step()
    app.press(CTRL_Z)
    app.until("no shell")
    app.until_step()


def test_a_storm_of_sizes(made: Place, start: Start) -> None:
    app = start(made)
    app.until_step()
    chance = random.Random(3)
    for _ in range(60):
        app.resize(chance.randrange(1, 220), chance.randrange(1, 70))
        app.pump(LOOK / 5)
    app.resize(40, 12)
    app.until(lambda: "running" in app.screen)
    app.resize(110, 34)
    app.until("8 log")
    app.until_step()
    app.signal(signal.SIGTERM)
    assert app.end() == 143
    assert app.left_on() == []
