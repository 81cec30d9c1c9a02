"""What there is to say at once, in lines of its own over the panes: it covers nothing that is read."""

from __future__ import annotations

from typing import NamedTuple

from textual.command import CommandPalette
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from tui.panes.base import Frame, line, wrapped

LEAST_SECONDS, A_LETTER = 5.0, 0.05  # how long it stands: longer, the longer it is
_MOST, _MOST_SLIM, _SLIM = 3, 6, 60  # lines, those of a screen narrower than so many columns
_PALETTE_TOP = 3  # lines that the palette leaves above itself
_LOW = 20  # lines of the screen below which it is never more than `_MOST`: the log has the rest
_SIGNS = {
    "warning": ("▲ ", "bold $text-warning"),
    "error": ("✖ ", "bold $text-error"),
}
_PLAIN = ("› ", "bold $text-accent")


class Said(NamedTuple):
    """One sentence, since when it stands and when it goes, by the app's clock. That may be set back: then it
    goes at once, and does not stay for as long as the clock was set back."""

    text: str
    severity: str
    since: float
    until: float


def seconds(text: str) -> float:
    """How long it takes to read."""
    return LEAST_SECONDS + A_LETTER * len(text)


class Notice(Static):
    """Sentences that stand for as long as it takes to read them, the newest lowest."""

    def __init__(self) -> None:
        super().__init__(Content(""), id="notice")
        self.display = False
        self._said: tuple[Said, ...] = ()
        self._shown: tuple[tuple[Said, ...], Size] = ((), Size())
        self.rows = 0  # lines that it takes

    def tell(self, said: Said) -> None:
        """One more; the same sentence again stands longer."""
        self._said = (*(one for one in self._said if one.text != said.text), said)

    def withdraw(self, text: str) -> None:
        """It is no longer so."""
        self._said = tuple(one for one in self._said if one.text != text)

    def repeat(self, other: Notice) -> None:
        """Tell what another tells."""
        self._said = other._said

    def show(self, frame: Frame, screen: Size) -> bool:
        """Draw those that still stand, on a screen of this size; whether there are any."""
        self._said = tuple(one for one in self._said if one.since <= frame.tick < one.until)
        if (self._said, screen) != self._shown:
            self._shown = (self._said, screen)
            self.display = bool(self._said)
            lines = _lines(self._said, screen)
            self.rows = len(lines)
            self.update(Content("\n").join(lines))
        return bool(self._said)


def heed_in_palette(palette: CommandPalette, frame: Frame, said: Notice) -> None:
    """Say it above Textual's palette, which makes room where that takes more lines than it leaves."""
    containers = palette.query("#--container")
    if not palette.is_attached or not containers:  # not yet composed, or going away
        return
    found = palette.query(Notice)
    notice = found.first() if found else Notice()
    if not found:
        palette.mount(notice)
    notice.repeat(said)
    notice.show(frame, palette.size)
    containers.first().styles.margin = (max(_PALETTE_TOP, notice.rows + 1), 0, 0, 0)


def _lines(said: tuple[Said, ...], screen: Size) -> list[Content]:
    width = screen.width - 2
    most = _MOST_SLIM if width < _SLIM and screen.height >= _LOW else _MOST
    lines: list[Content] = []
    for one in reversed(said):
        sign, style = _SIGNS.get(one.severity, _PLAIN)
        rows = wrapped(one.text, width - len(sign), most=most)
        if lines and len(lines) + len(rows) > most:
            break
        hung = (
            [line((sign, style), rows[0]), *(line(" " * len(sign), row) for row in rows[1:])] if rows else []
        )
        lines = hung + lines
    return lines
