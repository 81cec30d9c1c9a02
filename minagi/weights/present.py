"""The files in place, as a model: what they hold, which snapshot they are, and how they become another's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from minagi.errors import UsageError, WeightsError
from minagi.weights import commit, snapshots
from minagi.weights.faults import FileFault, Missing
from minagi.weights.layout import Model, Places
from minagi.weights.snapshots import Snapshot
from minagi.weights.view import View, load, look, remedied


class Left(NamedTuple):
    """What became of the state that a revert left."""

    undo: str = ""  # the snapshot that has it; "" where nothing changed by going back, or none could be made
    fault: WeightsError | None = None  # why none could


class Present:
    """The model in a weights directory as it stands. Who changes it holds the directory's lock, and sees to
    it that no other thread does so meanwhile; `settle` comes before every change."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._view: View | None = None
        self._fault: WeightsError | None = None  # why the model cannot be read (opened for repair)
        self._standing: str | None = None  # id of the snapshot in place, "" for none; None: look
        self.unsettled = False  # a commit was cut short by an error after its commit point

    # ---------------------------------------------------------------------------------- what it holds

    def read_only(self) -> None:
        """Take what lies there as the model, for one who never writes."""
        with remedied(self._places):
            self._view = look(self._places.root)

    def recover(self, repair: bool) -> None:
        """Complete or undo a commit that was interrupted, and take what lies there as the model. With
        `repair` what is wrong with that is kept, for whoever wants to read it."""
        try:
            with remedied(self._places):
                commit.recover(self._places)
                self._load()
        except WeightsError as fault:
            if not repair:
                raise
            self._fault = fault

    @property
    def view(self) -> View:
        """What the files hold. WeightsError where they cannot be read, UsageError when this was closed."""
        if self._fault is not None:
            raise self._fault
        if self._view is None:
            raise UsageError(f"{self._places.root} was closed already.")
        return self._view

    @property
    def unborn(self) -> bool:
        """Whether no model ever came to this directory."""
        return self._fault is None and self._view is not None and self._view.model is None

    def close(self) -> None:
        """Let go of the files."""
        view, self._view = self._view, None
        if view is not None:
            view.close()

    def _load(self) -> None:
        self._fault = None
        manifest, model, _ = load(self._places.root)
        self._view = View(self._places, self._places.root, manifest, model)

    # -------------------------------------------------------------------------------- which snapshot

    def kept(self, kind: str = "auto") -> Snapshot | None:
        """The snapshot that the files are, made as one of `kind` if there is none; None without a model."""
        if self._view is None or self._view.model is None or self._fault is not None:
            return None
        kept = commit.kept_present(self._places, self._view.model, kind)
        self._standing = kept.info.id
        return kept

    def keep(self, kind: str, name: str, at: float) -> Snapshot:
        """One more snapshot of the files."""
        kept = commit.keep_present(self._places, self.view.made(), kind, name, at)
        self._standing = kept.info.id
        return kept

    @property
    def standing(self) -> str | None:
        """Id of the snapshot that the files are, "" for none; None where that has to be looked for."""
        return self._standing

    def find_standing(self) -> str:
        """Look for it."""
        model = self.view.model
        kept = None if model is None else commit.found_present(self._places, model)
        self._standing = "" if kept is None else kept.info.id
        return self._standing

    # ----------------------------------------------------------------------------------- becoming another

    def settle(self) -> None:
        """Clear up after an attempt that an error cut short."""
        if self.unsettled:
            commit.recover(self._places)
            self._load()
            self.unsettled, self._standing = False, None

    def become(self, snapshot: Snapshot, model: Model, base: Snapshot | None) -> None:
        """Be `snapshot`, which was just built of `model` on what `base` keeps of the files."""
        changed = [n for n in snapshot.files if not snapshots.same(self._places.root / n, snapshot, n)]
        old = set(base.files) if base is not None else set()
        self._commit(snapshot, changed, old - set(snapshot.files))
        self._view = View(self._places, self._places.root, model.manifest, model)
        self._fault = None
        self._standing = snapshot.info.id

    def revert(self, snapshot_id: str) -> Left:
        """Be the snapshot `snapshot_id` again, once the files are kept, if they are sound."""
        root, target = self._places.root, self._sound(snapshot_id)
        left = self._leave(target)
        # A file in place that only looks the same may be the damaged one, so all of them come back.
        other = [n for n in target.files if not snapshots.shared(root / n, target, n)]
        self._commit(target, other, self._files() - set(target.files))
        self._load()
        self._standing = target.info.id
        return left

    def delete(self, snapshot_id: str) -> None:
        """Remove a snapshot, unless it is the files in place."""
        folder = self._folder_of(snapshot_id)
        if self._fault is None and self.find_standing() == str(int(folder.name)):
            raise UsageError("The model goes on from this checkpoint: save another one before it is deleted.")
        self._standing = None
        if not snapshots.remove(folder, self._places.trash):
            raise WeightsError(f"Snapshot {snapshot_id} is being read by another program. Try later.")

    def _leave(self, target: Snapshot) -> Left:
        """Keep the files before they become those of `target`."""
        if self._fault is not None:
            return Left(fault=self._fault)
        try:
            kept = self.kept("before-revert")
        except WeightsError as error:
            return Left(fault=error)
        except FileNotFoundError as error:  # another program took a part of it away
            return Left(fault=Missing(Path(error.filename)))
        return Left("" if kept is None or kept.info.id == target.info.id else kept.info.id)

    def _commit(self, snapshot: Snapshot, replace: Iterable[str], remove: Iterable[str]) -> None:
        try:
            commit.commit(self._places, snapshot, replace, remove)
        except BaseException:
            self.unsettled = True
            raise

    def _files(self) -> set[str]:
        """The files that are the model's: by its manifest, or, if that cannot be read, by the snapshots."""
        if self._fault is None and self._view is not None:
            return set(self._view.model.files) if self._view.model is not None else set()
        return snapshots.known_files(self._places.snapshots)

    def _sound(self, wanted: str) -> Snapshot:
        """A snapshot that was read against its checksums, and holds a model that opens."""
        folder = self._folder_of(wanted)
        try:
            target = snapshots.read(folder)
            snapshots.check(target, self._places.root)
            load(target.folder)
        except FileFault as fault:
            raise FileFault(fault.path, fault.fault, "Go back to another snapshot.") from None
        return target

    def _folder_of(self, wanted: str) -> Path:
        number = int(snapshots.find(self._places.snapshots, wanted).id)
        return self._places.snapshots / snapshots.folder_name(number)
