"""Packed corpora: a folder with train.bin and val.bin, every character an id of two bytes, low byte first.

Ids are those of `minagi.text.alphabet`; each text ends with `<|endoftext|>`. Files are read piece by piece
and never held: they may be larger than memory. What is read is checked, and the beginning at the start. (No
memory map: a file that is cut off under one would end the process without a word.)
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np

from minagi.errors import MinagiError, UsageError
from minagi.text.alphabet import VOCAB_SIZE, Ids
from minagi.text.corpus import open_plain, reason_of, shown_path

TRAIN, VAL = "train.bin", "val.bin"
ID = np.dtype("<u2")
HEAD = 65_536  # ids looked at when a file is opened


class PackedText:
    """One file of ids, open for reading. Raises UsageError for what cannot be one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._shown = shown_path(path)
        try:
            self._descriptor = open_plain(path)
        except FileNotFoundError:
            raise UsageError(
                f"There is no {path.name} in {shown_path(path.parent)}, so it is no packed corpus. "
                "Make one with: minagi pack PATHS --out DIR"
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._shown} cannot be read: {reason_of(error)}.") from None
        try:
            self.length = self._measured()
            self.ids(0, min(self.length, HEAD))
        except MinagiError as error:
            self.close()
            raise UsageError(str(error)) from None

    def _measured(self) -> int:
        size = os.fstat(self._descriptor).st_size
        if not size:
            raise UsageError(f"{self._shown} is empty. Pack text into it again.")
        if size % ID.itemsize:
            raise UsageError(
                f"{self._shown} has an odd number of bytes ({size:,}), but every id takes two: "
                "it is cut off, or no packed text. Pack it again."
            )
        return size // ID.itemsize

    def __len__(self) -> int:
        return self.length

    def ids(self, start: int, count: int) -> Ids:
        """`count` ids from place `start` on, both within the file. Raises MinagiError when they are not there
        any more or are none of ours."""
        wanted, pieces = count * ID.itemsize, []
        offset = start * ID.itemsize
        try:
            while wanted and (piece := os.pread(self._descriptor, wanted, offset)):
                pieces.append(piece)
                wanted -= len(piece)
                offset += len(piece)
        except OSError as error:
            raise MinagiError(f"{self._shown} cannot be read: {reason_of(error)}.") from None
        if wanted:
            raise MinagiError(f"{self._shown} became shorter while it was read. Pack it again.")
        ids = np.frombuffer(b"".join(pieces), ID).astype(np.uint16)
        if ids.size and ids.max() >= VOCAB_SIZE:
            place = int(np.argmax(ids >= VOCAB_SIZE))
            raise MinagiError(
                f"{self._shown} holds the id {ids[place]} at place {start + place:,}, and ids go from 0 to "
                f"{VOCAB_SIZE - 1}: it is damaged, or was packed with another alphabet. Pack its text again."
            )
        return ids

    def close(self) -> None:
        """Give the file back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class PackedCorpus:
    """A corpus folder, open: text to read and text to measure. Raises UsageError for what cannot be one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shown = shown_path(folder)
        try:
            status = folder.stat()
        except FileNotFoundError:
            raise UsageError(
                f"There is no corpus folder {shown}. Make one with: minagi pack PATHS --out {shown}"
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{shown} cannot be read: {reason_of(error)}.") from None
        if not stat.S_ISDIR(status.st_mode):
            raise UsageError(f"A corpus is a folder with {TRAIN} and {VAL}, but {shown} is a file.")
        self.train = PackedText(folder / TRAIN)
        try:
            self.val = PackedText(folder / VAL)
        except UsageError:
            self.train.close()
            raise

    def close(self) -> None:
        """Give both files back."""
        self.train.close()
        self.val.close()
