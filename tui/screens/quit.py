"""Leaving: what is unsaved, what to do about it, and the wait until it is done."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from tui import words
from tui.panes.base import Frame
from tui.screens.dialog import Dialog
from tui.state import AppState

_RUNGS = {
    "": "Asking the worker to stop…",
    "stop": "Finishing the step in flight, then saving…",
    "stop-stopping": "Finishing the checkpoint under way…",
    "stop-saving": "Saving…",
    "stop-over": "The worker has said goodbye and is closing…",
    "stop-unsaved": "Stopping…",
    "terminate": "It has not answered; it was told to terminate, and saves first…",
    "kill": "It had to be killed. The last completed checkpoint is whole.",
}


class QuitScreen(Dialog[str]):
    """Answers "save", "discard" or None to stay."""

    heading = "Quit?"
    hints = (("enter", "choose"), ("← →", "another"), ("esc", "stay"))

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._told = unsaved_words(frame)
        self._metrics = frame.state.metrics
        dry = frame.state.hello is not None and frame.state.hello.dry_run
        stay = ("stay", "Stay")
        if dry:
            self.choices = (("discard", "Quit"), stay)
        elif not frame.state.metrics.unsaved_chars:
            self.choices = (("save", "Quit"), stay)  # what is read while this stands is saved too
        else:
            self.choices = (
                ("save", "Save and quit"),
                ("discard", "Quit without saving"),
                stay,
            )

    def body(self) -> Iterable[Widget]:
        self._text = Static(Content(self._told), id="unsaved")
        yield self._text

    def show(self, frame: Frame) -> None:
        """It is read on while the question stands."""
        if frame.state.metrics is not self._metrics:
            self._metrics = frame.state.metrics
            self._text.update(Content(unsaved_words(frame)))

    def answer(self, choice: str) -> None:
        self.dismiss(None if choice == "stay" else choice)

    def again(self) -> None:
        """The quit key once more: the first, safe, answer."""
        self.dismiss(self.choices[0][0])


class LeavingScreen(Dialog[None]):
    """The quit ladder, seen from above."""

    heading = "Leaving"
    hints = (("enter", "do not wait"),)

    def __init__(self, save: bool, since: float) -> None:
        super().__init__()
        self._save = save
        self._since = since
        self._shown = ""
        self.choices = (("hurry", "Do not wait"),)

    def body(self) -> Iterable[Widget]:
        self._text = Static(Content(_RUNGS[""]), id="rung")
        yield self._text

    def show(self, frame: Frame) -> None:
        rung = frame.state.rung
        if rung == "stop":
            rung += self._at(frame.state)
        seconds = words.duration(frame.now - self._since)
        told = f"{_RUNGS.get(rung, '')} {seconds}"
        if told != self._shown:
            self._shown = told
            self._text.update(Content(told))

    def _at(self, state: AppState) -> str:
        """How far a worker is that was told to stop."""
        if state.parting:
            return "-over"
        if not self._save:
            return "-unsaved"
        phase = state.phase.phase
        return f"-{phase}" if phase in ("stopping", "saving") else ""

    def answer(self, choice: str) -> None:
        self.app.source.hurry()  # type: ignore[attr-defined]

    def again(self) -> None:
        """The quit key once more."""
        self.answer("hurry")

    def action_cancel(self) -> None:
        """There is no way back from here."""


def unsaved_words(frame: Frame) -> str:
    """What would be lost by leaving now."""
    state = frame.state
    if state.hello is not None and state.hello.dry_run:
        return "This is a dry run: what was learned is not kept."
    characters = state.metrics.unsaved_chars
    if state.hello is None:
        return "The model is still being opened: nothing was read."
    if not characters:
        return "Everything is saved."
    since = f", {words.ago(frame.now - state.saved_at)}" if state.saved_at is not None else ""
    last = f"the last checkpoint{since}" if state.saved is not None else "it was started"
    told = f"{words.plural(characters, 'character')} were read since {last}."
    if state.kept is not None:
        return f"{told} Without saving, it goes back to step {state.kept.step:,}."
    return f"{told} Without saving, nothing is kept."
