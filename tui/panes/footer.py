"""The lines at the bottom: which panes there are, and which keys act now."""

from __future__ import annotations

from functools import partial

from textual.content import Content
from textual.geometry import Size
from textual.style import Style

from tui.keymap import PANES, Key, asks, key_of, offered, shown
from tui.panes.base import Drawn, Frame, fitted, line
from tui.styles import MUTED

_OVER = ("ended", "died")  # nobody is there to ask


class Strip(Drawn):
    """The panes and their keys in one line, where only some of them are on the screen."""

    def __init__(self, table: tuple[Key, ...]) -> None:
        super().__init__("strip")
        self._keys = {name: key_of(table, f"pane_{name}") for name in PANES}
        self.chosen = PANES[0]

    def choose(self, name: str) -> None:
        """Mark the pane that is looked at."""
        self.chosen = name
        self.refresh()

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        full = sum(len(name) + len(key) + 3 for name, key in self._keys.items()) <= size.width
        parts = []
        for name, key in self._keys.items():
            here = name == self.chosen
            text = f" {key} {name} " if full or here else f" {key} "
            parts.append(_clickable(text, f"app.go({name!r})", "bold reverse" if here else MUTED))
        return [line(*parts)]


class Footer(Drawn):
    """The keys worth knowing here, most useful first, as many as fit."""

    def __init__(self, table: tuple[Key, ...]) -> None:
        super().__init__("footer")
        self.table = table
        self.place = PANES[0]  # the pane with the focus
        self.typing = False
        self.hints: tuple[tuple[str, str], ...] = ()  # of what lies over the panes

    def lie_under(self, hints: tuple[tuple[str, str], ...]) -> None:
        """Something with keys of its own lies over the panes; or, with none, no longer."""
        if hints != self.hints:
            self.hints = hints
            self.refresh()

    def focus_moved(self, place: str, typing: bool) -> None:
        """Other keys act now."""
        if (place, typing) != (self.place, self.typing):
            self.place, self.typing = place, typing
            self.refresh()

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.paused, frame.state.link, frame.state.reply is None)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        width = size.width - 2
        if self.hints:
            return [line(" ", fitted([(n, _key(*hint, "")) for n, hint in enumerate(self.hints)], width))]
        if self.typing:
            told = _while_typing(self.table, frame.state.reply is not None)
            items = [(rank, _key(key, label, "")) for rank, (key, label) in enumerate(told)]
        else:
            table = offered(self.table, frame.playing is not None)
            acting = sorted(filter(partial(self._acts, frame), table), key=lambda key: key.rank)
            items = [(key.rank, _key(shown(key.keys[0]), _label(key, frame), key.run)) for key in acting]
        if frame.state.link in _OVER:
            again = "begin again" if frame.playing else "start it again"
            restart = next(key for key in self.table if key.action == "restart")
            items.insert(0, (-1, _key(shown(restart.keys[0]), again, restart.run)))
        return [line(" ", fitted(items, width))]

    def _acts(self, frame: Frame, key: Key) -> bool:
        """Whether a key does something here, and is worth telling."""
        if asks(key) and frame.state.link in _OVER:
            return False
        if key.action == "command" and self.place == "log":  # it searches there
            return True
        places = ("app", "text", self.place, "replay" if frame.playing else "")
        return bool(key.rank) and key.where in places


def _while_typing(table: tuple[Key, ...], writing: bool) -> list[tuple[str, str]]:
    """The keys that act in the text field, while the model is writing or not."""
    leave, tab, quits = (key_of(table, one, typing=True) for one in ("leave_chat", "next_pane", "interrupt"))
    last = [(tab, "next pane"), (f"{quits} {quits}", "quit")]
    if writing:
        return [(leave, "stop the reply"), *last]
    return [("enter", "send"), (leave, "leave"), ("/", "commands"), ("^j", "new line"), *last]


def _label(key: Key, frame: Frame) -> str:
    if key.action == "command":
        return "search"
    return "resume" if key.action == "pause" and frame.paused else key.label


def _key(key: str, label: str, action: str) -> Content:
    parts = line((key, "bold $text-accent"), f" {label}")
    return parts.stylize(Style.from_meta({"@click": action})) if action else parts


def _clickable(text: str, action: str, style: str) -> Content:
    return line((text, style)).stylize(Style.from_meta({"@click": action}))
