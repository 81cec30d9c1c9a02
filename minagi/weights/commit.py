"""How the files of one checkpoint replace those of another, all of them or none.

A checkpoint is made whole as a snapshot folder first. Then the directory's own files become those of that
snapshot; a revert is the same step towards an older snapshot. The order of things:

1. Build the snapshot in `incoming/`: changed files written and synced, unchanged ones linked; sync
   the folders.
2. Give the files that will change a second name in `staged/`, so that nothing after this needs space.
3. Write `journal.json` beside, sync it, rename it into place, sync its folder. THIS IS THE COMMIT.
4. Move `incoming/` into `snapshots/`, rename each staged file into place, remove the files that went, sync.
5. Remove the journal.

Whoever opens the directory for writing after a crash finds a journal and does steps 4 and 5, which may be
repeated any number of times, or finds none and throws away what 1 and 2 left. No file of the model is ever
written in place, so the links that snapshots share stay true.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from minagi.weights import files, layout, snapshots
from minagi.weights.faults import FileFault
from minagi.weights.layout import Places
from minagi.weights.snapshots import Snapshot, SnapshotInfo

_JOURNAL_MAX = 1 << 26


@dataclass(frozen=True)
class Journal:
    """A commit under way: files of snapshot `number` replace those in place, and the files of `remove` go."""

    number: int
    replace: list[str]
    remove: list[str]


class Builder:
    """A snapshot in the making, in `incoming/`."""

    def __init__(self, places: Places) -> None:
        self.folder = places.incoming
        self._contents: dict[str, tuple[int, int]] = {}
        files.remove_tree(self.folder)
        files.make_folder(self.folder)
        files.make_folder(self.folder / layout.EXPERTS)

    def keep(self, name: str, source: Path, known: tuple[int, int] | None = None) -> None:
        """Takes an unchanged file over from `source`; `known` is its fingerprint where that is known."""
        files.link_or_copy(source, self.folder / name)
        self._contents[name] = known or files.fingerprint(source)

    def made(self, name: str) -> None:
        """Counts a file that was just written into the folder."""
        self._contents[name] = files.fingerprint(self.folder / name)

    def seal(self, info: SnapshotInfo) -> Snapshot:
        """Completes the folder: all of it is on the disk afterwards."""
        snapshots.write_meta(self.folder, info, self._contents)
        files.fsync_folder(self.folder / layout.EXPERTS)
        files.fsync_folder(self.folder)
        return Snapshot(self.folder, info, self._contents)


def keep_present(places: Places, model: layout.Model, kind: str, name: str, at: float) -> Snapshot:
    """Makes a snapshot of the files that are in place."""
    number = snapshots.next_number(places.snapshots)
    builder = Builder(places)
    for file in present_files(places, model):
        builder.keep(file, places.root / file)
    same = found_present(places, model)  # one more of a state that is kept already came about as that did
    info = snapshots.describe(model, number, kind, name, at)
    sealed = builder.seal(replace(info, ways=same.info.ways if same is not None else ()))
    folder = places.snapshots / snapshots.folder_name(number)
    files.rename(places.incoming, folder)
    files.fsync_folder(places.snapshots)
    return Snapshot(folder, sealed.info, sealed.files)


def kept_present(places: Places, model: layout.Model, kind: str = "auto") -> Snapshot:
    """The snapshot that the files in place are; made as one of `kind`, of links alone, if there is none."""
    at = (places.root / layout.MANIFEST).stat().st_mtime
    return found_present(places, model) or keep_present(places, model, kind, "", at)


def found_present(places: Places, model: layout.Model) -> Snapshot | None:
    """The newest snapshot that the files in place are."""
    return snapshots.matching(places.snapshots, places.root, present_files(places, model))


def present_files(places: Places, model: layout.Model) -> list[str]:
    """The model's files that exist: optim.npz is not in every directory."""
    return [name for name in model.files if name != layout.OPTIM or (places.root / name).exists()]


def commit(places: Places, snapshot: Snapshot, replace: Iterable[str], remove: Iterable[str]) -> None:
    """Makes files `replace` those of `snapshot` (sealed in `incoming/`, or kept); the files `remove` go.

    After an OSError `recover` must come before anything else: it completes the step, or undoes it.
    """
    files.remove_tree(places.staged)
    files.make_folder(places.staged)
    journal = Journal(int(snapshot.info.id), list(replace), sorted(remove))
    for name in journal.replace:
        files.link_or_copy(snapshot.folder / name, places.staged / Path(name).name)
    draft = places.journal.with_suffix(".draft")
    files.remove_tree(draft)
    files.write_file(draft, [json.dumps(asdict(journal)).encode()])
    files.rename(draft, places.journal)
    files.fsync_folder(places.private)
    _finish(places, journal)


def read_journal(places: Places) -> Journal | None:
    """The commit under way, if there is one. FileFault when its journal makes no sense."""
    if files.identity(places.journal) is None:
        return None
    body = layout.parse_manifest(places.journal, files.read_small(places.journal, _JOURNAL_MAX))
    number, replace, remove = (body.get(key) for key in ("number", "replace", "remove"))
    if (
        not isinstance(number, int)
        or number < 0
        or not isinstance(replace, list)
        or not isinstance(remove, list)
    ):
        raise FileFault(places.journal, "is damaged")
    for name in (*replace, *remove):
        if not isinstance(name, str) or not layout.is_model_file(name):
            raise FileFault(places.journal, f"names {layout.shown(name)}, which is no file of a model")
    return Journal(number, replace, remove)


def recover(places: Places) -> None:
    """Completes the commit that was under way, or throws away what was only prepared."""
    journal = read_journal(places)
    if journal is not None:
        files.fsync_folder(places.private)  # found is not synced: a power cut might still take it
        _finish(places, journal)
    for leftover in (places.incoming, places.staged, places.trash, places.journal.with_suffix(".draft")):
        files.remove_tree(leftover)


def _finish(places: Places, journal: Journal) -> None:
    """Steps 4 and 5; repeatable."""
    folder = places.snapshots / snapshots.folder_name(journal.number)
    if files.identity(folder) is None:
        if files.identity(places.incoming) is None:
            raise FileFault(places.journal, f"names snapshot {journal.number}, which is gone")
        files.rename(places.incoming, folder)
        files.fsync_folder(places.snapshots)
        files.fsync_folder(places.private)
    snapshot = snapshots.read(folder)
    files.make_folder(places.root / layout.EXPERTS)
    for name in journal.replace:
        _place(places, snapshot, name)
    for name in journal.remove:
        if name not in snapshot.files:
            files.remove_tree(places.root / name)
    files.fsync_folder(places.root / layout.EXPERTS)
    files.fsync_folder(places.root)
    files.remove_tree(places.journal)
    files.fsync_folder(places.private)
    with suppress(OSError):  # done; what stays here is cleared by the next commit
        files.remove_tree(places.staged)


def _place(places: Places, snapshot: Snapshot, name: str) -> None:
    staged = places.staged / Path(name).name
    if files.identity(staged) is None:
        if snapshots.shared(places.root / name, snapshot, name):
            return  # it was put in place before
        files.make_folder(places.staged)  # lost with a folder entry that was not synced
        files.link_or_copy(snapshot.folder / name, staged)
    files.rename(staged, places.root / name)
