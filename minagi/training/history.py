"""runs/history.jsonl: one JSON line a checkpoint, for people and plots. Never a reason to end a run."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from minagi.finite import finite
from minagi.records import RecordFile

LINE_MAX = 16 * 1024 * 1024  # bytes; a longer line is not one of ours


class History:
    """The history file at `path`. Methods that write return "" or a sentence saying what went wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: Mapping[str, Any]) -> str:
        """Add one row."""
        line = json.dumps(finite(row), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        try:
            RecordFile(self.path).append(line)
        except OSError as error:
            return f"The history could not be written to {self.path}: {error.strerror or error}."
        return ""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row in order; lines that are none (torn, foreign, huge) are passed over."""
        if not self._there():
            return
        try:
            with self.path.open("rb") as file:
                for line in _lines(file):
                    row = _row(line)
                    if row is not None:
                        yield row
        except OSError:
            return

    def tail(self, most: int) -> Iterator[dict[str, Any]]:
        """The rows in the last `most` bytes of the file, in order; nothing where it cannot be read."""
        if not self._there():
            return
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most))
                data = file.read(most)
        except OSError:
            return
        for line in data.splitlines()[size > most :]:  # the first of a part is no whole line
            row = _row(line)
            if row is not None:
                yield row

    def _there(self) -> bool:
        """Whether a file can be read: a pipe would be waited for, a device read without end."""
        try:
            return self.path.is_file()
        except OSError:  # its folder is closed to us
            return False

    def drop_after(self, step: int, model: str) -> str:
        """Remove `model`'s rows past `step`, the point it goes on from, and lines that are none.

        Several models may write to one file. It is replaced whole or not at all, and left alone when
        nothing is past that point.
        """

        def past(row: Mapping[str, Any]) -> bool:
            return row.get("model") == model and _step(row) > step

        if not any(past(row) for row in self.rows()):
            return ""
        spare = self.path.with_name(self.path.name + ".new")
        try:
            with self.path.open("rb") as file, spare.open("wb") as kept:
                for line in _lines(file):
                    row = _row(line)
                    if row is not None and not past(row):
                        kept.write(line.rstrip(b"\n") + b"\n")
                kept.flush()
                os.fsync(kept.fileno())
            spare.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                spare.unlink()
            return f"Rows past step {step} could not be removed from {self.path}: {error.strerror or error}."
        return ""


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines of bounded length; what is longer is passed over without being held in memory."""
    whole = True
    while line := file.readline(LINE_MAX):
        ended = line.endswith(b"\n")
        if whole and (ended or len(line) < LINE_MAX):
            yield line
        whole = ended


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _step(row: Mapping[str, Any]) -> float:
    """A row's step; one without a usable step is never past any point."""
    step = row.get("step")
    return step if isinstance(step, (int, float)) and not isinstance(step, bool) else -math.inf
