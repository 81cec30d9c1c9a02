"""The worker is gone: what it last said, and the key that starts it again."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from minagi.errors import EXIT_BAD_FILE
from tui import words
from tui.panes.base import Frame
from tui.panes.notice import Notice
from tui.reducers.run import how_it_ended
from tui.screens.dialog import Dialog, also


class DiedScreen(Dialog[str]):
    """Answers "restart", "quit" or None to look on."""

    heading = "The worker ended"

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame
        key = frame.key("restart")
        self.choices = (("restart", f"Start again ({key})"), ("look", "Look around"), ("quit", "Quit"))
        self.hints = (("enter", "choose"), ("← →", "another"), (key, "start again"), ("esc", "look around"))
        self._bindings = also(self._bindings, frame.table, "restart", "restart")

    def body(self) -> Iterable[Widget]:
        yield Static(Content(obituary(self._frame)))
        ending = self._frame.state.ending
        if ending is not None and ending.tail:
            yield Static(Content("\n".join(ending.tail)), id="tail")

    def heed(self, frame: Frame, said: Notice) -> None:
        """What is said at once of it is said below: no room is taken for it twice."""

    def answer(self, choice: str) -> None:
        self.dismiss(choice if choice != "look" else None)

    def action_restart(self) -> None:
        """Start it again."""
        self.dismiss("restart")


def obituary(frame: Frame) -> str:
    """What happened and what is left."""
    state = frame.state
    status = state.ending.status if state.ending else None
    if state.failure:
        kept = "The model is saved." if state.failure_saved else "The last completed checkpoint is whole."
        if status == EXIT_BAD_FILE and not state.failure_saved:  # what is wrong may be that checkpoint
            kept = ""
        return f"{words.sentence(state.failure)} {kept}".strip()
    where = f"Its log is {state.hello.log}." if state.hello and state.hello.log else ""
    return (
        f"It ended by itself ({how_it_ended(status)}). The last completed checkpoint is whole, "
        f"and starting again goes on from there. {where}"
    ).strip()
