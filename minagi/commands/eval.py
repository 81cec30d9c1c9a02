"""`minagi eval`: how well a model predicts a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minagi.commands.output import harmless, put, put_json
from minagi.commands.reading import OpenReader, open_model
from minagi.errors import EXIT_OK, UsageError
from minagi.options import READING, Parser, add_machine, add_settings, path
from minagi.units import LN2

EXAMPLE = """example:
  minagi eval ~/notes/journal.txt --weights my/model --json
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi eval",
        usage="%(prog)s PATH --weights DIR [--json] [flags]",
        description="Score every byte of a file or folder after the first, once. Nothing is learnt.",
        epilog=EXAMPLE,
    )
    made.add_argument("path", type=path, metavar="PATH", help="a file or a folder")
    made.add_argument(
        "--json", action="store_true",
        help="one object: nats, bits_per_byte, bytes, stderr, subjects, context",
    )  # fmt: skip
    add_machine(made)
    add_settings(made, READING)
    return made


def main(argv: Sequence[str], open_reader: OpenReader | None = None) -> int:
    """Measure and be done. `open_reader` stands in for the real model."""
    arguments = parser().parse(argv)
    if not arguments.path.exists():
        raise UsageError(f"There is no file or folder {arguments.path}.")
    reader = open_model(arguments, open_reader)
    try:
        result = reader.evaluate(arguments.path)
    finally:
        reader.close()
    if arguments.json:
        put_json(result)
        return EXIT_OK
    put(_line("all", result))
    subjects = result.get("subjects") or {}
    for name, figures in sorted(subjects.items()) if len(subjects) > 1 else ():
        put(_line(harmless(name), figures))
    put(f"context: {result.get('context')}")
    return EXIT_OK


def _line(name: str, figures: Mapping[str, Any]) -> str:
    nats, stderr = figures.get("nats"), figures.get("stderr")
    if nats is None:
        return f"{name}: nothing to score"
    error = "" if stderr is None else f" ± {stderr / LN2:.4f}"
    return f"{name}: {nats / LN2:.4f}{error} bits a character, {figures.get('bytes')} characters"
