"""`minagi write`: what a model goes on with after a prompt."""

from __future__ import annotations

import os
from collections.abc import Sequence

from minagi.commands.output import TextOut, put_json
from minagi.commands.reading import OpenReader, open_model
from minagi.errors import EXIT_OK, UsageError
from minagi.options import READING, Parser, add_machine, add_settings, count

EXAMPLE = """example:
  minagi write --weights my/model --prompt "Once upon a time" --chars 300
"""
CHARS_MAX = 10_000_000


def parser() -> Parser:
    made = Parser(
        prog="minagi write",
        usage="%(prog)s --weights DIR --prompt TEXT [--chars N] [--raw] [--json] [flags]",
        description="Write on after a prompt: the text alone on stdout, as it comes.",
        epilog=EXAMPLE,
    )
    made.add_argument("--prompt", required=True, metavar="TEXT", help="what to go on from")
    made.add_argument(
        "--chars", type=count, default=400, metavar="N", help="characters at most (default: 400)"
    )
    made.add_argument("--raw", action="store_true", help="without holding back recent characters")
    made.add_argument("--json", action="store_true", help="one object with text, ids and rows")
    add_machine(made)
    add_settings(made, READING)
    return made


def main(argv: Sequence[str], open_reader: OpenReader | None = None) -> int:
    """Write and be done. `open_reader` stands in for the real model."""
    arguments = parser().parse(argv)
    if arguments.chars > CHARS_MAX:
        raise UsageError(
            f"--chars is {arguments.chars}: at most {CHARS_MAX} characters are written at a time."
        )
    prompt = os.fsencode(arguments.prompt)  # the very bytes that were given
    reader = open_model(arguments, open_reader)
    try:
        if arguments.json:
            written = reader.write(prompt, arguments.chars, arguments.raw)
            text = written.text.decode("utf-8", "replace")
            put_json({"text": text, "ids": written.ids, "rows": written.rows})
        else:
            out = TextOut()
            reader.write(prompt, arguments.chars, arguments.raw, on_char=lambda data, rows: out.write(data))
            out.end()
    finally:
        reader.close()
    return EXIT_OK
