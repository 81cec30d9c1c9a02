"""`minagi probe`: does a model's depth follow difficulty? Additions are the measure."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from minagi.commands.output import put, put_json, put_table, say
from minagi.commands.reading import OpenReader, open_model
from minagi.errors import EXIT_OK, UsageError
from minagi.experiments.additions import DIGITS, lines
from minagi.experiments.depth import WORKING, DepthProbe, probe
from minagi.options import READING, Parser, add_machine, add_settings, count, natural, path

SAMPLES_MAX = 100_000
LINES_MAX = 100_000_000
EXAMPLE = """examples:
  minagi probe --generate 60000 --out sums/additions.txt     1 MB of additions of 1 to 8 digits
  minagi read sums --weights my/model --save --minutes 10
  minagi probe --weights my/model
"""
ABOUT = f"""Measure the rows a model takes on the answers of additions such as 347+158=505, from 1 digit to 8.
The verdict is "working" when the longest take at least {WORKING} rows more than the shortest, else "flat".
It means nothing for a model that never read additions: --generate makes text to learn them from.
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi probe",
        usage="%(prog)s --weights DIR [--samples N] [--seed N] [--json] [flags]\n"
        "       %(prog)s --generate N [--out FILE] [--seed N]",
        description=ABOUT,
        epilog=EXAMPLE,
    )
    made.add_argument(
        "--samples", type=count, default=32, metavar="N", help="additions a length (default: 32)"
    )
    made.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="of the additions drawn (default: 0)"
    )
    made.add_argument("--json", action="store_true", help="one object: verdict, difference, lengths, …")
    made.add_argument("--generate", type=count, metavar="N", help="write N additions, one a line, and end")
    made.add_argument("--out", type=path, metavar="FILE", help="a new file for them (default: stdout)")
    add_machine(made)
    add_settings(made, READING)
    return made


def main(argv: Sequence[str], open_reader: OpenReader | None = None) -> int:
    """Measure, or make text. `open_reader` stands in for the real model."""
    arguments = parser().parse(argv)
    _check(arguments)
    if arguments.generate:
        _generate(arguments.generate, arguments.seed, arguments.out)
        return EXIT_OK
    reader = open_model(arguments, open_reader)
    try:
        found = probe(reader.look, arguments.samples, arguments.seed)
    finally:
        reader.close()
    if arguments.json:
        put_json(
            {
                "verdict": found.verdict,
                "difference": found.difference,
                "working_at": WORKING,
                "samples": arguments.samples,
                "seed": arguments.seed,
                "lengths": [asdict(depth) for depth in found.lengths],
            }
        )
    else:
        _tell(found)
    if not any(depth.right for depth in found.lengths):
        say("It answers no addition right, so this says little: --generate makes text to learn them from.")
    return EXIT_OK


def _check(arguments: argparse.Namespace) -> None:
    if arguments.samples > SAMPLES_MAX:
        raise UsageError(f"--samples is {arguments.samples}: at most {SAMPLES_MAX} a length.")
    if arguments.out is not None and not arguments.generate:
        raise UsageError("--out is where --generate writes: give --generate N as well.")
    if arguments.generate and arguments.json:
        raise UsageError("--generate writes plain text: leave out --json.")
    if (arguments.generate or 0) > LINES_MAX:
        raise UsageError(f"--generate is {arguments.generate}: at most {LINES_MAX} at a time.")


def _generate(number: int, seed: int, out: Path | None) -> None:
    """Write the lines to stdout, or to a file that is there only when it is whole."""
    if out is None:
        for line in lines(number, seed):
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} is there already. Name a new file with --out.")
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("xb") as file:
            file.writelines(lines(number, seed))
        unfinished.rename(out)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):  # renamed, or never made
            unfinished.unlink()
    say(f"{number:,} additions are in {out}.")


def _tell(found: DepthProbe) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("digits", "rows", "spread", "largest", "right"):
        table.add_column(name, justify="right")
    for depth in found.lengths:
        table.add_row(
            str(depth.digits), f"{depth.mean:.3f}", f"{depth.spread:.3f}", str(depth.largest),
            f"{depth.right:.0%}",
        )  # fmt: skip
    put_table(table)
    word = "follows difficulty" if found.verdict == "working" else "does not follow difficulty"
    put(
        f"{found.verdict}: depth {word}; {DIGITS[-1]} digits take {found.difference:+.3f} rows against "
        f"{DIGITS[0]} digit ({WORKING:g} needed)"
    )
