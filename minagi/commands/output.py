"""stdout for data, stderr for talk, and nothing of a model's or a file's that could steer a terminal."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from minagi.finite import finite
from minagi.steering import harmless


def say(text: str) -> None:
    """A sentence for a person, on stderr. A terminal that is gone is no fault."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(harmless(text) + "\n")
        sys.stderr.flush()


def put(text: str) -> None:
    """Lines of data on stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def put_json(value: Any) -> None:
    """One JSON object as one line on stdout."""
    put(json.dumps(finite(value), ensure_ascii=True, allow_nan=False))


def put_table(table: Table) -> None:
    """A table on stdout as plain text; whoever filled it has made its cells harmless."""
    console = Console(file=sys.stdout, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as shown:
        console.print(table)
    put(shown.get().rstrip("\n"))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first and the last column begin alike, the others end alike."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(wide) - 1
    return [
        "  ".join(
            cell.ljust(size) if place in (0, last) else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in rows
    ]


class TextOut:
    """Bytes of text on stdout as they come: exact into a file or a pipe, harmless on a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, data: bytes) -> None:
        if self._terminal:
            sys.stdout.write(harmless(self._decode(data)))
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def end(self) -> None:
        """Close the last line on a terminal; elsewhere the bytes are all there is."""
        if self._terminal:
            sys.stdout.write(harmless(self._decode(b"", True)) + "\n")
            sys.stdout.flush()


@contextlib.contextmanager
def private_stdout() -> Iterator[int]:
    """A descriptor of stdout that is ours alone: whoever else prints meanwhile prints on stderr."""
    sys.stdout.flush()
    mine = os.dup(1)
    os.dup2(2, 1)
    try:
        yield mine
    finally:
        os.dup2(mine, 1)
        os.close(mine)
