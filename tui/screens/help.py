"""Every key, from the one table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from tui import slash
from tui.keymap import GROUPS, Key, shown
from tui.screens.dialog import Dialog

SIGNS = (
    ("● ◐ ○", "an expert resident on the card, in RAM, on disk"),
    ("✶ ◌", "an expert newly born, or dying for want of use"),
    ("━ ⠢ ◆ ★", "loss: smoothed, single steps, held-out, best held-out"),
    ("▴ ↶", "on the loss chart: a checkpoint, a revert"),
)
TYPING = (
    ("enter", "Send"),
    ("^j", "A new line; shift+enter too, where the terminal tells it apart from enter"),
    ("↑ ↓", "On the first and last line: what you said before"),
    ("tab", "Complete a command that is begun"),
    ("⇞ ⇟", "Page up and page down move the conversation"),
)


class HelpScreen(Dialog[None]):
    """Scrolls; esc, ? or enter closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1,q", "cancel", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
    ]
    heading = "Keys"
    choices = (("close", "Close"),)

    def __init__(self, table: tuple[Key, ...]) -> None:
        super().__init__()
        self._table = table

    def body(self) -> Iterable[Widget]:
        yield Static(help_text(self._table))

    def answer(self, choice: str) -> None:
        self.dismiss(None)


def help_text(table: tuple[Key, ...]) -> Content:
    """The table as text, a heading for each group, then the signs on the screen."""
    parts: list[str | tuple[str, str]] = []
    for group in GROUPS:
        parts.append((f"{group}\n", "bold $text-accent"))
        for key in (entry for entry in table if entry.group == group and entry.keys):
            parts += _entry(" ".join(shown(one) for one in key.keys), key.told)
    parts.append(("While typing\n", "bold $text-accent"))
    for name, told in TYPING:
        parts += _entry(name, told)
    parts.append(("Typed in the chat\n", "bold $text-accent"))
    for key in slash.COMMANDS:
        parts += _entry(f"/{key.slash}", key.told, 18)
    parts += _entry("//text", "A text that begins with a slash", 18)
    parts.append(("Signs\n", "bold $text-accent"))
    for sign, meaning in SIGNS:
        parts += _entry(sign, meaning)
    return Content.assemble(*parts)


def _entry(name: str, told: str, width: int = 10) -> list[str | tuple[str, str]]:
    return [(f"  {name:<{width}}", "bold"), f"{told}\n"]
