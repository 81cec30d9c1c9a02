"""Untrusted text and numbers made safe to draw: file names, model output, whatever a worker sends.

A raw escape byte would reach the terminal, a bidi override would turn a line around, a NaN would
break a chart. Everything passes through here once, where events enter the state.
"""

from __future__ import annotations

import codecs
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from minagi.protocol import EVENTS, Message
from minagi.steering import CONTROLS, INVISIBLE, LINE_BREAKS, REPLACEMENT

LINE_LIMIT = 400  # characters of a name or a sentence
TEXT_LIMIT = 20_000  # characters of a text of several lines
LIST_LIMIT = 8_192  # entries of a list that are looked at
DICT_LIMIT = 1_024
NUMBER_LIMIT = 2**53  # beyond it a float no longer counts characters
_DEPTH_LIMIT = 6
_NUMBERS = {int, float}
_BYTES = ("data", "raw", "adapted")  # fields that hold bytes


_TEXT: dict[int, str | None] = {
    **dict.fromkeys((*CONTROLS, *INVISIBLE)),
    **dict.fromkeys(range(0xD800, 0xE000), REPLACEMENT),  # lone surrogates
    **dict.fromkeys((*LINE_BREAKS, 0x0A), "\n"),
    0x09: "    ",
}
_LINE = {**_TEXT, **dict.fromkeys((*LINE_BREAKS, 0x0A, 0x09), " ")}


def clean_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text` without anything a terminal obeys; new lines stay, tabs become four spaces."""
    cut = text[:limit]
    if cut.isascii() and cut.isprintable():
        return cut
    return cut.translate(_TEXT)


def clean_line(text: str, limit: int = LINE_LIMIT) -> str:
    """The same in one line, with an ellipsis where it was cut."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_LINE)


def decode_utf8(pending: bytes, data: str, final: bool = False) -> tuple[str, bytes]:
    """Decode the next bytes of a reply (`data`: one code point a byte) after the unfinished `pending`.

    Returns the cleaned text and what is unfinished now. Bytes that are no UTF-8 become U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.setstate((pending, 0))
    text = decoder.decode(data.encode("latin-1", "replace"), final)
    return clean_text(text, limit=len(text)), decoder.getstate()[0]


def number(value: object) -> float | None:
    """`value` as a finite float within reach, else None."""
    if type(value) is float and -NUMBER_LIMIT <= value <= NUMBER_LIMIT:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return float(max(-NUMBER_LIMIT, min(NUMBER_LIMIT, value)))


def whole(value: object) -> int:
    """`value` as a whole number of at least 0; 0 when it is no number."""
    found = number(value)
    return max(0, int(found)) if found is not None else 0


def numbers(value: object) -> list[float]:
    """The entries of a list as numbers, 0.0 where one is none."""
    if not isinstance(value, list):
        return []
    return list(map(float, value)) if _sound(value) else [number(entry) or 0.0 for entry in value]


def wholes(value: object) -> list[int]:
    """The entries of a list as whole numbers."""
    if not isinstance(value, list):
        return []
    if _sound(value):
        return [max(0, int(entry)) for entry in value]
    return [whole(entry) for entry in value]


def _sound(values: Sequence[object]) -> bool:
    """Whether there are numbers only, all finite and within reach: most lists, and seen at a glance."""
    if not set(map(type, values)) <= _NUMBERS:
        return False
    found = cast("Sequence[float]", values)
    if not found:
        return True
    return min(found) >= -NUMBER_LIMIT and max(found) <= NUMBER_LIMIT and not any(map(math.isnan, found))


def scrub(message: Message) -> Message:
    """`message` with every text cleaned, every number finite and every container bounded.

    Bytes that stand as code points are left as they are: `decode_utf8` deals with those of a reply,
    `tui.reducers.inspect` with those of a probe.
    """
    changed = {}
    for name, annotation, default, plain, least in _SPECS.get(type(message)) or _spec(type(message)):
        value = getattr(message, name)
        if type(value) is plain and least <= value <= NUMBER_LIMIT:  # type: ignore[operator]
            continue  # nearly always, and a busy worker sends tens of thousands a second
        clean = (
            value if name in _BYTES and isinstance(value, (str, list)) else _as(annotation, value, default)
        )
        if clean is not value:
            changed[name] = clean
    return dataclasses.replace(message, **changed) if changed else message


def _as(annotation: str, value: Any, default: Any) -> Any:
    """`value` as what its field promises; the field's default where it is something else."""
    if annotation == "str":
        return clean_text(value) if isinstance(value, str) else default
    if annotation == "int":
        clean = whole(value)
        return value if clean == value and isinstance(value, int) else clean
    if annotation.startswith("float"):
        found = number(value)
        if found is None:
            return None if "None" in annotation else default
        return value if found == value and isinstance(value, float) else found
    if annotation == "bool":
        return value is True
    if annotation.startswith("list"):
        return _deep(value, 0) if isinstance(value, (list, tuple)) else []
    return _deep(value, 0) if isinstance(value, Mapping) else {}


def _spec(kind: type[Message]) -> list[tuple[str, str, Any, type | None, int]]:
    """Name, annotation and default of each field; type and least value of numbers that need no mending."""
    plain = {"int": (int, 0), "float": (float, -NUMBER_LIMIT), "float | None": (float, -NUMBER_LIMIT)}
    fields = ((f.name, str(f.type), f.default) for f in dataclasses.fields(kind))
    return [(name, told, default, *plain.get(told, (None, 0))) for name, told, default in fields]


_SPECS = {kind: _spec(kind) for kind in EVENTS.values()}


def _deep(value: Any, depth: int) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return clean_line(value, limit=LIST_LIMIT)
    if isinstance(value, (int, float)):
        return number(value) if isinstance(value, float) else int(number(value) or 0)
    if depth >= _DEPTH_LIMIT:
        return None
    if isinstance(value, (list, tuple)):
        if len(value) <= LIST_LIMIT and _sound(value):
            return list(value)
        return [_deep(entry, depth + 1) for entry in value[:LIST_LIMIT]]
    if isinstance(value, Mapping):
        pairs = zip(value.items(), range(DICT_LIMIT), strict=False)
        return {clean_line(str(key)): _deep(entry, depth + 1) for (key, entry), _ in pairs}
    return None
