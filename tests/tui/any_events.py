"""Any event at all, for hypothesis: out of order, non-finite, huge, hostile, of the wrong kind."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from hypothesis import strategies as st

from minagi import protocol as p
from tui.state import Asked, Closing, Noted, NotUnderstood, Rewound, WorkerEnded, WorkerStarted

NUMBERS = st.one_of(
    st.integers(-5, 2_000_000), st.just(10**30), st.floats(), st.sampled_from([math.nan, math.inf, -math.inf])
)
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(["\x1b[31m", "a" * 5000, "[/b]", "running", "R" * 9]))
SCALARS = st.one_of(NUMBERS, TEXTS, st.none(), st.booleans())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
_BY_KIND = {"int": NUMBERS, "float": NUMBERS, "str": TEXTS, "bool": st.booleans()}


def values_of(annotation: str) -> st.SearchStrategy[Any]:
    """Mostly what a field promises, sometimes not."""
    if annotation in _BY_KIND:
        return _BY_KIND[annotation]
    if annotation.startswith("list"):
        return st.lists(VALUES, max_size=8)
    if annotation.startswith("dict"):
        return st.dictionaries(st.text(max_size=6), VALUES, max_size=5)
    return VALUES


_LOCAL = (Closing, Noted, NotUnderstood, Rewound, WorkerEnded, WorkerStarted)


@st.composite
def any_event(draw: st.DrawFn) -> p.Message:
    """One event of any kind, its fields filled with whatever JSON can carry and more."""
    kind = draw(st.sampled_from([*p.EVENTS.values(), Asked, *_LOCAL]))
    if kind is Asked:
        command = draw(st.sampled_from(list(p.COMMANDS.values())))
        return Asked(command(id=draw(st.integers(0, 4))))
    if kind in _LOCAL:
        return kind()
    fields = {f.name: draw(values_of(str(f.type))) for f in dataclasses.fields(kind) if draw(st.booleans())}
    if "id" in fields:
        fields["id"] = draw(st.integers(0, 4))
    return kind(**fields)
