"""`minagi plot`: a run drawn in the terminal, or as PNG pictures."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from minagi.commands.output import put, say
from minagi.commands.records import add_history, chosen
from minagi.errors import EXIT_OK, UsageError
from minagi.options import Parser, add_settings, count, loaded_settings, path
from minagi.plots.run import Run, runs_of
from minagi.plots.terminal import Look, drawn

EXAMPLE = """examples:
  minagi plot                                     the last run of data.history
  minagi plot --weights my/model
  minagi plot --history out/history.jsonl         a run of minagi stream
  minagi plot --png graphs                        training_progress.png and dashboard.png in graphs/
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi plot",
        usage="%(prog)s [--weights DIR] [--history FILE] [--png DIR] [--width N]",
        description="Draw a run from its history: the loss on log axes, held-out text by subject, experts,\n"
        "the window and the learning rate, over characters read. Without colour where stdout is no\n"
        "terminal or NO_COLOR is set. PNG pictures need matplotlib: pip install 'minagi[plots]'.",
        epilog=EXAMPLE,
    )
    made.add_argument(
        "--png", type=path, metavar="DIR", help="make two pictures in DIR and draw nothing here"
    )
    made.add_argument("--width", type=count, metavar="N", help="columns to use (default: the terminal's)")
    add_history(made)
    add_settings(made, ["plots.last"])
    return made


def main(argv: Sequence[str]) -> int:
    """Read and draw."""
    arguments = parser().parse(argv)
    meant = chosen(arguments)
    runs = runs_of(row for row in meant.history.rows() if not meant.model or row.get("model") == meant.model)
    run = next(reversed(runs.values()), Run(meant.model))
    if len(runs) > 1:
        say(f"The history holds {len(runs)} models; this is {run.model}. --weights names another.")
    if not run.chars:
        say(f"{meant.history.path} holds nothing to draw{f' of {run.model}' if run.model else ''} yet.")
        return EXIT_OK
    if arguments.png is not None:
        from minagi.plots.png import draw  # matplotlib takes a second, and need not be there

        for made in draw(run, _folder(arguments.png), loaded_settings(arguments).settings.plots.last):
            put(str(made))
        return EXIT_OK
    put(drawn(run, _look(arguments.width)))
    return EXIT_OK


def _look(width: int | None) -> Look:
    """What stdout can show."""
    wide = width or shutil.get_terminal_size().columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    try:
        "⠶┌─".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Look(wide, colour, ascii_only=True)
    return Look(wide, colour)


def _folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The pictures cannot be kept in {folder}: {error.strerror or error}.") from None
    return folder
