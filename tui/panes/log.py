"""The log: what happened, in sentences, newest last."""

from __future__ import annotations

import time

from textual.content import Content
from textual.geometry import Size

from tui.panes.base import Frame, Pane, line
from tui.state import LogLine
from tui.styles import MUTED

TOPICS = ("all", "warnings", "held-out", "checkpoint", "pool", "window", "rate", "files", "chat")
_GLYPHS = {"info": ("·", MUTED), "warning": ("▲", "$text-warning"), "error": ("✖", "$text-error")}
_INDENT = 8  # columns of the time and the glyph


class LogPane(Pane):
    """The newest lines that fit; scrolled back, it stays where it was put."""

    NAME = "log"
    scrolls = True

    def __init__(self, key: str, seconds: float = 0.0) -> None:
        super().__init__(key, seconds)
        self._bottom: int | None = None  # serial of the last line shown while scrolled back

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state.log, frame.view.log_filter)

    def scroll_lines(self, lines: int) -> None:
        """Move by whole entries; past the newest it follows again."""
        entries = kept(self.frame) if self.frame else []
        if not entries:
            return
        place = self._place(entries) + lines
        self._bottom = None if place >= len(entries) - 1 else entries[max(0, place)].serial
        self.changed()

    def subtitle(self, frame: Frame, size: Size) -> str:
        entries = kept(frame)
        chosen = "" if frame.view.log_filter == "all" else frame.view.log_filter
        behind = len(entries) - 1 - self._place(entries)
        below = f"{behind} newer below" if entries and behind else ""
        told = [part for part in (chosen, below) if part]
        room = size.width - sum(len(part) + 3 for part in told)
        key = frame.key("whole_log")
        whole = (f"{key}: all of it, from {frame.logbook}" if frame.logbook else "", f"{key}: all of it")
        return " · ".join([*told, *[text for text in whole if text and len(text) <= room][:1]])

    def _place(self, entries: list[LogLine]) -> int:
        if self._bottom is None:
            return len(entries) - 1
        older = sum(entry.serial <= self._bottom for entry in entries)
        return max(0, older - 1)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        entries = kept(frame)
        if not entries:
            return [line(("nothing yet", MUTED))]
        last = self._place(entries)
        lines: list[Content] = []
        while last >= 0 and len(lines) < size.height:
            lines = _shown(entries[last], size.width) + lines
            last -= 1
        return lines[-size.height :]


def kept(frame: Frame) -> list[LogLine]:
    """The entries that pass the filter."""
    wanted = frame.view.log_filter
    if wanted == "all":
        return list(frame.state.log)
    if wanted == "warnings":
        return [entry for entry in frame.state.log if entry.level != "info"]
    return [entry for entry in frame.state.log if entry.topic == wanted]


def clock(at: float) -> str:
    """Hours and minutes of a Unix time, local; a placeholder for times that cannot be."""
    try:
        return time.strftime("%H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "--:--"


def _shown(entry: LogLine, width: int) -> list[Content]:
    """One entry in as many lines as it takes, hanging under its first word."""
    glyph, style = _GLYPHS[entry.level]
    text = entry.text if entry.times == 1 else f"{entry.text} (×{entry.times:,})"
    body = Content.assemble((text, style if entry.level != "info" else "")).wrap(max(8, width - _INDENT))
    first = line((f"{clock(entry.at)} ", MUTED), (f"{glyph} ", style), body[0])
    return [first, *(line(" " * _INDENT, rest) for rest in body[1:])]
