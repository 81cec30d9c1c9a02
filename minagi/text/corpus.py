"""What there is to read: subjects made of spans of files. Nothing here holds text in memory."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minagi.errors import MinagiError

Choice = dict[str, list[int]]  # "subject/relative path" -> [start, stop] of what is held out of it


class TextGoneError(MinagiError):
    """A file cannot be read any more as it was found: it vanished, shrank, or was closed to us."""


@dataclass(frozen=True)
class TextSpan:
    """Bytes `start` to `stop` of a file."""

    path: Path
    start: int
    stop: int

    @property
    def chars(self) -> int:
        """Its length in bytes, which is its length in characters but for the markers in it."""
        return self.stop - self.start


@dataclass(frozen=True)
class Subject:
    """One lane of reading. `train` and `held_out` never overlap."""

    name: str  # unique, safe to show
    root: Path  # the folder, or the file, that it is
    train: tuple[TextSpan, ...]
    held_out: tuple[TextSpan, ...]

    @property
    def chars(self) -> int:
        return sum(span.chars for span in self.train)

    @property
    def held_out_chars(self) -> int:
        return sum(span.chars for span in self.held_out)

    @property
    def files(self) -> int:
        return len({span.path for span in (*self.train, *self.held_out)})


@dataclass(frozen=True)
class Corpus:
    """Everything there is to read, and what was passed over and why."""

    subjects: tuple[Subject, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)  # reason in words -> files
    skipped_examples: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # the first few of each
    choice: Choice = field(default_factory=dict)  # what was held out automatically; kept with the model
    paths: tuple[Path, ...] = field(default=(), compare=False)  # as they were given, absolute; kept likewise

    @property
    def chars(self) -> int:
        """Characters of one pass, held-out text excluded."""
        return sum(subject.chars for subject in self.subjects)

    @property
    def held_out_chars(self) -> int:
        return sum(subject.held_out_chars for subject in self.subjects)

    @property
    def files(self) -> int:
        return sum(subject.files for subject in self.subjects)

    @property
    def measured(self) -> str:
        """Names the held-out text: the same as long as the same bytes of the same files are held out."""
        spans = [(str(s.path), s.start, s.stop) for subject in self.subjects for s in subject.held_out]
        return hashlib.sha256(repr(sorted(spans)).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def summary(self) -> dict[str, Any]:
        """The fields of the protocol's event `CorpusFound`."""
        subjects = [
            {
                "name": subject.name,
                "files": subject.files,
                "chars": subject.chars,
                "held_out_chars": subject.held_out_chars,
            }
            for subject in self.subjects
        ]
        return {
            "files": self.files,
            "chars": self.chars,
            "held_out_chars": self.held_out_chars,
            "subjects": subjects,
            "skipped": dict(self.skipped),
        }


def open_plain(path: Path) -> int:
    """A descriptor of a plain file, read-only. Raises OSError; never waits for a pipe."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not a plain file")
    return descriptor


def read_span(span: TextSpan, offset: int = 0, length: int | None = None) -> bytes:
    """`length` bytes of a span from `offset` on (both within the span), or up to its end.

    Seeks, and reads no more than that. Raises TextGoneError when the file is not what it was.
    """
    start = span.start + offset
    wanted = max(0, min(span.stop, start + length if length is not None else span.stop) - start)
    try:
        descriptor = open_plain(span.path)
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor, not a path
            file.seek(start)
            pieces = []
            while wanted and (piece := file.read(wanted)):
                pieces.append(piece)
                wanted -= len(piece)
    except FileNotFoundError:
        raise TextGoneError(f"{shown_path(span.path)} vanished.") from None
    except OSError as error:
        raise TextGoneError(f"{shown_path(span.path)} cannot be read: {reason_of(error)}.") from None
    if wanted:
        raise TextGoneError(f"{shown_path(span.path)} became shorter.")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def reason_of(error: Exception) -> str:
    """Why the system refused, in its words."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def shown_path(path: Path | str) -> str:
    """A path as it may stand in a sentence: anything unprintable in it is spelled out."""
    text = str(path)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
