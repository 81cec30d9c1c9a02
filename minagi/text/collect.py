"""Finding the text under the given paths, and saying what was passed over and why.

Nothing found here ends a run: what cannot be read is counted under a reason in words. Only when
nothing at all is left to read is that an error.
"""

from __future__ import annotations

import codecs
import itertools
import os
import stat
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from minagi.errors import UsageError
from minagi.text import held_out as splitting
from minagi.text.corpus import Choice, Corpus, Subject, TextSpan, open_plain, reason_of, shown_path

# Folders of tools and what they make; every hidden one (.git, .venv) is skipped besides.
SKIPPED_FOLDERS = frozenset(["__pycache__", "node_modules", "venv", "build", "dist"])
_ENDINGS = """
.7z .a .aac .ai .apk .avi .bin .bmp .bz2 .class .db .deb .dll .dmg .doc .docx .dylib .egg .eot .epub
.exe .flac .gif .gz .h5 .heic .ico .iso .jar .jpeg .jpg .lz4 .m4a .mkv .mo .mov .mp3 .mp4 .mpg .npy .npz
.o .odt .ogg .onnx .opus .otf .parquet .pdf .pickle .pkl .png .ppt .pptx .psd .pt .pth .pyc .pyd .pyo
.rar .rpm .safetensors .so .sqlite .sqlite3 .tar .tgz .tif .tiff .ttf .wasm .wav .webm .webp .whl .woff
.woff2 .xls .xlsx .xz .zip .zst
"""
BINARY_ENDINGS = frozenset(_ENDINGS.split())
SAMPLE_BYTES = 4_096
PRINTABLE_SHARE = 0.9
FEWEST_FILE_BYTES = 64  # a shorter file makes no window worth a step
FEWEST_CORPUS_BYTES = 256  # less than this is nothing to learn from
MAX_FILE_BYTES = 8 * 2**30
EXAMPLES = 10  # paths kept for each reason
TRANSCRIPT_NAME = "the chat"  # as a subject


class Found(NamedTuple):
    """A plain file met on the walk, not opened yet."""

    path: Path
    size: int  # bytes
    mtime_ns: int
    root: Path  # of its subject: a folder, or the file itself


@dataclass
class Skipped:
    """Counts what is passed over, by reason."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    def add(self, reason: str, path: Path) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        kept = self.examples.get(reason, ())
        if len(kept) < EXAMPLES:
            self.examples[reason] = (*kept, path)


def collect(
    paths: Sequence[Path],
    held_out: Path | None = None,
    recorded: Mapping[str, object] | None = None,
    exclude: Sequence[Path] = (),
    follow_symlinks: bool = False,
    max_file_bytes: int = MAX_FILE_BYTES,
    share: float = splitting.SHARE,
    transcript: Path | None = None,
) -> Corpus:
    """Every text under `paths`, by subject, with its part held out: about `share` of each subject.

    `held_out` is a folder of text that is measured and never read; where it is not there, or holds
    no text, a part of each subject is kept back instead: the one `recorded` by an earlier start
    (`Corpus.choice`) where that still exists. Folders in `exclude` are not entered: the weights and
    the records of the run may lie below the paths. The `transcript` of what was said with the model, where
    there is one, is a subject of its own that nothing is held out of, so that readings stay comparable
    while it grows. Raises UsageError when there is nothing else to read.
    """
    skipped = Skipped()
    apart = _gather([held_out] if held_out else [], Skipped(), (), follow_symlinks, max_file_bytes)
    measured = {span.path for _, files in apart.values() for span in files}
    subjects: list[Subject] = []
    choice: Choice = {}
    earlier = _valid_choice(recorded or {})
    for name, (root, files) in _gather(paths, skipped, exclude, follow_symlinks, max_file_bytes).items():
        files = [span for span in files if span.path not in measured]
        if measured:
            out = tuple(apart.pop(name, (root, []))[1])
            subject = Subject(name, root, tuple(files), out)
        else:
            subject, kept = splitting.split(name, root, files, earlier, share)
            choice.update(kept)
        if subject.train or subject.held_out:
            subjects.append(subject)
    subjects += [Subject(name, root, (), tuple(files)) for name, (root, files) in apart.items()]
    given = tuple(path.absolute() for path in paths)
    corpus = Corpus(tuple(subjects), skipped.counts, skipped.examples, choice, given)
    found = corpus.chars + (0 if measured else corpus.held_out_chars)
    if found < FEWEST_CORPUS_BYTES:
        raise UsageError(_nothing(paths, found, skipped))
    if transcript is not None and (file := find_transcript(transcript)) and file.size >= FEWEST_FILE_BYTES:
        name = _unused(TRANSCRIPT_NAME, {subject.name for subject in subjects})
        spoken = Subject(name, transcript, (TextSpan(transcript, 0, file.size),), ())
        corpus = replace(corpus, subjects=(*corpus.subjects, spoken))
    return corpus


def find_transcript(path: Path) -> Found | None:
    """The transcript as a file met on a walk; None where there is none, or a link in its place."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return Found(path, status.st_size, status.st_mtime_ns, path) if stat.S_ISREG(status.st_mode) else None


def collect_to_measure(paths: Sequence[Path]) -> Corpus:
    """Every text under `paths` as held-out text, however short. Raises UsageError when there is none."""
    skipped = Skipped()
    for path in paths:
        _check_exists(path)
    found = _gather(paths, skipped, (), False, MAX_FILE_BYTES, fewest=2)
    if not found:
        raise UsageError(_nothing(paths, 0, skipped))
    subjects = tuple(Subject(name, root, (), tuple(files)) for name, (root, files) in found.items())
    return Corpus(subjects, skipped.counts, skipped.examples)


def check_paths(paths: Sequence[Path]) -> None:
    """Raise UsageError, one sentence, when there is nothing to read. Stops at the first text found."""
    if not paths:
        raise UsageError("Name a folder or a file to read.")
    for path in paths:
        _check_exists(path)
    skipped = Skipped()
    found = 0
    for file in walk(paths, skipped):
        reason = judge(file)
        if reason:
            skipped.add(reason, file.path)
            continue
        found += file.size
        if found >= FEWEST_CORPUS_BYTES:
            return
    raise UsageError(_nothing(paths, found, skipped))


# ---------------------------------------------------------------------------------------------- walk


def walk(
    paths: Sequence[Path], skipped: Skipped, exclude: Sequence[Path] = (), follow_symlinks: bool = False
) -> Iterator[Found]:
    """Plain files under `paths`, each once, in sorted order; nothing is opened.

    A given path counts whatever its name, and when it is a link, what it points to.
    """
    seen: set[Path] = set()
    barred = _identities(exclude)
    for given in paths:
        try:
            root = given.resolve(strict=True)
            status = root.stat()
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links, before 3.13
            skipped.add("vanished" if isinstance(error, FileNotFoundError) else "unreadable", given)
            continue
        if stat.S_ISDIR(status.st_mode):
            found = _walk_folder(root, skipped, set(barred), follow_symlinks)
        elif stat.S_ISREG(status.st_mode):
            found = iter([Found(root, status.st_size, status.st_mtime_ns, root)])
        else:
            skipped.add("not a plain file", given)
            continue
        for file in found:
            if file.path not in seen:
                seen.add(file.path)
                yield file


def _walk_folder(top: Path, skipped: Skipped, entered: set[tuple[int, int]], follow: bool) -> Iterator[Found]:
    """Files of `top` and below. A loop and not a recursion, since folders nest deeper than Python does.

    Folders in `entered` (device, inode) are left out; each one entered joins it, so that links cannot
    lead in circles.
    """
    stack = [(top, top)]  # folder, root of its subject
    while stack:
        folder, subject = stack.pop()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in entered:
                continue
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            skipped.add("vanished" if isinstance(error, FileNotFoundError) else "unreadable", folder)
            continue
        entered.add((status.st_dev, status.st_ino))
        below: list[tuple[Path, Path]] = []
        for entry in entries:
            found = _look_at(entry, folder, skipped, follow)
            if isinstance(found, Path):
                below.append((found, found if folder == top else subject))
            elif found is not None:
                yield found._replace(root=subject)
        stack += reversed(below)


def _identities(paths: Sequence[Path]) -> set[tuple[int, int]]:
    identities = set()
    for path in paths:
        try:
            status = path.stat()
        except (OSError, ValueError):
            continue  # what does not exist need not be kept out
        identities.add((status.st_dev, status.st_ino))
    return identities


def _look_at(entry: os.DirEntry[str], folder: Path, skipped: Skipped, follow: bool) -> Found | Path | None:
    """A file, a folder to go into (its path), or None for what is passed over."""
    path = folder / entry.name
    try:
        if entry.is_symlink():
            if not follow:
                skipped.add("a link", path)
                return None
            path = path.resolve(strict=True)
        status = entry.stat(follow_symlinks=follow)
    except (OSError, RuntimeError):
        skipped.add("vanished", path)
        return None
    if stat.S_ISDIR(status.st_mode):
        return None if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS else path
    if entry.name.startswith("."):
        skipped.add("hidden", path)
    elif not stat.S_ISREG(status.st_mode):
        skipped.add("not a plain file", path)
    else:
        return Found(path, status.st_size, status.st_mtime_ns, folder)
    return None


# --------------------------------------------------------------------------------------------- files


def judge(file: Found, max_file_bytes: int = MAX_FILE_BYTES, fewest: int = FEWEST_FILE_BYTES) -> str:
    """Why a file is passed over, in words; "" for text. Opens it for its first 4,096 bytes at most."""
    if file.size == 0:
        return "empty"
    if file.path.suffix.lower() in BINARY_ENDINGS:
        return "binary"
    if file.size < fewest:
        return f"shorter than {fewest} characters"
    if file.size > max_file_bytes:
        return f"larger than {max_file_bytes / 2**30:g} GiB"
    try:
        descriptor = open_plain(file.path)
        try:
            sample = os.read(descriptor, SAMPLE_BYTES)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return "vanished"
    except OSError:
        return "unreadable"
    return judge_sample(sample)


def judge_sample(sample: bytes) -> str:
    """Why the first bytes of a file are no text, in words; "" when they are."""
    if b"\0" in sample:
        return "binary"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(sample)  # the last character may be cut
    except UnicodeDecodeError:
        return "not UTF-8"
    text = text.replace("\n", "").replace("\r", "").replace("\t", "")
    if text.isprintable():
        return ""
    # Joiners and marks of direction are of category Cf: no sign of their own, but part of writing.
    printable = sum(c.isprintable() or c.isspace() or unicodedata.category(c) == "Cf" for c in text)
    return "" if printable > PRINTABLE_SHARE * len(text) else "mostly unprintable"


def _gather(
    paths: Sequence[Path],
    skipped: Skipped,
    exclude: Sequence[Path],
    follow: bool,
    max_file_bytes: int,
    fewest: int = FEWEST_FILE_BYTES,
) -> dict[str, tuple[Path, list[TextSpan]]]:
    """Text by subject, in the order met: unique name -> (root, whole files)."""
    by_root: dict[Path, list[TextSpan]] = {}
    for file in walk(paths, skipped, exclude, follow):
        reason = judge(file, max_file_bytes, fewest)
        if reason:
            skipped.add(reason, file.path)
        else:
            by_root.setdefault(file.root, []).append(TextSpan(file.path, 0, file.size))
    named: dict[str, tuple[Path, list[TextSpan]]] = {}
    for root, files in by_root.items():
        # like-named folders of two paths stay two subjects
        named[_unused(shown_path(root.name or str(root)), named)] = (root, files)
    return named


def _unused(name: str, used: Collection[str]) -> str:
    """`name`, or with the first number that makes it another than all that are `used`."""
    numbered = (f"{name} ({number})" for number in itertools.count(2))
    return name if name not in used else next(one for one in numbered if one not in used)


def _valid_choice(recorded: Mapping[str, object]) -> Choice:
    """What of a recorded choice can be used; it comes from a file and may hold anything."""
    valid: Choice = {}
    for key, span in recorded.items():
        if isinstance(span, (list, tuple)) and len(span) == 2 and all(type(n) is int for n in span):
            valid[key] = list(span)
    return valid


# ------------------------------------------------------------------------------------------ sentences


def _check_exists(path: Path) -> None:
    shown = shown_path(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as listing:
                next(listing, None)
        elif stat.S_ISREG(status.st_mode):
            os.close(open_plain(path))
        else:
            raise UsageError(f"{shown} is neither a folder nor a plain file, so it cannot be read.")
    except FileNotFoundError:
        if path.is_symlink():
            raise UsageError(f"{shown} is a link to something that does not exist.") from None
        raise UsageError(f"{shown} does not exist. Name a folder or a file to read.") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown} cannot be read: {reason_of(error)}.") from None


def _nothing(paths: Sequence[Path], chars: int, skipped: Skipped) -> str:
    """The sentence for paths that hold no text, or not enough."""
    where = " and ".join(shown_path(path) for path in paths[:3])
    if len(paths) > 3:
        where += f" and {len(paths) - 3} more"
    passed = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.counts.items()))
    if chars:
        return f"{where} holds only {chars} characters of text; at least {FEWEST_CORPUS_BYTES} are needed."
    if not passed:
        return f"{where} holds no files to read. Put text into it, or name another folder."
    return f"{where} holds no text to read: what is there was passed over ({passed})."
