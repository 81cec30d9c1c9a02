"""From what a person wrote to a typed value. Files, variables and flags all come through here."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minagi.config.settings import Key
from minagi.errors import UsageError

_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][+-]?\d{1,4})?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_NULL = {"", "null", "~", "none"}
_LONGEST = 4_096  # characters of a value; nothing sensible is longer


def convert(key: Key, value: Any, origin: str, folder: Path) -> Any:
    """`value` as the kind that `key` has. A relative path is taken from `folder`.

    `value` is a text, or what Python has for it (a flag's int, a Path). Raises UsageError naming
    the key, the value, what is allowed and `origin`, where it was written.
    """
    try:
        if key.kind is Mapping:
            return _mapping(value)
        if isinstance(value, (Mapping, list, tuple)):
            raise ValueError
        text = "" if value is None else str(value).strip()
        if len(text) > _LONGEST or _CONTROL.search(text):
            raise ValueError
        if key.optional and text.lower() in _NULL:
            return None
        made = _scalar(key.kind, text, folder)
        if not key.rule.holds(made):
            raise ValueError
        return made
    except (ValueError, OverflowError):
        raise UsageError(f"{key.path} is {shown(value)} in {origin}: it must be {key.allowed()}.") from None


def shown(value: Any) -> str:
    """A value as it may stand in a sentence: short, and on one line."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = 60
    return brief.repr(value)


def _scalar(kind: type, text: str, folder: Path) -> Any:
    if kind is bool:
        return _bool(text)
    if kind is int or kind is float:
        return _number(kind, text)
    if not text:
        raise ValueError
    return folder / Path(text).expanduser() if kind is Path else text


def _bool(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError
    return text.lower() in _TRUE


def _number(kind: type, text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError
    plain = text.replace("_", "")
    if kind is int and plain.lstrip("+-").isdigit():
        return int(plain)
    number = float(plain)
    if not math.isfinite(number):
        raise ValueError
    if kind is float:
        return number
    if number != int(number):  # 2e6 is a whole number, 2.5 is not
        raise ValueError
    return int(number)


def _mapping(value: Any) -> dict[str, str]:
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(v, str) and v for v in value.values()):
        raise ValueError
    return {str(k): v for k, v in value.items()}
