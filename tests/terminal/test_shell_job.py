"""The app as a job of a shell: stopped, and brought back."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest
from conftest import SCRIPTS, Place
from terminal_program import CTRL_Z, Program

pytestmark = pytest.mark.pty
Start = Callable[..., Program]
PROMPT = "what next? "


EARLY = """
import signal, sys
from textual.drivers.linux_driver import LinuxDriver

def start(self, start=LinuxDriver.start_application_mode):
    LinuxDriver.start_application_mode = start
    start(self)
    signal.raise_signal({number})

LinuxDriver.start_application_mode = start
from tui.app import main
sys.exit(main())
"""


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
    assert worker.status() != psutil.STATUS_STOPPED, "training goes on meanwhile"
    shell.press("bg\r")  # there is nothing to do without the terminal
    shell.until(lambda: "make tui &" in shell.parting)
    shell.until(lambda: worker.parent().status() == psutil.STATUS_STOPPED)
    assert shell.left_on() == []
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


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGTSTP])
def test_stopped_or_woken_while_it_takes_the_screen(number: int, place: Place, start: Start) -> None:
    app = start(place, "python", "-c", EARLY.format(number=int(number)), "--demo")
    app.until("q quit" if number == signal.SIGCONT else "There is no shell to go back to.")
    app.signal(signal.SIGTERM)
    assert app.end() == 143
    assert app.left_on() == []
