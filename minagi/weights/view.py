"""One whole checkpoint of a weights directory, as someone who only reads sees it.

Beside a live writer the files in place may change at any moment, and during a commit they belong to two
checkpoints. Snapshots never change. So a reader looks for the snapshot that the files in place are, or are
about to become, pins it, and reads that. A directory without such a snapshot (from another program, or
not yet saved by this one) is read in place, each file compared with what it was in the beginning.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from minagi.errors import WeightsError
from minagi.weights import commit, files, layout, snapshots, tensors
from minagi.weights.faults import LINK, FileFault, Missing, Unreadable
from minagi.weights.layout import Model, Places
from minagi.weights.npz import check_npz

T = TypeVar("T")
Identity = tuple[int, int, int, int]
_TRIES = 20
# What a folder without a model may hold: what came with it, and what a stream told before it saved.
_BESIDE = (layout.MANIFEST, "README.md", "events.jsonl", "history.jsonl")


@dataclass
class View:
    """Files of one checkpoint in `folder`; `model` is None where no model has been made."""

    places: Places
    folder: Path
    manifest: dict[str, Any]
    model: Model | None
    seen: dict[str, Identity] | None = None  # what each file was; None when they cannot change
    pin: int | None = None

    def read(self, name: str, reader: Callable[[Path], T]) -> T:
        """`reader` of file `name`, of this checkpoint for certain. FileFault for what is wrong with it."""
        for _ in range(2):
            if self._unchanged(name):
                try:
                    result = reader(self.folder / name)
                except FileFault:
                    if self._unchanged(name):
                        raise
                else:
                    if self._unchanged(name):
                        return result
            self._pin_elsewhere()
        raise self._moved()

    def has(self, name: str) -> bool:
        """Whether file `name` is one of this checkpoint, wherever its folder is by now."""
        return (self.folder / name).exists() if self.seen is None else name in self.seen

    def made(self) -> Model:
        """The model; WeightsError where none has been made."""
        if self.model is None:
            raise WeightsError(f"{self.places.root} holds no model yet. Let one be made first.")
        return self.model

    def close(self) -> None:
        """Lets the snapshot go."""
        if self.pin is not None:
            os.close(self.pin)
            self.pin = None

    def _unchanged(self, name: str) -> bool:
        return self.seen is None or files.identity(self.folder / name) == self.seen.get(name)

    def _pin_elsewhere(self) -> None:
        """The files in place were replaced: goes on with the snapshot that kept them."""
        seen = self.seen or {}
        for number in snapshots.numbers(self.places.snapshots):
            folder = self.places.snapshots / snapshots.folder_name(number)
            if all(files.identity(folder / name) == known for name, known in seen.items()):
                self.pin = snapshots.pin(folder)
                if self.pin is not None:
                    self.folder, self.seen = folder, None
                    return
        raise self._moved()

    def _moved(self) -> WeightsError:
        return WeightsError(
            f"{self.places.root} was changed by another program while it was being read. Start again."
        )


def load(folder: Path) -> tuple[dict[str, Any], Model | None, dict[str, Identity]]:
    """Manifest, model (None when none has been made) and the identity of each file of a directory.

    Every file is opened and the shapes of its tensors are compared with the manifest; no tensor is read.
    """
    names = _names(folder)
    if layout.CORE not in names:
        others = [n for n in names if n not in _BESIDE and not _is_empty(folder / n)]
        if others:
            shown = ", ".join(others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")
            raise WeightsError(
                f"{folder} has no {layout.CORE} but holds {shown}: part of a model, or something else. "
                f"Restore {layout.CORE}, or name an empty directory for a new model."
            )
        manifest = _manifest(folder) if layout.MANIFEST in names else {}
        layout.check_shape(folder / layout.MANIFEST, manifest, complete=False)
        return manifest, None, {}
    manifest = _manifest(folder)
    experts = folder / layout.EXPERTS
    model = layout.read_model(
        folder / layout.MANIFEST, manifest, _names(experts) if _is_folder(experts) else ()
    )
    seen = {}
    for name in model.files:
        if name == layout.OPTIM and name not in names:
            continue
        seen[name] = tensors.survey(folder / name, name, model.shape)
    return manifest, model, seen


def look(root: Path) -> View:
    """A whole checkpoint of the directory `root`, which is made if it must be; writes nothing."""
    places = Places(root)
    for _ in range(_TRIES):
        before = _moment(places)
        try:
            view = _look_once(places)
        except WeightsError:
            if _moment(places) == before:
                raise
            continue
        if view.pin is not None or _moment(places) == before:
            return view
        view.close()
    raise WeightsError(f"{root} changes faster than it can be read. Try again.")


def _look_once(places: Places) -> View:
    for folder in (places.private, places.snapshots):
        _is_folder(folder)  # refuses a link
    journal = commit.read_journal(places)
    if journal is not None:
        folder = places.snapshots / snapshots.folder_name(journal.number)
        if files.identity(folder) is None:
            folder = places.incoming  # a writer died before it moved; whoever recovers will move it
            if files.identity(folder) is None:
                raise FileFault(places.journal, f"names snapshot {journal.number}, which is gone")
            manifest, model, seen = load(folder)
            return View(places, folder, manifest, model, seen)
        if (view := _pinned(places, folder)) is None:
            raise Missing(folder)
        return view
    if files.identity(places.root) is None:
        return View(places, places.root, {}, None)
    manifest, model, seen = load(places.root)
    snapshot = snapshots.matching(places.snapshots, places.root, seen) if model is not None else None
    if snapshot is not None and (view := _pinned(places, snapshot.folder)) is not None:
        return view
    return View(places, places.root, manifest, model, seen)


def _pinned(places: Places, folder: Path) -> View | None:
    """The view of a snapshot that stays for as long as it is read; None when it is leaving."""
    pin = snapshots.pin(folder)
    if pin is None:
        return None
    try:
        snapshots.read(folder)
        manifest, model, _ = load(folder)
    except BaseException:
        os.close(pin)
        raise
    return View(places, folder, manifest, model, None, pin)


def _moment(places: Places) -> tuple[object, ...]:
    """Changes whenever a commit begins or ends, and when its snapshot moves to where it stays."""
    incoming = files.identity(places.incoming)
    journal, manifest = files.identity(places.journal), files.identity(places.root / layout.MANIFEST)
    return journal, manifest, incoming and incoming[:2]


def _names(folder: Path) -> list[str]:
    """What lies in a folder, hidden things left out."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except NotADirectoryError:
        raise FileFault(folder, "is a file, and a directory was expected", "Name a directory.") from None
    except OSError as error:
        raise Unreadable(folder, error) from None


def _is_folder(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    if stat.S_ISLNK(mode):
        raise FileFault(path, LINK)
    return stat.S_ISDIR(mode)


def _is_empty(path: Path) -> bool:
    return path.name == layout.EXPERTS and _is_folder(path) and not _names(path)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / layout.MANIFEST
    return layout.parse_manifest(path, files.read_small(path, layout.MANIFEST_MAX))


# ------------------------------------------------------------------------------------------ remedies


@contextmanager
def remedied(places: Places) -> Iterator[None]:
    """Completes the FileFaults raised within by what to do about the file."""
    try:
        yield
    except FileFault as fault:
        if fault.remedy:
            raise
        path, name = _public(places, fault.path)
        raise fault.mended(path, remedy(places, name)) from None


def remedy(places: Places, name: str) -> str:
    """What to do about a damaged file `name` of the directory: a snapshot that has it whole, or a copy."""
    here = files.identity(places.root / name)
    for number in snapshots.numbers(places.snapshots):
        folder = places.snapshots / snapshots.folder_name(number)
        try:
            snapshot = snapshots.read(folder)
            if not layout.is_model_file(name):  # a journal that cannot be read: any whole checkpoint will do
                return _go_back(places, number)
            there = files.identity(folder / name)
            if name not in snapshot.files or there is None or (here is not None and there[:2] == here[:2]):
                continue
            if files.fingerprint(folder / name) == snapshot.files[name]:
                if name.endswith(".npz"):
                    check_npz(folder / name)
                return _go_back(places, number)
        except WeightsError:
            continue
    return f"Restore it from a copy of the model, or move {places.root} aside to begin a new one."


def _go_back(places: Places, number: int) -> str:
    return f"Go back to snapshot {number} with `minagi revert {places.root} --to {number}`."


def _public(places: Places, path: Path) -> tuple[Path, str]:
    """The path in the public layout, and below the directory, of a file that a snapshot may share."""
    for folder in (places.incoming, *places.snapshots.glob("*"), places.root):
        if path.is_relative_to(folder) and layout.is_model_file(name := str(path.relative_to(folder))):
            return places.root / name, name
    return path, ""
