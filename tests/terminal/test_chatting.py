"""A long talk in a real terminal: a huge paste, a reply broken off and gone on with, and what is kept."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from conftest import Place
from terminal_program import CTRL_Q, DOWN, ENTER, ESCAPE, LOOK, Program

pytestmark = pytest.mark.pty
Start = Callable[..., Program]
CTRL_G = "\x07"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
ROWS = ("--max-steps", "48", "--min-steps", "48")  # so that a reply takes seconds and can be broken off


def started(place: Place, start: Start) -> Program:
    app = start(place, "minagi-tui", "text.txt", "--weights", "w", "--yes", *ROWS)
    app.until_step()
    return app


def written(app: Program) -> int:
    """Characters of the reply, while it is written or after."""
    found = re.findall(r"✎ (\d+) characters|(\d+) characters ·", app.screen)
    return max((int(number) for pair in found for number in pair if number), default=0)


def left(app: Program) -> None:
    """Quit by the dialog, saving."""
    app.press(CTRL_Q)
    app.until("Save")
    app.press(ENTER)
    assert app.end() == 0
    assert app.left_on() == []


def test_a_huge_paste_a_reply_that_goes_on_and_a_talk_that_is_kept(place: Place, start: Start) -> None:
    app = started(place, start)
    app.press("i", "look: ", PASTE)
    text = "we rowed home, ünder a moon\r" * 3_600
    for place_ in range(0, len(text), 1_000):
        app.press(text[place_ : place_ + 1_000])
        app.pump()
    app.press(PASTED, "!")
    app.until("look: [paste 1: 10")
    app.until("characters; the last")
    step = app.step
    app.press(ENTER)
    app.until("The window held its last")
    app.until(lambda: written(app) > 2)
    app.press(ESCAPE)
    app.until("cancelled")
    before = written(app)
    app.press(CTRL_G)
    app.until(lambda: written(app) > before)
    app.press(ESCAPE)
    app.until("cancelled")
    app.until(lambda: app.step > step)
    app.press("/lern", ENTER)
    app.until("The nearest is /learn")
    app.press("\x15", "/learn on", ENTER)  # ctrl+u empties the line
    app.until("learns from this")
    app.press("short", ENTER)
    app.until("› short")
    app.until(lambda: "✎" not in app.screen and "waits for" not in app.screen)
    app.until("the chat", seconds=90)  # a subject of its own, within seconds
    left(app)

    app = started(place, start)
    app.until("› short")
    app.until("learns nothing")
    app.press("i", "\x1b[A")
    app.until("short", seconds=5)
    app.press(DOWN)
    left(app)
    history = place.weights / ".minagi" / "chat" / "history.jsonl"
    assert len(history.read_text().splitlines()) == 3, "the paste, the same gone on with, and the short one"
    assert "<user>short</user><bot>" in history.with_name("transcript.txt").read_text()


def test_a_dry_run_keeps_no_word(made: Place, start: Start) -> None:
    app = start(made, "minagi-tui", "text.txt", "--weights", "w", "--dry-run")
    app.until_step()
    app.press("i", "a secret", ENTER)
    app.until("› a secret")
    app.until(lambda: written(app) > 0 and "✎" not in app.screen)
    app.pump(2 * LOOK)
    app.press(CTRL_Q)
    app.until("Quit?")
    app.press(ENTER)
    assert app.end() == 0
    assert not (made.weights / ".minagi" / "chat").exists()
    assert all(b"a secret" not in path.read_bytes() for path in made.weights.rglob("*") if path.is_file())


NOISE = (
    b"\xe9t\xe9 \xff\xfe", "\x1b[99999999999u", "\x1b[57344;1:1u", "\x1b[48;;2048201~",
    "\x1b[<" + "9" * 5_000 + ";1;1M", "\x1b[M\xff", "\x1bP" + "x" * 200 + "\x1b\\",
    PASTE + "\x1b]0;t\x07" + PASTED,
)  # fmt: skip


def test_noise_from_the_terminal_ends_nothing(made: Place, start: Start) -> None:
    app = started(made, start)
    app.press("i")
    for noise in NOISE:
        app.press(noise)
        app.pump(2 * LOOK)
    app.press("\x15", "still here")
    app.until("still here")
    app.press(ESCAPE)
    app.until_step()
    left(app)
    assert b"Traceback" not in app.output
