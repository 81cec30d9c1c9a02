"""Two days with the app: save and leave, come back and go on, take it back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from conftest import Place
from terminal_program import CTRL_Q, DOWN, ENTER, Program

pytestmark = pytest.mark.pty
Start = Callable[..., Program]


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
    step, trunk = made.checkpoint()
    app.until(lambda: app.step == step)
    grown = window(app)
    assert grown > 36, "the window had grown when the model was made, and went on growing"
    app.press(CTRL_Q)
    app.until("Everything is saved")
    app.press(ENTER)
    assert app.end() == 0
    figures = evaluated(made)
    manifest = made.weights / "manifest.json"
    written_down = json.loads(manifest.read_text())
    written_down["minagi"]["rate"]["factor"] = 0.5  # as if held-out text had spoken against the full rate
    manifest.write_text(json.dumps(written_down))

    app = start(made)
    app.until(lambda: window(app) > 0)
    assert app.step >= step, "it goes on where it was"
    assert grown <= window(app) <= grown + 1
    app.until("×0.500")
    app.until_step(20)
    app.press("s")
    app.until(lambda: made.read_only_step() > step)
    assert made.checkpoint()[1] != trunk
    app.press("r")
    app.until(f"step {step:>9}")
    app.press(*[DOWN] * 2)  # Cancel is first, then the newest
    app.until("can be undone")
    app.press(ENTER)
    app.until(lambda: made.read_only_step() == step)
    assert made.checkpoint() == (step, trunk)
    assert evaluated(made) == figures
    app.until_step()
    app.press(CTRL_Q, CTRL_Q)
    assert app.end() == 0
    assert made.saved_step() > step
