"""The conversation with the model, while it learns."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Static, TextArea

from tui import words
from tui.panes.base import Drawn, Frame, fitted, line
from tui.state import BITS, AppState, Turn
from tui.styles import MUTED

TURNS_SHOWN = 60
PROMPT_LIMIT = 100_000  # characters; a longer paste is cut
_ENDS = {
    "length": "stopped at its length",
    "cancelled": "cancelled",
    "failed": "refused",
    "lost": "lost: the worker went away",
}


class ChatInput(TextArea):
    """Where you type: enter sends, ctrl+j begins a new line."""

    class Sent(Message):
        """A text to say to the model."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(
            id="chat-input", compact=True, highlight_cursor_line=False, placeholder="talk to it; enter sends"
        )
        self.cursor_blink = False  # a blink is a redraw, over SSH too

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            if self.text.strip():
                self.post_message(self.Sent(self.text[:PROMPT_LIMIT]))
            return
        if event.key == "ctrl+j":
            event.stop()
            event.prevent_default()
            self.insert("\n")
            return
        await super()._on_key(event)


class TurnView(Static):
    """One turn of the conversation, selectable with the mouse."""

    def __init__(self, turn: Turn, name: str) -> None:
        super().__init__(_told(turn, name), classes=f"turn {turn.role}")
        self.turn = turn
        self._name_shown = name

    def show(self, turn: Turn) -> None:
        """Draw it anew when it changed."""
        if turn is not self.turn:
            self.turn = turn
            self.update(_told(turn, self._name_shown))


class ChatStatus(Drawn):
    """One line over the text field: how the next reply is made, or how the present one goes."""

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state.chat, frame.view.raw, frame.view.strength, frame.state.link)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        reply = frame.state.reply
        if reply is not None:
            return [fitted(_progress(reply), size.width, " · ")]
        manner = "raw: greedy" if frame.view.raw else f"adapted {frame.view.strength:g}"
        items = [(0, line((manner, MUTED))), (1, line(("changes no weight", MUTED)))]
        return [fitted(items, size.width, " · ")]


class ChatPane(Vertical, can_focus=True):
    """Turns above, the text field below."""

    NAME: ClassVar[str] = "chat"
    hertz: ClassVar[str] = "chat"
    scrolls: ClassVar[bool] = True

    def __init__(self, number: int, seconds: float = 0.0) -> None:
        super().__init__(id=self.NAME)
        self.border_title = Content(f"{number} chat")
        self.seconds = seconds
        self._drawn_at = float("-inf")
        self._chat: tuple[Turn, ...] = ()
        self._told = ""  # the introduction that is shown

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="conversation", can_focus=False):
            yield Static(Content(""), id="chat-intro")
        yield ChatStatus("chat-status")
        yield ChatInput()

    @property
    def input(self) -> ChatInput:
        return self.query_one(ChatInput)

    @property
    def conversation(self) -> VerticalScroll:
        return self.query_one("#conversation", VerticalScroll)

    def on_mount(self) -> None:
        self.conversation.anchor()

    def scroll_lines(self, lines: int) -> None:
        """Move the conversation."""
        self.conversation.scroll_relative(y=lines, animate=False)

    def show(self, frame: Frame) -> None:
        """Bring the turns up to date, at most every `seconds`."""
        self.query_one(ChatStatus).show(frame)
        if 0.0 <= frame.now - self._drawn_at < self.seconds:
            return
        if not frame.state.chat:
            self._introduce(frame.state)
        if frame.state.chat is self._chat:
            return
        self._drawn_at, self._chat = frame.now, frame.state.chat
        self._bring(frame)

    def _bring(self, frame: Frame) -> None:
        """Turns that are gone go, those that changed are drawn, new ones are added."""
        name = frame.state.hello.model if frame.state.hello else "the model"
        wanted = frame.state.chat[-TURNS_SHOWN:]
        keys = {(turn.role, turn.id) for turn in wanted}
        views = {(view.turn.role, view.turn.id): view for view in self.query(TurnView)}
        for key, view in views.items():
            if key not in keys:
                view.remove()
        for turn in wanted:
            known = views.get((turn.role, turn.id))
            if known is not None:
                known.show(turn)
            else:
                self.conversation.mount(TurnView(turn, name))
        self.query_one("#chat-intro", Static).display = not wanted

    def _introduce(self, state: AppState) -> None:
        told = introduction(state)
        if told == self._told:
            return
        self._told = told
        self.query_one("#chat-intro", Static).update(Content.assemble((told, MUTED)))


def introduction(state: AppState) -> str:
    """What to expect of a model of this age."""
    read = state.metrics.chars
    if state.hello is None:
        return "The model is being opened."
    held = state.held_out.nats if state.held_out else state.curves.smooth.last
    age = f"It has read {words.count(read)} characters"
    if held is None:
        return f"{age} and was not measured yet. Press i and say something."
    bits = held * BITS
    if bits > 3.6:
        hope = "expect noise"
    elif bits > 2.8:
        hope = "expect letters in the right company, hardly a word"
    elif bits > 2.2:
        hope = "expect words, and the rhythm of the text"
    else:
        hope = "expect phrases in the manner of what it reads"
    return f"{age}; {hope}. Press i and say something: it answers while it goes on learning."


def _told(turn: Turn, name: str) -> Content:
    """A turn as it is shown; the texts were cleaned when they came in and are never parsed."""
    if turn.role == "you":
        return Content.assemble(("› ", "bold $accent"), (turn.text, "$text-accent"))
    head = Content.assemble(
        (name, "bold $text-success"), (" raw" if turn.variant == "raw" else "", "$text-warning")
    )
    if turn.phase == "waiting":
        return Content.assemble(head, "\n", ("waits for the step in flight…", MUTED))
    body = Content.assemble(head, "\n", turn.text)
    if turn.phase == "writing":
        return Content.assemble(body, ("▌", "$text-success"))
    notes = [f"{turn.chars} characters"]
    if turn.chars and turn.rows:
        notes.append(f"{turn.rows / turn.chars:.1f} rows each")
    if turn.loads:
        notes.append(words.plural(turn.loads, "load"))
    if turn.seconds:
        notes.append(f"{turn.seconds:.1f} s")
    if turn.phase in _ENDS:
        notes.append(_ENDS[turn.phase])
    return Content.assemble(body, "\n", (" · ".join(notes), MUTED))


def _progress(reply: Turn) -> list[tuple[int, Content]]:
    if reply.phase == "waiting":
        return [(0, line(("a reply begins after the step in flight", "$text-accent"))), (1, _stop())]
    return [
        (0, line(("✎ ", "$text-success"), (f"{reply.chars}", "bold"), " characters")),
        (2, line("rows ", (f"{reply.last_rows}", "bold"))),
        (3, line(words.plural(reply.loads, "load"))),
        (1, _stop()),
    ]


def _stop() -> Content:
    return line(("esc stops it", MUTED))
