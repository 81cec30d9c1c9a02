"""What the pool pane says in words: a step, one expert, and why the pool is as large as it is."""

from __future__ import annotations

from textual.content import Content

from minagi.protocol import Growth
from tui import words
from tui.panes.base import Frame, Part, fitted, flowed, line, wrapped
from tui.state import Expert, PoolView
from tui.styles import FAINT, MUTED

GLYPHS = {"R": "●", "M": "◐", "D": "○", "n": "✶", "d": "◌"}
STYLES = {"R": "$text-success", "M": "$primary", "D": MUTED, "n": "bold $text-warning", "d": "$text-error"}
CAME, LEFT = ("+", "$text-success"), ("-", "$text-warning")
_PLACES = {"R": "resident", "M": "in RAM", "D": "on disk"}
_COUNTS = (
    ("resident", "R", "resident"), ("ram", "M", "in RAM"), ("disk", "D", "on disk"),
    ("newborn", "n", "newborn"), ("dying", "d", "dying"),
)  # fmt: skip
_LEGEND: tuple[tuple[Part, str], ...] = (
    ((GLYPHS["R"], STYLES["R"]), "resident: used at once"),
    ((GLYPHS["M"], STYLES["M"]), "in RAM: loaded when asked for"),
    ((GLYPHS["D"], STYLES["D"]), "on disk: read, then loaded"),
    ((GLYPHS["n"], STYLES["n"]), "newborn, in its trial"),
    ((GLYPHS["d"], STYLES["d"]), "dying: pruned unless asked for"),
    (CAME, "came in the last step (- left)"),
    (("7", "bold"), "bold: used by the last step"),
    (("▁▄█", FAINT), "its share of recent use"),
    ("%", "met a full one, so went without"),
)
_SLOTS = (
    "There are {slots} slots. Each step the text asks over the whole pool, and the {slots} experts asked for "
    "most are loaded; the others wait in RAM or on disk, and lose nothing by it."
)


def kind(expert: Expert) -> str:
    """The letter of what matters most of it: its life, or else where it is."""
    return expert.life if expert.life in "nd" else expert.tier


def counts(pool: PoolView, width: int) -> Content:
    """How many there are of each kind."""
    items = []
    for rank, (name, letter, told) in enumerate(_COUNTS):
        number = pool.counts.get(name, 0)
        if number or rank < 3:
            items.append(
                (rank, line((GLYPHS[letter], STYLES[letter]), " ", (str(number), "bold"), f" {told}"))
            )
    return fitted(items, width)


def flow(pool: PoolView, width: int) -> list[Content]:
    """What the last step moved, and how well paging does."""
    came = line(CAME, " came ", _uids(pool.arrived))
    went = line(LEFT, " left ", _uids(pool.left))
    items = []
    if pool.loads_per_step is not None:
        items.append((0, line((f"{pool.loads_per_step:.1f}", "bold"), " loaded a step")))
    if pool.ram_hit_rate is not None:
        items.append((1, line((words.share(pool.ram_hit_rate), "bold"), " of them from RAM")))
    if pool.dropped_share is not None:
        items.append((2, line((words.share(pool.dropped_share), "bold"), " of requests met a full expert")))
    return [fitted([(0, came), (1, went)], width), *flowed(items, width, 2)]


def _uids(uids: tuple[int, ...]) -> str:
    if not uids:
        return "none"
    named = " ".join(str(uid) for uid in uids[:6])
    return f"{named} +{len(uids) - 6}" if len(uids) > 6 else named


def described(expert: Expert | None, pool: PoolView, width: int) -> list[Content]:
    """What is known of the selected expert."""
    if expert is None:
        return []
    letter = kind(expert)
    life = {"n": ", newborn", "d": ", dying"}.get(expert.life, "")
    seen = (
        "used now"
        if expert.admitted
        else f"used {words.count(expert.unseen)} {'text' if expert.unseen == 1 else 'texts'} ago"
    )
    name = line((f"{GLYPHS[letter]} expert {expert.uid}", f"bold {STYLES[letter]}"))
    first = [
        (0, line(name, f" {_PLACES[expert.tier]}{life}")),
        (2, line((f"speaks at {expert.gate:.3g} (its gate)", MUTED))),
        (1, line((f"{words.share(expert.use)} of recent use", MUTED))),
    ]
    second = [(0, line((f"age {words.count(expert.age)}", MUTED))), (1, line((seen, MUTED)))]
    parents = pool.parents.get(expert.uid)
    if parents:
        second.append((2, line((f"parents {_uids(parents)}", MUTED))))
    return [fitted(first, width, " · "), fitted(second, width, " · ")]


def decision(frame: Frame, width: int, most: int) -> list[Content]:
    """The last word on the pool's size, and when it is decided again; at most `most` lines."""
    growth, metrics = frame.state.growth, frame.state.metrics
    if growth is None:
        return []
    told = [_decided(growth)]
    last = next((birth for birth in reversed(frame.state.births) if birth.born), None)
    if last is not None and not growth.born:
        told.append(f"Last birth: {_uids(tuple(last.born))}, at {words.count(last.chars)} characters.")
    left = growth.next_at_chars - metrics.chars
    if left > 0:
        time = f", {words.duration(left / metrics.chars_per_second)}" if metrics.chars_per_second else ""
        told.append(f"Decided again in {words.count(left)} characters{time}.")
    while len(told) > 1 and len(wrapped(" ".join(told), width)) > most:
        told.pop()  # whole sentences, the reason last
    return wrapped(" ".join(told), width, MUTED, most=most)


def reason_lines(frame: Frame, width: int) -> int:
    """How many lines the reason of the last decision takes."""
    growth = frame.state.growth
    return len(wrapped(_decided(growth), width)) if growth is not None else 0


def _decided(growth: Growth) -> str:
    """A decision in a sentence, with the numbers of who came and went unless it names them."""
    told = [f"Born {_uids(tuple(growth.born))}"] if growth.born else []
    told += [f"pruned {_uids(tuple(growth.pruned))}"] if growth.pruned else []
    return words.sentence(growth.sentence or ", ".join(told))


def explained(frame: Frame, width: int, most: int) -> list[Content]:
    """How to read the map, and what became of the pool's size so far, where there is room for it."""
    slots = frame.state.hello.resident if frame.state.hello else 0
    about = [Content(), *wrapped(_SLOTS.format(slots=slots), width)] if slots else []
    legend = _legend(width)
    lines = [*(about if len(about) + len(legend) <= most else []), *legend]  # the signs before all else
    earlier = [birth for birth in frame.state.births if birth is not frame.state.growth]
    if earlier:
        lines += [Content(), line(("Earlier", "bold"))]
        for growth in reversed(earlier):
            when = f"at {words.count(growth.chars)}: "
            lines += wrapped(when + _decided(growth), width, MUTED, most=2)
    return lines[:most]


def _legend(width: int) -> list[Content]:
    """What the signs of the map and the figures mean, below an empty line."""
    lines = [Content()]
    column = max(len(told) for _, told in _LEGEND) + 6
    across = max(1, min(2, width // column))
    column = min(column, width + 2)
    rows = -(-len(_LEGEND) // across)
    for row in range(rows):
        parts: list[Part] = []
        for sign, told in _LEGEND[row::rows]:
            mark = line(sign)
            parts += [mark, " " * (4 - mark.cell_length), f"{told:<{column - 4}}"]
        lines.append(line(*parts).truncate(width, ellipsis=True))
    return lines
