"""Sentences in lines that end behind a word, as wide as the terminal they are printed on."""

from __future__ import annotations

import os
from typing import TextIO

from rich.cells import cell_len

LEAST = 20  # columns; a terminal that says it has fewer is not believed


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal that `stream` is; None where it is none, or does not say."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):  # closed, or of no descriptor
        return None
    return max(LEAST, columns) if columns else None


def wrapped(text: str, width: int | None, hang: int = 0) -> str:
    """`text` in lines of at most `width` columns, those that a line is continued on begun with `hang` spaces;
    as it is without a width. A word that is longer than a line stands whole: a path is to be copied."""
    if width is None:
        return text
    return "\n".join(line for part in text.split("\n") for line in _lines(part, width, " " * hang))


def _lines(text: str, width: int, hang: str) -> list[str]:
    start = len(text) - len(text.lstrip(" "))
    lines, line, begun = [], text[:start], False
    for word in text[start:].split(" "):
        room = cell_len(line) + (1 if begun else 0) + cell_len(word) <= width
        if begun and not room:
            lines.append(line.rstrip())
            line, begun = hang, False
        line += f" {word}" if begun else word
        begun = True
    return [*lines, line]
