"""The first run: what was found, what will read it, how long that takes. One key starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from minagi.protocol import Hello
from tui import words
from tui.panes.base import Frame
from tui.sanitise import whole
from tui.screens.dialog import Dialog
from tui.state import AppState

PACE_STEPS = 8  # from which on the pace of reading is told
_SUBJECTS = 3  # named, the largest first
_AFTER = "\nNothing leaves this machine. At any time {} pauses; quitting asks what to keep."


class WelcomeScreen(Dialog[str]):
    """Answers "start" or "leave". Starting may be chosen before everything is known."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "start", show=False),
        Binding("q", "cancel", show=False),
    ]
    UNDISTURBED: ClassVar[bool] = True
    heading = "A new model"
    choices = (("start", "Start reading"), ("leave", "Leave"))

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame
        leave = (frame.key("leave"), "leave, keeping nothing")
        self.hints = (("enter", "choose"), ("← →", "another"), ("space", "start"), leave)
        self._facts: dict[str, Static] = {}

    def body(self) -> Iterable[Widget]:
        for name, told in overview(self._frame.state).items():
            self._facts[name] = Static(Content(told), classes="fact-told")
            yield Horizontal(Static(Content(name), classes="fact-name"), self._facts[name], classes="fact")
        yield Static(Content(_AFTER.format(self._frame.key("pause"))))

    def show(self, frame: Frame) -> None:
        hello = frame.state.hello
        if hello is not None and not hello.fresh:  # there was a model after all
            self.dismiss("start")
            return
        for name, told in overview(frame.state).items():
            if told != str(self._facts[name].content):
                self._facts[name].update(Content(told))

    def answer(self, choice: str) -> None:
        self.dismiss(choice)

    def again(self) -> None:
        """The quit key: nothing was begun, so there is nothing to ask."""
        self.dismiss("leave")

    def action_start(self) -> None:
        """Begin."""
        self.dismiss("start")

    def action_cancel(self) -> None:
        self.dismiss("leave")


def overview(state: AppState) -> dict[str, str]:
    """What is known so far: the name of a question -> the lines that answer it."""
    hello = state.hello
    told = {"Text": _text(state), "Model": _model(hello), "Pace": _pace(state), "Kept": _kept(hello)}
    return {name: "\n".join(lines) for name, lines in told.items()}


def _text(state: AppState) -> list[str]:
    corpus, subjects = state.corpus, state.subjects
    if corpus is None:
        return ["looking through the folder…"]
    found = f"{words.plural(corpus.files, 'file')}, {words.count(corpus.chars)} characters"
    lines = [f"{found}, {words.plural(len(subjects), 'subject')}"]
    if len(subjects) > 1:
        largest = sorted(subjects, key=lambda subject: -subject.chars)[:_SUBJECTS]
        named = ", ".join(f"{subject.name[:24]} {words.count(subject.chars)}" for subject in largest)
        more = len(subjects) - len(largest)
        lines.append(named + (f", {more} more" if more else ""))
    if corpus.held_out_chars:
        lines.append(f"{words.count(corpus.held_out_chars)} characters are held out, to measure it with")
    else:
        lines.append("too little to hold any out, so nothing will measure it")
    skipped = [f"{whole(files):,} {reason}" for reason, files in corpus.skipped.items()]
    return [*lines, f"passed over: {', '.join(skipped[:4])}"] if skipped else lines


def _model(hello: Hello | None) -> list[str]:
    if hello is None:
        return ["being made…"]
    profile = f", profile {hello.profile}" if hello.profile else ""
    lines = [
        f"{words.count(hello.parameters)} parameters, {words.plural(hello.experts, 'expert')}{profile}",
        f"on {hello.device_name or hello.device}, {hello.precision}",
    ]
    return [*lines, *(words.sentence(notice) for notice in hello.notice.splitlines())]


def _pace(state: AppState) -> list[str]:
    """Measured on the first pages, of which the very first tell little; the whole takes about as long."""
    speed, corpus = state.metrics.chars_per_second, state.corpus
    enough = state.metrics.step >= PACE_STEPS or state.phase.phase == "paused"
    if not speed or corpus is None or not enough:
        return ["read from the first pages, in a moment…"]
    whole_pass = words.duration(corpus.chars / speed)
    return [f"{words.count(speed)} characters a second: about {whole_pass} to read it all"]


def _kept(hello: Hello | None) -> list[str]:
    if hello is None:
        return ["…"]
    if hello.dry_run:
        return ["nothing: this is a dry run"]
    return [f"in {hello.weights}, every few minutes and when you quit"]
