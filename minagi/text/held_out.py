"""Keeping text back for measuring: about a twentieth of every subject, the same at every start.

Whole files are kept back, chosen by a hash of their path below the subject's root, so that neither
the order of a listing nor the place of the folder matters. Where no file has a fitting size (a
subject of one file, or of few large ones) a piece from the middle of the largest is kept back instead:
what a file begins and ends with is the most like what is read and written next to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from minagi.text.corpus import Choice, Subject, TextGoneError, TextSpan, read_span

SHARE = 0.05
SHARE_MAX = 0.5
FEWEST = 64  # characters worth measuring or reading on
ENOUGH = 256  # characters a subject must have to give any up


def split(
    name: str, root: Path, files: Sequence[TextSpan], recorded: Choice, share: float = SHARE
) -> tuple[Subject, Choice]:
    """Divide whole files into text to read and text held out, about `share` of it (at most half).

    `recorded` is the choice of an earlier start: where it names text of this subject that is still
    there (and is not most of it), exactly that stays held out and everything new is read. Returns the
    subject and its choice, where [0, 0] says of a file that what was recorded of it is read now. Of files
    that vanished it says nothing: they may come back.
    """
    keys = {span.path: f"{name}/{_relative(span.path, root)}" for span in files}
    there = _still_there(files, keys, recorded)
    fits = FEWEST <= sum(span.chars for span in there) <= sum(file.chars for file in files) / 2
    kept = there if fits else _choose(files, keys, share)
    kept.sort(key=lambda span: keys[span.path])
    held = {span.path: span for span in kept}
    train = []
    for file in files:
        if file.path not in held:
            train.append(file)
            continue
        out = held[file.path]
        around = (TextSpan(file.path, file.start, out.start), TextSpan(file.path, out.stop, file.stop))
        train += [span for span in around if span.chars >= FEWEST]
    choice = {keys[span.path]: [0, 0] for span in there if kept}
    choice |= {keys[span.path]: [span.start, span.stop] for span in kept}
    return Subject(name, root, tuple(train), tuple(kept)), choice


def _relative(path: Path, root: Path) -> str:
    if path == root:
        return path.name
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()  # by a link


def _still_there(files: Sequence[TextSpan], keys: dict[Path, str], recorded: Choice) -> list[TextSpan]:
    kept = []
    for file in files:
        start, stop = recorded.get(keys[file.path], (0, 0))
        if file.start <= start < min(stop, file.stop):
            kept.append(TextSpan(file.path, start, min(stop, file.stop)))
    return kept


def _choose(files: Sequence[TextSpan], keys: dict[Path, str], share: float) -> list[TextSpan]:
    total = sum(file.chars for file in files)
    if total < ENOUGH:
        return []
    wanted = max(share * total, min(FEWEST, total / 5))
    most = min(2 * share, (1 + share) / 2) * total  # that whole files may add up to
    kept: list[TextSpan] = []
    taken = 0
    for file in sorted(files, key=lambda file: _hash(keys[file.path])):
        if taken >= wanted:
            break
        if taken + file.chars <= most:
            kept.append(file)
            taken += file.chars
    if taken >= wanted / 2:
        return kept
    left = set(files) - set(kept)
    largest = max(left, key=lambda file: (file.chars, keys[file.path]))
    length = int(wanted - taken)
    middle = largest.start + (largest.chars - length) // 2
    start, stop = (_boundary(largest, place) for place in (middle, middle + length))
    return [*kept, TextSpan(largest.path, start, stop)]


def _hash(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _boundary(file: TextSpan, cut: int) -> int:
    """The first place from `cut` on where no UTF-8 character is cut in two."""
    try:
        near = read_span(file, cut - file.start, 4)
    except TextGoneError:
        return cut  # the reader will find out
    return cut + next((i for i, byte in enumerate(near) if byte & 0xC0 != 0x80), 0)
