"""Making a packed corpus (`minagi.text.packed`) from a collected one, block by block."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from minagi.errors import MinagiError, UsageError
from minagi.text.alphabet import END_OF_TEXT, encode_blocks
from minagi.text.corpus import Corpus, TextGoneError, TextSpan, read_span, reason_of, shown_path
from minagi.text.packed import ID, TRAIN, VAL

BLOCK = 1 << 18  # bytes of text held at a time
PARTIAL = ".partial"  # ending of a file that is being written
GB = 10**9


@dataclass(frozen=True)
class Packing:
    """What was packed: characters (ids) of both files, and sentences on files that could not be read on."""

    train_chars: int
    held_out_chars: int
    lost: tuple[str, ...]


def pack(corpus: Corpus, out: Path) -> Generator[int, None, Packing]:
    """Write the corpus to the folder `out`, which is made, or empty. Yields the characters done so far.

    All or nothing: both files are written aside and renamed at the end, train.bin last, so that a folder
    that has it is whole. Closing the generator, or a fault, leaves nothing. Raises UsageError when `out`
    cannot be used, MinagiError when writing fails.
    """
    shown = shown_path(out)
    if not corpus.held_out_chars:
        raise UsageError(
            "No text can be held out: every subject is too short to give any up. Join them in one folder."
        )
    with contextlib.ExitStack() as stack:
        partial = _begun(out, stack)
        _check_room(corpus, out)
        lost: list[str] = []
        done = 0
        written = {}
        try:
            for name, spans in _contents(corpus).items():
                with partial[name].open("r+b") as file:
                    file.truncate()
                    for size in _write(file, spans, lost):
                        done += size
                        yield done
                    written[name] = file.tell() // ID.itemsize
                    file.flush()
                    os.fsync(file.fileno())
            _check_written(written, lost, shown)
            for name in (VAL, TRAIN):
                partial[name].rename(out / name)
            _sync_folder(out)
        except OSError as error:
            raise MinagiError(
                f"The corpus could not be written to {shown}: {reason_of(error)}. Nothing of it was kept."
            ) from None
        return Packing(written[TRAIN], written[VAL], tuple(lost))


def check_out(out: Path) -> None:
    """Raise UsageError unless `out` is a folder with nothing in it, or can become one."""
    shown = shown_path(out)
    try:
        if not out.exists():
            return
        if not out.is_dir():
            raise UsageError(f"A corpus is kept in a folder, but {shown} is a file. Name another with --out.")
        there = {entry.name for entry in out.iterdir()} - {TRAIN + PARTIAL, VAL + PARTIAL}
    except OSError as error:
        raise UsageError(
            f"{shown} cannot be used: {reason_of(error)}. Name another folder with --out."
        ) from None
    if TRAIN in there or VAL in there:
        raise UsageError(
            f"{shown} holds a corpus already. Name another folder with --out, or remove it first."
        )
    if there:
        raise UsageError(f"{shown} is not empty. Name a new folder with --out.")


def _begun(out: Path, stack: contextlib.ExitStack) -> dict[str, Path]:
    """The files written to, made and locked; they go with `stack`. What a killed run left is written over."""
    check_out(out)
    shown = shown_path(out)
    partial = {name: out / (name + PARTIAL) for name in (TRAIN, VAL)}
    try:
        if not out.exists():
            out.mkdir(parents=True)
            stack.callback(_remove_if_empty, out)
        for path in partial.values():
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stack.callback(path.unlink, missing_ok=True)
    except BlockingIOError:
        raise UsageError(
            f"Another minagi pack is writing to {shown}. Name another folder with --out."
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"No corpus can be kept in {shown}: {reason_of(error)}. Name another folder with --out."
        ) from None
    check_out(out)
    return partial


def _check_room(corpus: Corpus, out: Path) -> None:
    needed = (corpus.chars + corpus.held_out_chars) * ID.itemsize
    free = shutil.disk_usage(out).free
    if needed > free:
        raise MinagiError(
            f"The corpus would take {needed / GB:.2f} GB, and {free / GB:.2f} GB are free where "
            f"{shown_path(out)} lies. Name another folder with --out."
        )


def _check_written(written: dict[str, int], lost: Sequence[str], shown: str) -> None:
    if not written[TRAIN] or not written[VAL]:
        what = "to hold out" if written[TRAIN] else "to read"
        raise MinagiError(f"{shown} was not made: no text was left {what}. {' '.join(lost[:3])}")


def _contents(corpus: Corpus) -> dict[str, list[TextSpan]]:
    return {
        TRAIN: [span for subject in corpus.subjects for span in subject.train],
        VAL: [span for subject in corpus.subjects for span in subject.held_out],
    }


def _write(file: BinaryIO, spans: Sequence[TextSpan], lost: list[str]) -> Iterator[int]:
    """Write each text and its end; yields the characters of every block."""
    end = np.array([END_OF_TEXT], ID).tobytes()
    for span in spans:
        before = file.tell()
        for ids in encode_blocks(_blocks(span, lost)):
            file.write(ids.astype(ID, copy=False).tobytes())
            yield len(ids)
        if file.tell() > before:
            file.write(end)


def _blocks(span: TextSpan, lost: list[str]) -> Iterator[bytes]:
    """The span's bytes; where it cannot be read on, what was read stands and `lost` says so."""
    for offset in range(0, span.chars, BLOCK):
        try:
            yield read_span(span, offset, min(BLOCK, span.chars - offset))
        except TextGoneError as error:
            lost.append(str(error))
            return


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _sync_folder(folder: Path) -> None:
    """The names, too, where the file system can be asked for that."""
    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)
