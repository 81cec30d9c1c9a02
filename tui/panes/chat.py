"""The conversation with the model, while it learns."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static, TextArea

from tui import words
from tui.keymap import Key
from tui.panes.base import Drawn, Frame, fitted, line
from tui.panes.chat_input import ChatInput
from tui.panes.exchange import ExchangeView
from tui.state import BITS, Exchange, Reply
from tui.styles import MUTED

EXCHANGES_SHOWN = 40
SUGGESTIONS = 5  # commands that are told of in a line each while one is typed
_ROOMY = 56  # columns from which the manner of replies is explained
_AROUND = 3  # characters of the window that stand around a prompt
_LEARNT = ("learns from this", "$text-success")
_UNLEARNT = ("learns nothing of this", MUTED)


class ChatStatus(Drawn):
    """The line over the text field: how the next reply is made, how the present one goes, what is typed."""

    typed = ""

    def part(self, frame: Frame) -> tuple[object, ...]:
        state, view = frame.state, frame.view
        return (state.reply, view.manner, view.strength, state.learning, state.metrics.context, self.typed)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        reply = frame.state.reply
        if reply is not None:
            pair = len(frame.state.chat[-1].replies) > 1
            progress = _progress(reply, pair, frame.key("leave_chat", typing=True))
            return [fitted(progress[:-1] if frame.playing else progress, size.width, " · ")]
        learning = line(_LEARNT if frame.state.learning else _UNLEARNT, (f" ({frame.key('learn')})", MUTED))
        items = [(2, line((_manner(frame, size.width), MUTED))), (1, learning)]
        room = frame.state.metrics.context - _AROUND
        typed = len(self.typed.encode("utf-8", "replace"))
        if typed > room > 0:
            told = f"{typed:,} characters; the last {room:,} fit"
            items.insert(0, (0, line((told, "$text-warning"))))
        return [fitted(items, size.width, " · ")]


class ChatPane(Vertical, can_focus=True):
    """Exchanges above, the text field below, and between them what can be typed."""

    NAME: ClassVar[str] = "chat"
    hertz: ClassVar[str] = "chat"
    scrolls: ClassVar[bool] = True

    def __init__(self, key: str, seconds: float = 0.0) -> None:
        super().__init__(id=self.NAME)
        self.border_title = Content(f"{key} chat")
        self.seconds = seconds
        self._drawn_at = float("-inf")
        self._chat: tuple[Exchange, ...] = ()
        self._recorded = False  # nobody can be talked to
        self._told = ""  # the introduction that is shown
        self._views: dict[int, ExchangeView] = {}  # serial -> view

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="conversation", can_focus=False):
            yield Static(Content(""), id="chat-intro")
        yield Static(Content(""), id="chat-commands")
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
        self.query_one("#chat-commands").display = False

    def scroll_lines(self, lines: int) -> None:
        """Move the conversation."""
        self.conversation.scroll_relative(y=lines, animate=False)

    @on(ChatInput.Paged)
    def _page(self, event: ChatInput.Paged) -> None:
        self.scroll_lines(event.pages * max(1, self.conversation.size.height - 1))

    @on(TextArea.Changed)
    def _typed(self) -> None:
        """What is typed may begin a command, or be more than the window holds."""
        status = self.query_one(ChatStatus)
        status.typed = self.input.said
        if status.frame is not None:
            status.show(status.frame)
        found = self.input.matches()
        commands = self.query_one("#chat-commands", Static)
        commands.display = bool(found)
        if found:
            commands.update(_commands(found))

    def show(self, frame: Frame) -> None:
        """Bring the exchanges up to date, at most every `seconds`."""
        status = self.query_one(ChatStatus)
        status.show(frame)
        self.input.prompts = frame.state.prompts
        self._recorded = frame.playing is not None
        self.input.display = not self._recorded
        status.display = not self._recorded or frame.state.reply is not None
        if 0.0 <= frame.tick - self._drawn_at < self.seconds:
            return
        if not frame.state.chat:
            self._introduce(frame)
        if frame.state.chat is self._chat:
            return
        self._drawn_at, self._chat = frame.tick, frame.state.chat
        self._bring(frame)

    def _bring(self, frame: Frame) -> None:
        """Exchanges that are gone go, those that changed are drawn, new ones are added."""
        name = frame.state.hello.model if frame.state.hello else "the model"
        wanted = {exchange.serial: exchange for exchange in frame.state.chat[-EXCHANGES_SHOWN:]}
        for serial, view in list(self._views.items()):
            known = wanted.get(serial)
            if known is None or len(known.replies) != len(view.exchange.replies):
                self._views.pop(serial).remove()
        go_on = frame.key("go_on", typing=True)
        last = None if self._recorded else max(wanted, default=None)  # which can be gone on with
        for serial, exchange in wanted.items():
            if serial in self._views:
                self._views[serial].show(exchange, serial == last)
            else:
                self._views[serial] = view = ExchangeView(exchange, name, serial == last, go_on)
                self.conversation.mount(view)
        self.query_one("#chat-intro", Static).display = not wanted

    def _introduce(self, frame: Frame) -> None:
        told = introduction(frame)
        if told == self._told:
            return
        self._told = told
        self.query_one("#chat-intro", Static).update(Content.assemble((told, MUTED)))


def introduction(frame: Frame) -> str:
    """What to expect of a model of this age."""
    state, invited = frame.state, f"Press {frame.key('chat')} and say something"
    if frame.playing is not None:
        return "In this recording nothing was said yet."
    read = state.metrics.chars
    if state.hello is None:
        return "The model is being opened."
    held = state.held_out.nats if state.held_out else state.curves.smooth.last
    age = f"It has read {words.count(read)} characters"
    if held is None:
        return f"{age} and was not measured yet. {invited}."
    bits = held * BITS
    if bits > 3.6:
        hope = "expect noise"
    elif bits > 2.8:
        hope = "expect letters in the right company, hardly a word"
    elif bits > 2.2:
        hope = "expect words, and the rhythm of the text"
    else:
        hope = "expect phrases in the manner of what it reads"
    return f"{age}; {hope}. {invited}: it answers between two steps, then learns on."


def _manner(frame: Frame, width: int) -> str:
    """How the next reply is made, in as many words as there is room for."""
    manner, strength = frame.view.manner, f"{frame.view.strength:g}"
    told = {"raw": "raw", "both": f"adapted {strength} and raw"}.get(manner, f"adapted {strength}")
    means = {"raw": "free to repeat itself", "both": "one beside the other"}.get(
        manner, "repeats itself less"
    )
    told += f" ({frame.key('manner')})"
    return f"{told}: {means}" if width >= _ROOMY else told


def _progress(reply: Reply, pair: bool, key: str) -> list[tuple[int, Content]]:
    """How the reply being written goes, last by what key it is stopped; `pair`: it is one of two."""
    stop = line((f"{key} stops it", MUTED))
    if reply.phase == "waiting":
        return [(0, line(("a reply begins after the step in flight", "$text-accent"))), (1, stop)]
    which = f"{reply.variant} " if pair else ""
    return [
        (0, line(("✎ ", "$text-success"), which, (f"{reply.chars}", "bold"), " characters")),
        (2, line((f"{reply.last_rows}", "bold"), " rows of thought")),
        (3, line(f"{words.plural(reply.loads, 'expert load')}")),
        (1, stop),
    ]


def _commands(found: list[Key]) -> Content:
    """The commands that can be meant: what each does where they are few, their names alone where not."""
    if len(found) > SUGGESTIONS:
        return line((" ".join(f"/{key.slash}".replace(" ", "\u00a0") for key in found), "$text-accent"))
    width = max(len(key.slash) for key in found)
    told = [line((f"/{key.slash:<{width}}", "bold $text-accent"), (f"  {key.told}", MUTED)) for key in found]
    return Content("\n").join(told)
