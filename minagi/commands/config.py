"""`minagi config`: every setting in effect, and where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minagi.commands.output import harmless, put, put_json, say
from minagi.config import KEYS, LoadedSettings
from minagi.errors import EXIT_OK
from minagi.options import ENGINE, Parser, add_settings, add_sources, loaded_settings

EXAMPLE = """examples:
  minagi config
  minagi config --profile cpu --lr 1e-3 --json
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi config",
        usage="%(prog)s [--json] [flags]",
        description="Print every value in effect under these flags, and where it came from.",
        epilog=EXAMPLE,
    )
    made.add_argument("--json", action="store_true", help="one object: key -> value and from")
    add_sources(made)
    add_settings(made, (*ENGINE, "plots", "ui"))
    return made


def main(argv: Sequence[str]) -> int:
    """Look and tell."""
    arguments = parser().parse(argv)
    loaded = loaded_settings(arguments)
    if loaded.notice:
        say(loaded.notice)
    if arguments.json:
        put_json({key: {"value": _value(loaded, key), "from": loaded.origin[key]} for key in KEYS})
        return EXIT_OK
    names = [f"{key}: {_shown(_value(loaded, key))}" for key in KEYS]
    column = min(max(map(len, names)), 56)
    for name, key in zip(names, KEYS, strict=True):
        put(harmless(f"{name:<{column}}  # {loaded.origin[key]}"))
    return EXIT_OK


def _value(loaded: LoadedSettings, key: str) -> Any:
    section, name = key.split(".")
    value = getattr(getattr(loaded.settings, section), name)
    if isinstance(value, Path):
        return str(value)
    return dict(value) if KEYS[key].default == {} else value


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
