"""`minagi pack`: files and folders made into a corpus that `minagi stream` reads."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from minagi.commands.output import put_json, say
from minagi.errors import EXIT_OK
from minagi.options import Parser, path, real
from minagi.text import held_out
from minagi.text.collect import check_paths, collect
from minagi.text.corpus import Corpus, shown_path
from minagi.text.packing import Packing, check_out, pack
from minagi.worker.signals import Signals

_SHARE = real(lambda share: 0 < share <= held_out.SHARE_MAX, f"above 0, at most {held_out.SHARE_MAX:g}")
ANY_SIZE = 2**63  # a file is never held, so none is too large
EXAMPLE = """examples:
  minagi pack ~/notes ~/books --out corpora/mine
  minagi pack shakespeare.txt --out corpora/shakespeare --held-out 0.1 --json

A corpus is two files of two bytes a character: train.bin is read, val.bin is measured and never read.
A character is a byte, or one of the nine markers such as <|endoftext|>, which ends every text.
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi pack",
        usage="%(prog)s PATH… --out DIR [--held-out SHARE] [--follow-symlinks] [--json]",
        description="Make a corpus of files and folders, of any size, for minagi stream. What is no text is\n"
        "passed over and counted. DIR appears whole or not at all: it must be new, or empty.",
        epilog=EXAMPLE,
    )
    made.add_argument("paths", nargs="+", type=path, metavar="PATH", help="files and folders to pack")
    made.add_argument("--out", type=path, required=True, metavar="DIR", help="the folder to make")
    made.add_argument(
        "--held-out", type=_SHARE, default=held_out.SHARE, metavar="SHARE",
        help=f"share of every subject kept for measuring (default: {held_out.SHARE:g})",
    )  # fmt: skip
    made.add_argument("--follow-symlinks", action="store_true", help="pack what symbolic links point to")
    made.add_argument(
        "--json", action="store_true",
        help="one object: out, train_chars, held_out_chars, subjects, files, skipped, lost",
    )  # fmt: skip
    return made


def main(argv: Sequence[str]) -> int:
    """Collect, pack, tell."""
    arguments = parser().parse(argv)
    out = arguments.out.absolute()
    check_out(out)
    if not arguments.follow_symlinks:
        check_paths(arguments.paths)
    with Signals() as signals:
        corpus = collect(
            arguments.paths, exclude=(out,), follow_symlinks=arguments.follow_symlinks,
            max_file_bytes=ANY_SIZE, share=arguments.held_out,
        )  # fmt: skip
        packed = _shown(pack(corpus, out), corpus.chars + corpus.held_out_chars, signals)
    for sentence in packed.lost:
        say(f"{sentence} What was read of it was packed.")
    if arguments.json:
        put_json(
            {
                "out": str(out),
                "train_chars": packed.train_chars,
                "held_out_chars": packed.held_out_chars,
                "subjects": len(corpus.subjects),
                "files": corpus.files,
                "skipped": corpus.skipped,
                "lost": packed.lost,
            }
        )
    _tell(corpus, packed, shown_path(arguments.out))
    return EXIT_OK


def _shown(packing: Generator[int, None, Packing], total: int, signals: Signals) -> Packing:
    """Pack to the end, with a bar on a terminal. KeyboardInterrupt after a signal: nothing is kept then."""
    console = Console(file=sys.stderr)
    bar = Progress(
        TextColumn("packing"), BarColumn(bar_width=30), DownloadColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task("", total=total)
        try:
            while True:
                done = next(packing)
                bar.update(task, completed=done)
                if signals.received:
                    packing.close()
                    raise KeyboardInterrupt
        except StopIteration as end:
            return end.value


def _tell(corpus: Corpus, packed: Packing, out: str) -> None:
    if corpus.skipped:
        passed = ", ".join(f"{count} {reason}" for reason, count in sorted(corpus.skipped.items()))
        say(f"Passed over: {passed}.")
    files = f"{corpus.files:,} file{'' if corpus.files == 1 else 's'}"
    say(
        f"{out} holds {packed.train_chars:,} characters to read and {packed.held_out_chars:,} held out, "
        f"of {files}. Read it with: minagi stream --mix {out} --out DIR"
    )
