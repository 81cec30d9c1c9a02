"""The pool as a map: one cell an expert, where it is and how it fares, by glyph as well as colour."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from tui import words
from tui.charts import BLOCKS
from tui.panes.base import Frame, Pane, Part, fitted, line, wrapped
from tui.state import Expert, PoolView
from tui.styles import FAINT, MUTED

GLYPHS = {"R": "●", "M": "◐", "D": "○", "n": "✶", "d": "◌"}
STYLES = {"R": "$success", "M": "$primary", "D": MUTED, "n": "bold $warning", "d": "$error"}
_PLACES = {"R": "resident", "M": "in RAM", "D": "on disk"}
_COUNTS = (
    ("resident", "R", "resident"), ("ram", "M", "in RAM"), ("disk", "D", "on disk"),
    ("newborn", "n", "newborn"), ("dying", "d", "dying"),
)  # fmt: skip
_BELOW = 6  # lines kept for the figures under the map


class PoolPane(Pane):
    """Every expert, what the last step used, what came and went, and the last decision."""

    NAME = "pool"

    def __init__(self, number: int, seconds: float = 0.0) -> None:
        super().__init__(number, seconds)
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
            return [line(("no experts told yet", MUTED))]
        top = [_counts(pool, width)]
        chosen = self.selected
        below = [*_flow(pool, width), *_described(chosen, pool, width)]
        below += _decision(frame, width, size.height - len(top) - len(below) - 1)
        room = max(1, size.height - len(top) - min(len(below), _BELOW))
        cells = self._map(pool, width, room, chosen)
        return [*top, *cells, *below][: size.height]

    def _map(self, pool: PoolView, width: int, room: int, chosen: Expert | None) -> list[Content]:
        """The cells in at most `room` lines, as wide as fit; those around the selection when none do."""
        experts = pool.experts
        digits = len(str(max(expert.uid for expert in experts)))
        # with its number and a block for its use, with a space, or bare
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


def _cell(expert: Expert, width: int, digits: int, most: float, chosen: bool) -> list[Part]:
    """One expert: its glyph and, with room, its number and how much it is used."""
    kind = expert.life if expert.life in "nd" else expert.tier
    style = f"bold {STYLES[kind]}" if expert.admitted else STYLES[kind]
    style = f"reverse {style}" if chosen else style
    if width <= 2:
        return [(GLYPHS[kind], style), " " * (width - 1)]
    block = BLOCKS[max(1, min(8, round(8 * expert.use / most)))] if expert.use > 0 else " "
    number = "bold" if expert.admitted else MUTED
    return [(GLYPHS[kind], style), (f"{expert.uid:>{digits}}", number), (block, FAINT), "  "]


def _counts(pool: PoolView, width: int) -> Content:
    items = []
    for rank, (name, kind, told) in enumerate(_COUNTS):
        number = pool.counts.get(name, 0)
        if number or rank < 3:
            items.append((rank, line((GLYPHS[kind], STYLES[kind]), " ", (str(number), "bold"), f" {told}")))
    return fitted(items, width)


def _flow(pool: PoolView, width: int) -> list[Content]:
    """What the last step moved, and how well paging does."""
    came = line(("→ came ", "$text-success"), _uids(pool.arrived))
    went = line(("← left ", "$text-warning"), _uids(pool.left))
    items = []
    if pool.loads_per_step is not None:
        items.append((0, line((f"{pool.loads_per_step:.1f}", "bold"), " loads a step")))
    if pool.ram_hit_rate is not None:
        items.append((1, line((words.share(pool.ram_hit_rate), "bold"), " found in RAM")))
    if pool.dropped_share is not None:
        items.append((2, line((words.share(pool.dropped_share), "bold"), " dropped")))
    moved = [fitted([(0, came), (1, went)], width)] if pool.arrived or pool.left else []
    return [*moved, *([fitted(items, width)] if items else [])]


def _uids(uids: tuple[int, ...]) -> str:
    if not uids:
        return "none"
    shown = " ".join(str(uid) for uid in uids[:6])
    return f"{shown} +{len(uids) - 6}" if len(uids) > 6 else shown


def _described(expert: Expert | None, pool: PoolView, width: int) -> list[Content]:
    """What is known of the selected expert."""
    if expert is None:
        return []
    kind = expert.life if expert.life in "nd" else expert.tier
    life = {"n": ", newborn", "d": ", dying"}.get(expert.life, "")
    seen = "used now" if expert.admitted else f"used {words.count(expert.unseen)} texts ago"
    first = [
        (
            0,
            line(
                (f"{GLYPHS[kind]} expert {expert.uid}", f"bold {STYLES[kind]}"),
                f" {_PLACES[expert.tier]}{life}",
            ),
        ),
        (1, line((f"gate {expert.gate:.3g}", MUTED))),
        (2, line((f"use {words.share(expert.use)}", MUTED))),
    ]
    second = [
        (0, line((f"age {words.count(expert.age)}", MUTED))),
        (1, line((seen, MUTED))),
    ]
    parents = pool.parents.get(expert.uid)
    if parents:
        second.append((2, line((f"parents {_uids(parents)}", MUTED))))
    return [fitted(first, width, " · "), fitted(second, width, " · ")]


def _decision(frame: Frame, width: int, most: int) -> list[Content]:
    """The last word on the pool's size, and when it is decided again."""
    growth, births = frame.state.growth, frame.state.births
    if growth is None:
        return []
    text = growth.sentence
    if growth.born or growth.pruned:
        born = f"born {_uids(tuple(growth.born))}" if growth.born else ""
        gone = f"pruned {_uids(tuple(growth.pruned))}" if growth.pruned else ""
        text = ", ".join(part for part in (born, gone) if part) + (f": {text}" if text else "")
    elif births:
        last = births[-1]
        if last.born:
            text += f" Last birth: {_uids(tuple(last.born))} at {words.count(last.chars)}."
    left = growth.next_at_chars - frame.state.metrics.chars
    if left > 0:
        text += f" Decided again in {words.count(left)} characters."
    return wrapped(text, width, MUTED, most=max(1, min(4, most)))
