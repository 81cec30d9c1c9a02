"""The pool as a map: one cell an expert, where it is and how it fares, by glyph as well as colour."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from tui import words
from tui.charts import BLOCKS
from tui.panes import pool_words
from tui.panes.base import Frame, Pane, Part, line
from tui.panes.pool_words import CAME, GLYPHS, LEFT, STYLES
from tui.state import Expert, PoolView
from tui.styles import FAINT, MUTED

_DECISION = 5  # lines at most, unless the pane has the whole screen
_ROOMY = 14  # lines from which the map is explained


class PoolPane(Pane):
    """Every expert, what the last step used, what came and went, and the last decision."""

    NAME = "pool"

    def __init__(self, key: str, seconds: float = 0.0) -> None:
        super().__init__(key, seconds)
        self._uid: int | None = None  # of the selected expert
        self._columns = 1

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state.pool, frame.state.growth, frame.state.births, frame.state.hello)

    @property
    def selected(self) -> Expert | None:
        """The expert that was chosen with the arrow keys, while it lives."""
        experts = self.frame.state.pool.experts if self.frame else ()
        return next((expert for expert in experts if expert.uid == self._uid), None)

    def select(self, columns: int, rows: int) -> None:
        """Move the selection on the map."""
        experts = self.frame.state.pool.experts if self.frame else ()
        if not experts:
            return
        uids = [expert.uid for expert in experts]
        if self._uid not in uids:
            place = 0
        else:
            place = uids.index(self._uid) + columns + rows * self._columns
        self._uid = uids[max(0, min(len(uids) - 1, place))]
        self.refresh()

    def subtitle(self, frame: Frame, size: Size) -> str:
        hello, experts = frame.state.hello, frame.state.pool.experts
        slots = f" · {hello.resident} slots" if hello and hello.resident else ""
        return f"{words.plural(len(experts), 'expert')}{slots}" if experts else ""

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        pool, width = frame.state.pool, size.width
        if not pool.experts:
            return [line(("not known yet", MUTED))]
        chosen = self.selected
        flow, described = pool_words.flow(pool, width), pool_words.described(chosen, pool, width)
        roomy = size.height >= _ROOMY
        reason = min(_DECISION, pool_words.reason_lines(frame, width))
        while flow and size.height - 1 - len(flow) - len(described) < reason + 2:  # it matters more
            flow.pop()
        below = [*flow, *described]
        spare = size.height - 1 - len(below)  # beside the counts
        least = min(_rows(pool, width), max(1, spare // 2, spare - reason if not roomy else 0))  # for the map
        least = min(least, max(1, spare - reason))
        below += pool_words.decision(frame, width, spare - least if roomy else min(_DECISION, spare - least))
        cells = self._map(pool, width, max(1, size.height - 1 - len(below)), chosen)
        lines = [pool_words.counts(pool, width), *cells, *below]
        if roomy:
            lines += pool_words.explained(frame, width, size.height - len(lines))
        return lines[: size.height]

    def _map(self, pool: PoolView, width: int, room: int, chosen: Expert | None) -> list[Content]:
        """The cells in at most `room` lines, as wide as fit; those around the selection when none do."""
        experts = pool.experts
        digits = _digits(pool)
        # with its number, a block for its use and what it did, with a space, or bare
        cell = next((w for w in (digits + 4, 2) if -(-len(experts) // max(1, width // w)) <= room), 1)
        self._columns = max(1, width // cell)
        most = max((expert.use for expert in experts), default=0.0) or 1.0
        rows = -(-len(experts) // self._columns)
        first = 0
        if rows > room and chosen is not None:
            first = max(0, min(rows - room, experts.index(chosen) // self._columns - room // 2))
        lines = []
        for row in range(first, min(rows, first + room)):
            parts: list[Part] = []
            for expert in experts[row * self._columns : (row + 1) * self._columns]:
                parts += _cell(expert, cell, digits, most, expert is chosen)
            lines.append(line(*parts))
        return lines


def _digits(pool: PoolView) -> int:
    return len(str(max(expert.uid for expert in pool.experts)))


def _rows(pool: PoolView, width: int) -> int:
    """Lines of the map with everything in its cells."""
    return -(-len(pool.experts) // max(1, width // (_digits(pool) + 4)))


def _cell(expert: Expert, width: int, digits: int, most: float, chosen: bool) -> list[Part]:
    """One expert: its glyph and, with room, its number, how much it is used, and whether it just moved."""
    letter = pool_words.kind(expert)
    style = f"bold {STYLES[letter]}" if expert.admitted else STYLES[letter]
    style = f"reverse {style}" if chosen else style
    if width <= 2:
        return [(GLYPHS[letter], style), " " * (width - 1)]
    block = BLOCKS[max(1, min(8, round(8 * expert.use / most)))] if expert.use > 0 else " "
    number = "bold" if expert.admitted else MUTED
    moved: Part = CAME if expert.arrived else LEFT if expert.left else " "
    return [(GLYPHS[letter], style), (f"{expert.uid:>{digits}}", number), (block, FAINT), moved, " "]
