"""The inspector: how the model reads a text, character by character."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from tui import words
from tui.panes.base import Drawn, Frame, Part, fitted, line, wrapped
from tui.panes.notice import Notice
from tui.panes.typed import TypedField
from tui.screens.dialog import LOW, hint_line
from tui.state import Inspected, Sign
from tui.styles import MUTED

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"  # a digit for every depth there is
_TYPING = (("enter", "read"), ("tab", "reading"), ("esc", "close"), ("^j", "new line"))
_CHOOSING = (("←→↑↓", "choose"), ("tab", "the text"), ("esc", "close"), ("enter", "read it again"))


class InspectScreen(ModalScreen[None]):
    """A field for the text, the reading below it, and what is known of the chosen character."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False, priority=True),
        Binding("enter", "read", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._field, self._reading, self._chosen = ProbeField(), Reading(), Chosen()
        self._hints = Static(hint_line(_TYPING, 80), id="probe-hints")
        self.notice = Notice()

    def compose(self) -> ComposeResult:
        yield self.notice
        with Vertical(id="inspector"):
            yield Static(Content("Inspector: how it reads a text"), classes="heading")
            yield self._field
            yield self._reading
            yield self._chosen
            yield self._hints

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._tell_keys(self.size.width)

    def _tell_keys(self, width: int) -> None:
        """Other keys act in the text than in the reading."""
        self._hints.update(hint_line(_CHOOSING if self.focused is self._reading else _TYPING, width - 2))

    def begin(self) -> None:
        """The next key is the text's."""
        self.set_focus(self._field)

    def on_resize(self, event: events.Resize) -> None:
        """On a low screen the text and its digits come first."""
        self.set_class(event.size.height < LOW, "-low")
        self._tell_keys(event.size.width)

    def heed(self, frame: Frame, said: Notice) -> None:
        """What is said at once has lines of its own above the text."""
        self.notice.repeat(said)
        self.notice.show(frame, self.size)

    def show(self, frame: Frame) -> None:
        """Hand the newest frame on."""
        self._reading.show(frame)
        self._chosen.place = self._reading.place
        self._chosen.show(frame)

    def action_read(self) -> None:
        """Read it once more: the model has learned meanwhile."""
        self._field.given()

    def on_reading_moved(self, event: Reading.Moved) -> None:
        event.stop()
        self._chosen.place = event.place
        self._chosen.refresh()


class ProbeField(TypedField):
    """Where the text is typed."""

    class Given(Message):
        """A text to read."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__("probe-text", "type a text; nothing of it is learned")

    def given(self) -> None:
        if self.text:
            self.post_message(self.Given(self.text))


class Reading(Drawn, can_focus=True):
    """The text, and under each character the rows it took."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1, 0)", show=False),
        Binding("right", "move(1, 0)", show=False),
        Binding("up", "move(0, -1)", show=False),
        Binding("down", "move(0, 1)", show=False),
        Binding("pageup", "move(0, -8)", show=False),
        Binding("pagedown", "move(0, 8)", show=False),
        Binding("home", "move(-9999, 0)", show=False),
        Binding("end", "move(9999, 0)", show=False),
    ]

    class Moved(Message):
        """Another character was chosen."""

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    def __init__(self) -> None:
        super().__init__("reading")
        self.place = 0  # of the chosen character
        self._of: Inspected | None = None

    def part(self, frame: Frame) -> tuple[object, ...]:
        waiting = any(pending.command.type == "probe" for pending in frame.state.pending)
        return (frame.state.inspected, waiting, frame.state.hello)

    def changed(self) -> None:
        found = self.frame.state.inspected if self.frame else None
        if found is not self._of:
            self._of, self.place = found, 0
        self.refresh()

    def action_move(self, signs: int, rows: int) -> None:
        """Choose another character, by characters or by lines."""
        found = self._of
        if found is None or not found.signs:
            return
        place = self.place + signs
        if rows:
            lines = broken(found.signs, self.content_size.width)
            row = next(r for r, (start, end) in enumerate(lines) if start <= self.place < end)
            start, end = lines[max(0, min(len(lines) - 1, row + rows))]
            place = min(end - 1, start + self.place - lines[row][0])
        self.place = max(0, min(len(found.signs) - 1, place))
        self.refresh()
        self.post_message(self.Moved(self.place))

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        found = frame.state.inspected
        if any(pending.command.type == "probe" for pending in frame.state.pending):
            return [line(("reading it after the step in flight…", MUTED))]
        if found is None or not found.signs:
            told = "Each character will stand here, coloured by the rows of thought it took."
            return wrapped(told, size.width, MUTED)
        most = max(frame.state.hello.max_rows if frame.state.hello else 1, *(s.rows for s in found.signs))
        lines = broken(found.signs, size.width)
        row = next(r for r, (start, end) in enumerate(lines) if start <= self.place < end)
        shown_rows = max(1, size.height // 2)
        first = max(0, min(len(lines) - shown_rows, row - shown_rows // 2))
        drawn: list[Content] = []
        for start, end in lines[first : first + shown_rows]:
            text: list[Part] = []
            digits: list[Part] = []
            for place in range(start, end):
                sign = found.signs[place]
                style = "reverse bold" if place == self.place else shade(sign.rows, most)
                text.append((sign.text, style))
                digits.append((digit(sign.rows).ljust(cell_len(sign.text)), MUTED))
            drawn += [line(*text), line(*digits)]
        return drawn


class Chosen(Drawn):
    """What is known of the chosen character, and of the whole."""

    def __init__(self) -> None:
        super().__init__("chosen-sign")
        self.place = 0

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state.inspected, frame.view.bits, frame.state.hello)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        found = frame.state.inspected
        if found is None or not found.signs:
            return []
        signs = found.signs
        most = frame.state.hello.max_rows if frame.state.hello else 0
        place = min(self.place, len(signs) - 1)
        following = signs[place + 1].text if place + 1 < len(signs) else ""
        lines = [
            _sign(place, signs[place], most, frame.view.bits, size.width),
            _experts(signs[place], size.width),
            _choices(signs[place], following, size.width),
            _whole(found, most, frame.view.bits, size.width),
        ]
        return lines[: size.height]


def broken(signs: tuple[Sign, ...], width: int) -> list[tuple[int, int]]:
    """The lines that fit `width` cells, as (first, end) places; a new line of the text ends one."""
    lines, start, used = [], 0, 0
    for place, sign in enumerate(signs):
        cells = cell_len(sign.text)
        if used and used + cells > width:
            lines.append((start, place))
            start, used = place, 0
        used += cells
        if sign.breaks:
            lines.append((start, place + 1))
            start, used = place + 1, 0
    return [*lines, (start, len(signs))] if start < len(signs) else lines


def digit(rows: int) -> str:
    """The rows of a character in one place: 1 to 9, then a to z."""
    return DIGITS[rows] if rows < len(DIGITS) else "+"


def shade(rows: int, most: int) -> str:
    """The more rows, the more colour."""
    share = (rows - 1) / (most - 1) if most > 1 else 0.0
    return f"on $primary {round(10 + 40 * max(0.0, min(1.0, share)))}%"


def _sign(place: int, sign: Sign, most: int, bits: bool, width: int) -> Content:
    rows = f"{sign.rows} of {words.plural(most, 'row')}" if most else words.plural(sign.rows, "row")
    items = [(0, line((f"‘{sign.text}’", "bold"), f" {rows}"))]
    if sign.nats is not None:
        unit = "bits" if bits else "nats"
        items.append((1, line("surprise ", (words.loss(sign.nats, bits, 2), "bold"), f" {unit}")))
    items.append((2, line((f"character {place + 1:,}", MUTED))))
    if sign.bytes > 1:
        items.append((3, line((f"{sign.bytes} bytes", MUTED))))
    return fitted(items, width, " · ")


def _experts(sign: Sign, width: int) -> Content:
    told = [line((f"{uid}", "bold"), (f" {words.share(weight)}", MUTED)) for uid, weight in sign.experts]
    if not told:
        return line(("experts not told", MUTED))
    return fitted([(-1, line("experts")), *enumerate(told)], width)


def _choices(sign: Sign, following: str, width: int) -> Content:
    """How it would go on from here, and how the text does."""
    items = [
        (0, line("raw would write ", (f"‘{sign.raw}’", "bold"))),
        (1, line("adapted ", (f"‘{sign.adapted}’", "bold"))),
    ]
    if following:
        items.append((2, line(("the text has ", MUTED), f"‘{following}’")))
    return fitted(items, width, " · ")


def _whole(found: Inspected, most: int, bits: bool, width: int) -> Content:
    signs = found.signs
    known = [sign.nats for sign in signs if sign.nats is not None]
    rows = f"{sum(s.rows for s in signs) / len(signs):.2f} rows"
    items = [(0, line((f"all {found.bytes:,} bytes: {rows}", MUTED)))]
    if found.unread:
        total = found.bytes + found.unread
        told = line((f"only {found.bytes:,} of {total:,} bytes were read", "$text-warning"))
        items = [(0, told), (1, line((rows, MUTED)))]
    if known:
        mean = sum(known) / found.bytes
        items.append((1, line((f"{words.loss(mean, bits, 2)} {'bits' if bits else 'nats'} a byte", MUTED))))
    if 1 < most < len(DIGITS) and most <= 12:
        legend = [(digit(row), shade(row, most)) for row in range(1, most + 1)]
        items.append((2, line(("rows ", MUTED), *legend)))
    return fitted(items, width, " · ")
