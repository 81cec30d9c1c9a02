"""What every pane is: a framed rectangle that draws one part of the state, and only when it changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual.content import Content
from textual.css.styles import RulesMap
from textual.geometry import Size
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget

from tui.keymap import TABLE, Key, key_of
from tui.recording import Playing
from tui.state import AppState

_EDGE = 2  # columns that a frame's lower edge has less than the pane, for its own ends
Part = str | Content | tuple[str, str]


@dataclass(frozen=True)
class View:
    """How the state is looked at; chosen with keys, known to no worker."""

    bits: bool = True  # losses in bits, else in nats
    charts: bool = True  # draw the loss chart, not its figures alone (plots.enabled)
    axes: str = "plain"  # plain | log | log-log, of the loss chart
    recent: bool = False  # the loss chart's last stretch only
    manner: str = "adapted"  # adapted | raw | both, of the next reply
    strength: float = 2.5  # of the suppression
    reply_chars: int = 400  # of the next reply, at most
    log_filter: str = "all"  # all | warnings | a topic


@dataclass(frozen=True)
class Frame:
    """All that a pane may look at while drawing."""

    state: AppState
    view: View
    now: float  # Unix time, of the run that is shown
    tick: float = 0.0  # seconds on the app's own clock
    playing: Playing | None = None  # where the recording is, if it is one
    logbook: str = ""  # the file that keeps the whole log
    table: tuple[Key, ...] = TABLE  # the keys as the user has them

    def key(self, action: str, typing: bool = False) -> str:
        """The key of an action, to be named in a sentence."""
        return key_of(self.table, action, typing)

    @property
    def paused(self) -> bool:
        """Whether what is shown stands still until a key is pressed."""
        return self.playing.paused if self.playing else self.state.phase.phase == "paused"


class Lines(Visual):
    """Lines of styled text, as they are: nothing is wrapped and nothing is parsed."""

    def __init__(self, lines: Sequence[Content]) -> None:
        self.lines = lines

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        strips = []
        for line in self.lines[:height]:
            parts = line.render(style, end="", parse_style=options.get_style)
            segments = [Segment(text, (style + own).rich_style) for text, own in parts]
            strips.append(Strip(segments).crop(0, width))
        return strips

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return len(self.lines)


class Drawn(Widget):
    """A widget that draws itself from the newest frame, at most `hertz` times a second."""

    hertz: ClassVar[str] = "figures"  # which of the refresh rates it follows: figures | charts | chat

    def __init__(self, id: str, seconds: float = 0.0) -> None:
        super().__init__(id=id)
        self.frame: Frame | None = None
        self.seconds = seconds
        self._drawn_at = float("-inf")
        self._drawn: tuple[object, ...] | None = None

    def part(self, frame: Frame) -> tuple[object, ...]:
        """What is drawn: while each of these is the same object, nothing is drawn again."""
        return (frame.state, frame.view)

    def show(self, frame: Frame) -> None:
        """Take the newest frame and draw it if it is due and differs."""
        part = self.part(frame)
        before = self._drawn
        if before is not None and all(a is b or a == b for a, b in zip(part, before, strict=True)):
            self.frame = frame
            return
        asked_for = self.frame is not None and frame.view is not self.frame.view  # a key was pressed
        if 0.0 <= frame.tick - self._drawn_at < self.seconds and before is not None and not asked_for:
            return
        self.frame, self._drawn, self._drawn_at = frame, part, frame.tick
        self.changed()

    def changed(self) -> None:
        """The part of the state that is shown here is another one."""
        self.refresh()

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        """The lines to show in `size` cells."""
        raise NotImplementedError

    def render(self) -> Visual:
        frame, size = self.frame, self.content_size
        if frame is None or size.width < 1 or size.height < 1:
            return Lines([])
        return Lines(self.draw(frame, size))


class Pane(Drawn, can_focus=True):
    """One pane, with the key that leads to it. `scrolls` says whether the arrow keys move its lines."""

    NAME: ClassVar[str] = ""
    scrolls: ClassVar[bool] = False

    def __init__(self, key: str, seconds: float = 0.0) -> None:
        super().__init__(self.NAME, seconds)
        self.border_title = Content(f"{key} {self.NAME}")
        self._told = ""

    def changed(self) -> None:
        self._subtitle()
        self.refresh()

    def on_resize(self) -> None:
        self._subtitle()

    def subtitle(self, frame: Frame, size: Size) -> str:
        """A few words in the frame's lower edge, `size.width` columns at most."""
        return ""

    def _subtitle(self) -> None:
        """Setting a border's text draws it again, so only another text is set."""
        size = self.content_size
        room = Size(max(0, size.width - _EDGE), size.height)
        told = self.subtitle(self.frame, room) if self.frame is not None else ""
        if told != self._told:
            self._told = told
            self.border_subtitle = Content(told)

    def scroll_lines(self, lines: int) -> None:
        """Move what is shown by `lines` (negative: towards the beginning)."""

    def on_mouse_scroll_down(self) -> None:
        self.scroll_lines(3)

    def on_mouse_scroll_up(self) -> None:
        self.scroll_lines(-3)


# ------------------------------------------------------------------------------------- making lines


def line(*parts: Part) -> Content:
    """One line out of texts and (text, style) pairs; never parsed as markup."""
    return Content.assemble(*parts)


def wrapped(text: str, width: int, style: str = "", most: int = 99) -> list[Content]:
    """`text` in at most `most` lines of `width`; what is left out is cut behind a word, with an ellipsis."""
    if width < 1 or not text or most < 1:
        return []
    lines = list(Content.assemble((text, style)).wrap(width))
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], _with_ellipsis(lines[most - 1].rstrip(), width)]


def _with_ellipsis(text: Content, width: int) -> Content:
    """`text` with a space and an ellipsis behind its last word that leaves room for them."""
    while text.cell_length > width - 2 and " " in text.plain:
        text = text[: text.plain.rindex(" ")].rstrip()
    whole = text.cell_length <= width - 2
    return line(text, " …") if whole else text.truncate(max(1, width), ellipsis=True)


def fitted(items: Iterable[tuple[int, Content]], width: int, gap: str = "  ") -> Content:
    """The items in one line of `width`, those of the highest rank left out until they fit."""
    kept = list(items)
    while kept:
        total = sum(item.cell_length for _, item in kept) + len(gap) * (len(kept) - 1)
        if total <= width or len(kept) == 1:
            break
        kept.remove(max(kept, key=lambda entry: entry[0]))
    joined = Content(gap).join([item for _, item in kept])
    return joined if joined.cell_length <= width else _with_ellipsis(joined, width)


def flowed(items: Iterable[tuple[int, Content]], width: int, most: int, gap: str = "  ") -> list[Content]:
    """The items in at most `most` lines of `width`, none broken; those of the highest rank give way."""
    kept = list(items)
    while True:
        lines: list[Content] = []
        for _, item in kept:
            if lines and lines[-1].cell_length + len(gap) + item.cell_length <= width:
                lines[-1] = line(lines[-1], gap, item)
            else:
                lines.append(item)
        if len(lines) <= max(1, most) or len(kept) <= 1:
            return [one if one.cell_length <= width else _with_ellipsis(one, width) for one in lines]
        kept.remove(max(kept, key=lambda entry: entry[0]))


def spread(left: Content, right: Content, width: int) -> Content:
    """Two contents at both ends of a line; the right one goes when there is no room."""
    gap = width - left.cell_length - right.cell_length
    if gap < 2:
        return left if left.cell_length <= width else _with_ellipsis(left, width)
    return Content.assemble(left, " " * gap, right)
