"""One exchange of the conversation: what was said, and under it the answer, or two side by side."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.content import Content
from textual.widgets import Static

from tui import words
from tui.state import Exchange, Reply
from tui.styles import MUTED

PROMPT_SHOWN = 300  # characters
_ENDS = {
    "length": "cut at the length set (/length)",
    "cancelled": "cancelled",
    "failed": "refused",
    "lost": "lost: the worker went away",
}


class ExchangeView(Vertical):
    """Selectable with the mouse. The texts were cleaned when they came in and are never parsed."""

    def __init__(self, exchange: Exchange, name: str, last: bool, go_on: str) -> None:
        super().__init__(classes="exchange")
        self.exchange = exchange
        self._model, self._last = name, last
        self._go_on = go_on  # its key
        # made here and not when composing: what changes until they are mounted must not be lost
        self._prompt = Static(prompt_text(exchange), classes="prompt")
        self._replies = [
            Static(self._reply(place), classes="reply beside" if place else "reply")
            for place, _ in enumerate(exchange.replies)
        ]

    def compose(self) -> ComposeResult:
        yield self._prompt
        with Container(classes="replies"):
            yield from self._replies

    def show(self, exchange: Exchange, last: bool) -> None:
        """Draw what changed. A view whose number of replies changed is to be made anew."""
        before, was_last = self.exchange, self._last
        self.exchange, self._last = exchange, last
        if exchange is before and last == was_last:
            return
        if (exchange.prompt, exchange.unread) != (before.prompt, before.unread):
            self._prompt.update(prompt_text(exchange))
        every = (last, exchange.can_go_on) != (was_last, before.can_go_on)
        for place, widget in enumerate(self._replies):
            if exchange.replies[place] is not before.replies[place] or every:
                widget.update(self._reply(place))

    def _reply(self, place: int) -> Content:
        goes_on = self._last and place == 0 and self.exchange.can_go_on
        return reply_text(self.exchange.replies[place], self._model, self._go_on if goes_on else "")


def prompt_text(exchange: Exchange) -> Content:
    """The user's words, cut where they are long, and how much of them the model could see."""
    shown = exchange.prompt[:PROMPT_SHOWN]
    parts: list[tuple[str, str]] = [("› ", "bold $text-accent"), (shown, "$text-accent")]
    if len(shown) < len(exchange.prompt):
        parts.append((f"… {exchange.size:,} characters in all", MUTED))
    if exchange.unread:
        parts.append((f"\nThe window held its last {exchange.size - exchange.unread:,} characters.", MUTED))
    return Content.assemble(*parts)


def reply_text(reply: Reply, name: str, goes_on: str = "") -> Content:
    """The model's words, and how they were written. `goes_on`: the key, where they can be gone on with."""
    head = Content.assemble((name, "bold $text-success"), _manner(reply))
    if reply.phase == "waiting":
        wait = ("waits for the step in flight…", MUTED)
        return Content.assemble(head, "\n", reply.text, *(["\n"] if reply.text else []), wait)
    body = Content.assemble(head, "\n", reply.text)
    if reply.phase == "writing":
        return Content.assemble(body, ("▌", "$text-success"))
    notes = [f"{reply.chars} characters"]
    if reply.chars and reply.rows:
        notes.append(f"{reply.rows / reply.chars:.1f} rows of thought each")
    if reply.loads:
        notes.append(f"{words.plural(reply.loads, 'expert load')}")
    if reply.seconds:
        notes.append(f"{reply.seconds:.1f} s")
    if reply.phase in _ENDS:
        notes.append(_ENDS[reply.phase])
    if goes_on:
        notes.append(f"{goes_on} goes on")
    return Content.assemble(body, "\n", (" · ".join(notes), MUTED))


def _manner(reply: Reply) -> tuple[str, str]:
    if reply.variant == "raw":
        return " raw", "$text-warning"
    return (f" adapted {reply.strength:g}" if reply.strength else ""), MUTED
