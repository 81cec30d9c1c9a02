"""Every key, from the one table, and what the signs and words on the screen mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from tui import slash
from tui.keymap import GROUPS, Key, shown
from tui.panes.base import line, wrapped
from tui.screens.dialog import Dialog, also, hint_line

WANTED_MAX = 60  # characters that can be searched for
_WIDTH, _BESIDE = 86, 7  # columns of the box, and those of its frame and scrollbar
SIGNS = (
    ("● ◐ ○", "an expert resident on the card, in RAM, on disk"),
    ("✶ ◌", "an expert newly born, or dying for want of use"),
    ("━ ⠢ ◆ ★", "loss: smoothed, single steps, held-out, best held-out"),
    ("▴ ↶ ✶ ×", "on the loss chart: a checkpoint, a revert, a birth, a pruning"),
)
WORDS = (
    ("step", "One piece of text read, and one small change to the model for it"),
    ("pass", "Reading through all the text once"),
    ("bits a character", "Loss: how surprised it is by each next character. 8 is knowing nothing, lower "
     "is better. A character is a byte: a plain letter is one, é is two, 日 is three"),
    ("train", "Loss on the text just read, as it was met"),
    ("held-out", "Loss on text kept back and never learned from: what is understood, not known by heart"),
    ("row of thought", "One turn of the same layers over a character; hard characters take more of them"),
    ("expert", "A small network of its own; each character asks a few of them. All together are the pool"),
    ("resident", "On the card, in one of its slots, and so used at once. To load is to bring one there"),
    ("gate", "How loudly an expert speaks; it is learned"),
    ("newborn, dying", "A new expert is on trial until it is used enough; one no text asks for is pruned"),
    ("full expert", "An expert takes only so many characters a step. A request that meets a full one is "
     "dropped: the character goes without that expert"),
    ("window", "How many characters it sees at once. The gain is what looking further back is worth"),
    ("rate", "How fast it learns, as a share of what was set. Held-out readings move it: eased where they no "
     "longer fall, raised while they do"),
    ("lr", "What the last step took of the rate. Text read before may get a share of it, smaller each time, "
     "so that it is not just learned by heart"),
    ("grad", "The gradient's length: how strongly a text pulls. Above its limit it is clipped"),
    ("signal", "How much the steps agree: near 0% they are mostly noise, near 100% all say the same"),
    ("adapted, raw", "Replies in which repetition is held back, by a strength of 0 to 10, or as they come"),
    ("checkpoint", "The model on disk as it was at a step; what was read since is unsaved"),
)  # fmt: skip
TYPING = (
    ("enter", "Send"),
    ("^j", "A new line; shift+enter too, where the terminal tells it apart from enter"),
    ("↑ ↓", "On the first and last line: what you said before"),
    ("tab", "Complete a command that is begun"),
    ("⇞ ⇟", "Page up and page down move the conversation"),
)


class HelpScreen(Dialog[None]):
    """Scrolls; esc, enter or the key that opened it closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "cancel", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
        Binding("home", "scroll(-9999)", show=False),
        Binding("end", "scroll(9999)", show=False),
        Binding("slash", "search", show=False),
        Binding("n", "found(1)", show=False),
        Binding("N", "found(-1)", show=False),
    ]
    heading = "Keys, signs and words"
    hints = (
        ("↑ ↓", "scroll"), ("/", "search"), ("esc", "close"), ("n N", "on, back"), ("⇞ ⇟", "page"),
        ("home end", "its ends"),
    )  # fmt: skip
    asking = (("enter", "search"), ("esc", "leave the field"))  # while it is asked what for
    choices = (("close", "Close"),)

    def __init__(self, table: tuple[Key, ...], recorded: bool = False) -> None:
        super().__init__()
        self._table, self._recorded = table, recorded
        self._bindings = also(self._bindings, table, "help", "cancel")
        self._field = Input(id="help-wanted", placeholder="search for", max_length=WANTED_MAX, compact=True)
        self._wanted = ""
        self._whole = Content("")  # the text, with nothing marked
        self._found: list[tuple[int, int]] = []  # where in it, from first to last
        self._at = 0  # which of them was gone to

    def body(self) -> Iterable[Widget]:
        self._text = Static(id="help-text")
        yield self._text

    def on_mount(self) -> None:
        self._field.display = False
        self._field.cursor_blink = False
        self.query_one(".dialog").mount(self._field, before=".buttons")

    def on_resize(self, event: events.Resize) -> None:
        """Lines hang under their first word at any width."""
        width = min(_WIDTH, event.size.width * 24 // 25) - _BESIDE
        self._whole = help_text(self._table, width, typed=not self._recorded)
        self._look_for()

    def answer(self, choice: str) -> None:
        self.dismiss(None)

    def _fit(self, size: Size) -> None:
        super()._fit(size.with_height(size.height - self._field.display))

    # ------------------------------------------------------------------------------ searching

    def action_search(self) -> None:
        """Ask what for; what was searched for before can be changed."""
        self._field.display = True
        self._fit(self.size)
        self._field.focus()
        self._hints.update(hint_line(self.asking, self.size.width))

    def action_cancel(self) -> None:
        """Leave the field, or the screen."""
        if self._field.display:
            self._hide_field()
        else:
            self.dismiss(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._wanted, self._at = event.value.strip(), 0
        self._look_for()
        self._hide_field()
        self._go()

    def _hide_field(self) -> None:
        self._field.display = False
        self._fit(self.size)
        self._hints.update(hint_line(self.hints, self.size.width))
        self.query_one(Button).focus(scroll_visible=False)

    def action_found(self, by: int) -> None:
        """The next place, or the last one; past the ends it begins anew."""
        if self._found:
            self._at = (self._at + by) % len(self._found)
            self._mark()
            self._go()

    def _look_for(self) -> None:
        """Find what is wanted, capitals or not, also where a line ends within it."""
        words = r"\s+".join(map(re.escape, self._wanted.split()))
        places = re.finditer(words, self._whole.plain, re.IGNORECASE) if words else ()
        self._found = [match.span() for match in places]
        self._at = min(self._at, max(0, len(self._found) - 1))
        self._mark()

    def _mark(self) -> None:
        """Mark what was found by more than colour, and say how much it is."""
        text = self._whole
        for place, span in enumerate(self._found):
            text = text.stylize("reverse bold" if place == self._at else "underline bold", *span)
        self._text.update(text)
        told = f"{self._at + 1} of {len(self._found)}" if self._found else "not found"
        searched = f" · “{self._wanted}”: {told}" if self._wanted else ""
        self.query_one(".heading", Static).update(Content(f"{self.heading}{searched}"))

    def _go(self) -> None:
        """Scroll to what was gone to, with a little of what stands before."""
        if self._found:
            row = self._whole.plain.count("\n", 0, self._found[self._at][0])
            self._box.scroll_to(y=max(0, row - self._box.size.height // 3), animate=False)


def help_text(table: tuple[Key, ...], width: int = _WIDTH, typed: bool = True) -> Content:
    """The table in lines of `width`, a heading for each group, then the signs on the screen. `typed`: there
    is somebody to type to."""
    lines: list[Content] = []
    for group in GROUPS:
        keys = [entry for entry in table if entry.group == group and entry.keys]
        lines += [_heading(group)] if keys else []
        for key in keys:
            lines += _entry(" ".join(shown(one) for one in key.keys), key.told, width)
    lines += _typing(width) if typed else []
    lines.append(_heading("Signs"))
    for sign, meaning in SIGNS:
        lines += _entry(sign, meaning, width)
    lines.append(_heading("Words"))
    for word, meaning in WORDS:
        lines += _entry(word, meaning, width, 18)
    return Content("\n").join(lines)


def _typing(width: int) -> list[Content]:
    lines = [_heading("While typing")]
    for name, told in TYPING:
        lines += _entry(name, told, width)
    lines.append(_heading("Typed in the chat"))
    for key in slash.COMMANDS:
        lines += _entry(f"/{key.slash}", key.told, width, 18)
    return [*lines, *_entry("//text", "A text that begins with a slash", width, 18)]


def _heading(text: str) -> Content:
    return line((text, "bold $text-accent"))


def _entry(name: str, told: str, width: int, column: int = 10) -> list[Content]:
    """A name and what it does, which hangs under its first word."""
    rows = wrapped(told, max(12, width - column - 2))
    names = [f"  {name:<{column}}", *[" " * (column + 2)] * (len(rows) - 1)]
    return [line((left, "bold"), right) for left, right in zip(names, rows, strict=True)]
