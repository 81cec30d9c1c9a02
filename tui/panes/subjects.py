"""What was read of each subject, and what reading it gained or cost elsewhere."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from tui import words
from tui.panes.base import Frame, Pane, fitted, line, wrapped
from tui.state import BITS, Subject
from tui.styles import MUTED

_HEADING, _HEADING_SHORT = "  known, not read now ({} measures it)", "  known, not read now"
_MEANT = (
    "train: the loss on what was just read. held-out: on text kept back from it. change: of the latter since "
    "it was first measured, ▼ a gain, ▲ a loss; pale where it may be chance."
)


class SubjectsPane(Pane):
    """A line each: read, train and held-out loss, change of that since it was first measured."""

    NAME = "subjects"
    scrolls = True

    def __init__(self, key: str, seconds: float = 0.0) -> None:
        super().__init__(key, seconds)
        self._top = 0

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state.subjects, frame.state.metrics.subject, frame.view.bits)

    def scroll_lines(self, lines: int) -> None:
        """Move the list."""
        self._top = max(0, self._top + lines)
        self.changed()

    def subtitle(self, frame: Frame, size: Size) -> str:
        rows, room = _rows(frame), max(1, size.height - 1)
        self._top = max(0, min(self._top, len(rows) - room))
        files = frame.state.corpus.files if frame.state.corpus else 0
        told = [words.plural(files, "file"), words.unit(frame.view.bits)]
        if len(rows) > room:
            told.insert(0, f"{self._top + 1}–{self._top + room} of {len(rows)}")
        worse = sum(_is_worse(subject) for subject in _split(frame.state.subjects)[1])
        if worse:
            told.insert(0, f"▲ worse in {worse} not read now")
        return (
            fitted([(n, Content(one)) for n, one in enumerate(told)], size.width, " · ").plain if rows else ""
        )

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        rows = _rows(frame)
        if not rows:
            return [line(("looking through the folder…", MUTED))]
        room = max(1, size.height - 1)
        shown = rows[self._top : self._top + room]
        columns = _columns(size.width)
        name = max(8, size.width - 2 - sum(width + 1 for _, width in columns))
        head = line((f"  {'':<{name}}", ""), *((f" {title:>{width}}", MUTED) for title, width in columns))
        told = _HEADING.format(frame.key("evaluate"))
        heading = Content(told if size.width >= len(told) else _HEADING_SHORT)
        lines = [head, *(_row(row, name, columns, frame) if row else heading.stylize(MUTED) for row in shown)]
        meant = [Content(), *wrapped(_MEANT, size.width, MUTED)]
        return lines + meant if len(lines) + len(meant) <= size.height else lines


def _rows(frame: Frame) -> list[Subject | None]:
    """What is read, then, below a heading, what the model knows besides."""
    here, elsewhere = _split(frame.state.subjects)
    return [*here, *([None, *elsewhere] if elsewhere else [])]


def _split(subjects: tuple[Subject, ...]) -> tuple[list[Subject], list[Subject]]:
    """What is read now, and what is not; where nothing tells, all of it is."""
    here = [subject for subject in subjects if subject.here]
    return (here, [subject for subject in subjects if not subject.here]) if here else (list(subjects), [])


def _columns(width: int) -> list[tuple[str, int]]:
    columns = [("read", 7), ("train", 6), ("held-out", 8), ("change", 8)]
    if width >= 64:
        columns.insert(0, ("of", 7))
    if width < 46:
        columns = [entry for entry in columns if entry[0] != "read"]
    if width < 36:
        columns = [entry for entry in columns if entry[0] != "train"]
    return columns


def _row(subject: Subject, name: int, columns: list[tuple[str, int]], frame: Frame) -> Content:
    bits = frame.view.bits
    current = frame.state.metrics.subject == subject.name
    cells = {
        "of": (words.count(subject.chars) if subject.chars else "–", MUTED),
        "read": (words.count(subject.read), ""),
        "train": (words.loss(subject.train, bits), ""),
        "held-out": (words.loss(subject.held, bits), "bold"),
        "change": _change(subject, bits),
    }
    label = Content(subject.name).truncate(name, ellipsis=True)
    label = label.pad_right(max(0, name - label.cell_length))
    parts = [(f" {cells[title][0]:>{width}}", cells[title][1]) for title, width in columns]
    return line(("▸ " if current else "  ", "$text-accent"), label, *parts)


def _is_worse(subject: Subject) -> bool:
    """Its held-out text is read worse than when it was first measured, by more than chance explains."""
    if subject.held is None or subject.before is None:
        return False
    return subject.held - subject.before > (subject.noise or 0.0)


def _change(subject: Subject, bits: bool) -> tuple[str, str]:
    """Held-out now against the session's start; an arrow down is a gain."""
    if subject.held is None or subject.before is None:
        return ("–", MUTED)
    change = (subject.held - subject.before) * (BITS if bits else 1.0)
    if abs(change) < 0.0005:
        return ("= 0.000", MUTED)
    within = abs(subject.held - subject.before) <= (subject.noise or 0.0)
    glyph = "▼" if change < 0 else "▲"
    style = MUTED if within else "$text-success" if change < 0 else "$text-error"
    return (f"{glyph} {abs(change):.3f}", style)
