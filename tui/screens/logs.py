"""The whole log, as it is on disk, and a search in it."""

from __future__ import annotations

import re
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from tui.logbook import Pages, written
from tui.panes.base import Drawn, Frame, fitted, line
from tui.panes.notice import Notice
from tui.screens.dialog import LOW, also
from tui.styles import MUTED

WANTED_MAX = 200  # characters that can be searched for
_HINTS = (
    (1, "/", "search"), (2, "n", "older"), (3, "N", "newer"), (4, "↑↓", "scroll"), (5, "⇞⇟", "page"),
    (6, "home end", "its ends"), (0, "esc", "close"),
)  # fmt: skip
_ASKING = ((1, "enter", "search"), (0, "esc", "leave the field"))


class LogScreen(ModalScreen[None]):
    """Opens at the newest line, and follows it until it is left. A search begins there and goes back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", show=False, priority=True),
        Binding("q", "dismiss", show=False),
        Binding("slash", "search", show=False),
        Binding("n", "found(-1)", show=False),
        Binding("N", "found(1)", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home", "scroll(-999999999)", show=False),
        Binding("end", "scroll(999999999)", show=False),
    ]

    def __init__(self, frame: Frame, searching: bool = False) -> None:
        super().__init__()
        self._searching = searching  # it opens with the question what for
        self._bindings = also(self._bindings, frame.table, "whole_log", "dismiss")
        self._lines = LogLines(Pages(frame.logbook) if frame.logbook else None)
        self._field = Input(id="log-wanted", placeholder="search for", max_length=WANTED_MAX, compact=True)
        self._place = Static(Content(""), id="log-place")
        self._told = ""
        self._hints = Static(Content(""), id="log-hints")
        self.notice = Notice()
        here = "The log of this session; no file keeps it"
        self._heading = Content(f"The whole log: {frame.logbook}" if frame.logbook else here)

    def compose(self) -> ComposeResult:
        yield self.notice
        with Vertical(id="whole-log"):
            yield Static(self._heading, classes="heading")
            yield self._lines
            yield self._field
            yield self._place
            yield self._hints

    def on_mount(self) -> None:
        self._field.display = False
        self._field.cursor_blink = False
        self._lines.focus()
        if self._searching:
            self.action_search()

    def on_resize(self, event: events.Resize) -> None:
        """On a low screen the lines come first."""
        self.set_class(event.size.height < LOW, "-low")
        self._hint(event.size.width)

    def _hint(self, width: int) -> None:
        """Tell the keys that act now."""
        told_now = _ASKING if self._field.display else _HINTS
        items = [(rank, line((key, "bold $text-accent"), f" {told}")) for rank, key, told in told_now]
        self._hints.update(fitted(items, width - 2))

    def heed(self, frame: Frame, said: Notice) -> None:
        """What is said at once has lines of its own above the log."""
        self.notice.repeat(said)
        self.notice.show(frame, self.size)

    def show(self, frame: Frame) -> None:
        """Take in what was added."""
        self._lines.show(frame)
        self._tell()

    def _tell(self) -> None:
        told = self._lines.where()
        if told != self._told:
            self._told = told
            self._place.update(Content.assemble((told, MUTED)))

    def action_search(self) -> None:
        """Ask what for; what was searched for before can be changed."""
        self._field.display = True
        self._field.focus()
        self._hint(self.size.width)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._lines.search(event.value)
        self._hide_field()

    def action_back(self) -> None:
        """Leave the field, or the screen."""
        if self._field.display:
            self._hide_field()
        else:
            self.dismiss()

    def _hide_field(self) -> None:
        self._field.display = False
        self._lines.focus()
        self._hint(self.size.width)
        self._tell()

    def action_found(self, by: int) -> None:
        """The next place that was found, towards the newer or the older lines."""
        self._lines.go(by)
        self._tell()

    def action_scroll(self, lines: int) -> None:
        """Move by lines of the log."""
        self._lines.scroll_lines(lines)
        self._tell()

    def action_page(self, pages: int) -> None:
        """Move by what is shown."""
        self._lines.scroll_lines(pages * max(1, self._lines.content_size.height - 1))
        self._tell()


class LogLines(Drawn, can_focus=True):
    """Lines of the log, the chosen one lowest. `pages` reads them from the file, if there is one."""

    def __init__(self, pages: Pages | None) -> None:
        super().__init__("log-lines")
        self._pages = pages
        self._texts: list[str] = []
        self._bottom = -1  # place of the lowest line that is shown
        self._wanted: re.Pattern[str] | None = None
        self._found: list[int] = []  # places, oldest first
        self._at = -1  # which of them was gone to

    def show(self, frame: Frame) -> None:
        before = self.frame.state.log if self.frame is not None else ()
        self.frame = frame
        if self._pages is not None:
            texts = self._texts + self._pages.read_on()
        elif frame.state.log is not before:
            texts = [written(entry) for entry in frame.state.log]
        else:
            return
        if len(texts) == len(self._texts) and texts[-1:] == self._texts[-1:]:
            return
        if self._bottom >= len(self._texts) - 1:
            self._bottom = len(texts) - 1
        self._texts = texts
        self._look_for()
        self.refresh()

    def scroll_lines(self, lines: int) -> None:
        """Move by so many; the ends hold."""
        self._put(self._bottom + lines)

    def _put(self, bottom: int) -> None:
        """Make a line the lowest, as far as there are lines above it to fill the screen."""
        size, least, lines = self.content_size, -1, 0
        while lines < size.height and least < len(self._texts) - 1:
            least += 1
            lines += len(self._shown(least, size.width))
        self._bottom = min(len(self._texts) - 1, max(least, bottom))
        self.refresh()

    def search(self, text: str) -> None:
        """Find every line that has `text` in it, capitals or not, and go to the newest that is not below."""
        self._wanted = re.compile(re.escape(text), re.IGNORECASE) if text else None
        self._at = -1
        self._look_for()
        below = sum(place <= self._bottom for place in self._found)
        if self._found:
            self._go_to((below or len(self._found)) - 1)
        self.refresh()

    def go(self, by: int) -> None:
        """To the one before or after; past the last it begins anew."""
        if self._found:
            self._go_to((self._at + by) % len(self._found))

    def _go_to(self, at: int) -> None:
        self._at = at
        place, height = self._found[at], self.content_size.height
        if not self._bottom - height // 2 < place <= self._bottom:
            self._put(place + height // 8)  # with a little of what follows
        self.refresh()

    def _look_for(self) -> None:
        wanted = self._wanted
        self._found = [n for n, text in enumerate(self._texts) if wanted.search(text)] if wanted else []
        self._at = min(self._at, len(self._found) - 1)

    def where(self) -> str:
        """Which line is the lowest, and what was found."""
        told = f"line {self._bottom + 1:,} of {len(self._texts):,}"
        if self._wanted is None:
            return told
        if not self._found:
            return f"{told} · nothing found"
        this = f", this is {self._at + 1:,}" if self._at >= 0 else ""
        return f"{told} · found in {len(self._found):,}{this}"

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        lines: list[Content] = []
        place = self._bottom
        while place >= 0 and len(lines) < size.height:
            lines = self._shown(place, size.width) + lines
            place -= 1
        return lines[-size.height :] or [line(("nothing yet", MUTED))]

    def _shown(self, place: int, width: int) -> list[Content]:
        """A line in as many as it takes, what was searched for marked by more than colour."""
        text = Content(self._texts[place])
        gone_to = self._at >= 0 and self._found[self._at] == place
        if self._wanted is not None:
            for match in self._wanted.finditer(self._texts[place]):
                text = text.stylize("reverse bold" if gone_to else "underline bold", *match.span())
        return list(text.wrap(max(8, width))) or [Content("")]
