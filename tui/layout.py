"""Where the panes stand: one pure function from the size of the screen to rectangles.

Wide screens have two or three columns, narrow ones a single column with the pane that was chosen
and as many others as fit. Whatever does not fit is a key away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from textual.geometry import Region

WIDE, HUGE = 100, 160  # columns from which there are two, and three, columns of panes


@dataclass(frozen=True)
class Slot:
    """One storey of a column: a pane, or several side by side."""

    panes: tuple[str, ...]
    least: int  # lines it needs, its frame included
    most: int  # lines beyond which it gains nothing
    weight: int  # share of the lines to spare


def _slots(*entries: tuple[str, int, int, int]) -> tuple[Slot, ...]:
    return tuple(Slot(tuple(names.split("+")), least, most, weight) for names, least, most, weight in entries)


_NARROW = (
    *_slots(
        ("loss", 9, 99, 4), ("memory", 6, 12, 1), ("pool", 8, 18, 2), ("window", 7, 10, 1),
        ("depth", 7, 10, 1), ("subjects", 5, 20, 1), ("chat", 8, 99, 4), ("log", 5, 20, 1),
    ),
)  # fmt: skip
_TWO = (
    _slots(("loss", 9, 99, 6), ("window+depth", 7, 9, 1), ("subjects", 5, 14, 1), ("log", 5, 14, 2)),
    _slots(("pool", 8, 18, 3), ("memory", 5, 8, 1), ("chat", 8, 99, 5)),
)
_THREE = (
    _slots(("loss", 9, 99, 6), ("window+depth", 7, 9, 1), ("subjects", 5, 18, 2)),
    _slots(("pool", 8, 18, 4), ("memory", 5, 8, 1), ("log", 5, 99, 3)),
    _slots(("chat", 8, 99, 1)),
)
_WIDTHS_TWO, _WIDTHS_THREE = (58, 42), (44, 28, 28)
_FIRST = ("chat", "loss", "pool", "window", "depth", "subjects", "log", "memory")  # what gives way last


def arrange(width: int, height: int, chosen: str, maximised: bool = False) -> dict[str, Region]:
    """The panes that are shown on `width` × `height` cells and their rectangles; `chosen` is always one."""
    if maximised:
        return {chosen: Region(0, 0, width, height)}
    if width < WIDE:
        columns, widths = [_around(chosen, height)], [width]
    elif width < HUGE:
        columns, widths = list(_TWO), _split(width, _WIDTHS_TWO)
    else:
        columns, widths = list(_THREE), _split(width, _WIDTHS_THREE)
    placed: dict[str, Region] = {}
    x = 0
    for slots, column in zip(columns, widths, strict=True):
        kept = _fitting(slots, height, chosen)
        y = 0
        for slot, lines in zip(kept, _heights(kept, height), strict=True):
            left = x
            for pane, part in zip(slot.panes, _split(column, (1,) * len(slot.panes)), strict=True):
                placed[pane] = Region(left, y, part, lines)
                left += part
            y += lines
        x += column
    return placed


def _around(chosen: str, height: int) -> tuple[Slot, ...]:
    """The one column of a narrow screen: few panes that can be read, the chosen one the largest."""
    slots = [replace(slot, most=99, weight=8) if chosen in slot.panes else slot for slot in _NARROW]
    kept = _fitting(tuple(slots), height, chosen)
    few = max(1, height // 9)
    first = sorted(kept, key=lambda slot: _rank(slot, chosen))[:few]
    return tuple(slot for slot in kept if slot in first)


def _rank(slot: Slot, chosen: str) -> tuple[bool, int]:
    """The chosen pane's slot first, then by what matters."""
    return chosen not in slot.panes, min(_FIRST.index(pane) for pane in slot.panes)


def _fitting(slots: tuple[Slot, ...], height: int, chosen: str) -> list[Slot]:
    """The slots there is room for, in their order; the chosen one is always among them."""
    kept: list[Slot] = []
    left = height
    for slot in sorted(slots, key=lambda slot: _rank(slot, chosen)):
        if slot.least <= left or not kept:
            kept.append(slot)
            left -= slot.least
    return [slot for slot in slots if slot in kept]


def _heights(slots: list[Slot], height: int) -> list[int]:
    """Lines for each slot: the least each, the rest by weight, never past its most while others can grow."""
    lines = [min(slot.least, height) for slot in slots]
    spare = height - sum(lines)
    while spare > 0:
        open_ = [place for place, slot in enumerate(slots) if lines[place] < slot.most]
        if not open_:
            lines[0] += spare
            break
        # the slot furthest below its share grows by a line: the same sum at every size
        place = min(open_, key=lambda p: ((lines[p] - slots[p].least + 1) / slots[p].weight, p))
        lines[place] += 1
        spare -= 1
    return lines


def _split(width: int, weights: tuple[int, ...]) -> list[int]:
    """`width` in parts by weight, the rounding given to the first."""
    parts = [width * weight // sum(weights) for weight in weights]
    parts[0] += width - sum(parts)
    return parts
