"""What the dialogs share: a box in the middle, a few buttons, esc for the harmless way out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Static

from tui.keymap import Key
from tui.panes.base import Frame, fitted, line
from tui.panes.notice import Notice

LOW = 20  # lines of the terminal below which a dialog has no frame and no empty lines
_HEADER = 1  # lines of it over what is said at once
_AROUND, _AROUND_LOW = 9, 4  # lines that heading, buttons, the frame and the keys take
Hint = tuple[str, str]  # a key, and what it does
_BESIDE = 6  # columns around the label of a button
Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A question. `choices` are (id, label); the first has the focus. What does not fit is scrolled to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel", show=False),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
        Binding("pageup", "scroll(-5)", show=False),
        Binding("pagedown", "scroll(5)", show=False),
    ]
    heading = ""
    choices: tuple[tuple[str, str], ...] = ()
    hints: tuple[Hint, ...] = (("enter", "choose"), ("← →", "another"), ("esc", "cancel"))  # its keys

    def __init__(self) -> None:
        super().__init__()
        self._box = VerticalScroll(classes="body", can_focus=False)
        self._hints = Static(Content(""), classes="hints")
        self.notice = Notice()

    def compose(self) -> ComposeResult:
        yield self.notice
        with Vertical(classes="dialog"):
            yield Static(Content(self.heading), classes="heading")
            with self._box:
                yield from self.body()
            with Horizontal(classes="buttons"):
                for id, label in self.choices:
                    yield (button := Button(Content(label), id=id, compact=True))
                    button.active_effect_duration = 0.0  # while it lasts, a second press would be lost
        yield self._hints

    def body(self) -> Iterable[Widget]:
        """What stands between heading and buttons. Keep what is to change: it may be asked to before it can
        be found on the screen."""
        return ()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)
        self._hints.update(hint_line(self.hints, event.size.width))

    def heed(self, frame: Frame, said: Notice) -> None:
        """What is said at once stands above the question, where the panes have it, and covers none of it."""
        rows = self.notice.rows
        self.notice.repeat(said)
        self.notice.show(frame, self.size)
        if rows != self.notice.rows:
            self._fit(self.size)

    def _fit(self, size: Size) -> None:
        """The buttons stay on the screen, however low it is."""
        low = size.height < LOW
        slim = size.width < sum(len(label) + _BESIDE for _, label in self.choices) + _BESIDE
        self.set_class(low, "-low")
        self.set_class(slim, "-slim")  # a button a line
        room = size.height - (_AROUND_LOW if low else _AROUND)
        if self.notice.rows:
            room -= self.notice.rows + _HEADER
        room -= len(self.choices) - 1 if slim else 0
        self._box.styles.max_height = max(1, room)

    def show(self, frame: Frame) -> None:
        """The state moved on while the question stands."""

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.answer(event.button.id or "")

    def answer(self, choice: str) -> None:
        """A button was pressed."""
        raise NotImplementedError

    def action_cancel(self) -> None:
        """The harmless way out."""
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        """Move the text."""
        self._box.scroll_relative(y=lines, animate=False)


def also(bindings: BindingsMap, table: Iterable[Key], action: str, does: str) -> BindingsMap:
    """The bindings, and the keys that an action of the app has now, to do something of the screen's own."""
    keys = next(key.keys for key in table if key.action == action)
    return BindingsMap.merge([bindings, BindingsMap([Binding(key, does, show=False) for key in keys])])


def hint_line(hints: tuple[Hint, ...], width: int) -> Content:
    """Keys and what they do in one line, as many as fit, the first the last to go."""
    items = [(rank, line((key, "bold $text-accent"), f" {told}")) for rank, (key, told) in enumerate(hints)]
    return line(" ", fitted(items, width - 2))
