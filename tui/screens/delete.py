"""Before a kept checkpoint goes: which one it is, what that gives back, and Cancel first."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from minagi.protocol import SNAPSHOT_KINDS, ListSnapshots
from tui import words
from tui.panes.base import Frame
from tui.screens.dialog import Dialog
from tui.state import AppState, Snapshot

NEEDED = "The model goes on from it: it can be deleted once another one is saved."


class DeleteScreen(Dialog[str]):
    """Answers the id of the snapshot meant by an id or a name, or None."""

    heading = "Delete a checkpoint?"
    choices = (("cancel", "Cancel"), ("delete", "Delete"))

    def __init__(self, frame: Frame, wanted: str) -> None:
        super().__init__()
        self._frame, self._wanted = frame, wanted
        self._found: Snapshot | None = None
        self._kept: tuple[Snapshot, ...] | None = None  # the last list that came

    def body(self) -> Iterable[Widget]:
        self._text = Static(Content("Asking for the list…"), id="deletion")
        yield self._text

    def on_mount(self) -> None:
        self.show(self._frame)

    def show(self, frame: Frame) -> None:
        self._frame = frame
        self._kept = kept = self._kept if frame.state.snapshots is None else frame.state.snapshots
        self._found = found = named(kept or (), self._wanted)
        if kept is None:
            asked = any(pending.command.type == ListSnapshots.type for pending in frame.state.pending)
            text = "Asking for the list…" if asked else "The list did not come; the log says why."
        elif found is None:
            text = f"There is no checkpoint “{self._wanted}”."
        else:
            text = NEEDED if needed(found, frame.state) else what_becomes(found, frame)
        self._text.update(Content(text))

    def answer(self, choice: str) -> None:
        if choice == "cancel":
            self.dismiss(None)
        elif self._found is not None and not needed(self._found, self._frame.state):
            self.dismiss(self._found.id)


def named(kept: Iterable[Snapshot], wanted: str) -> Snapshot | None:
    """The snapshot with this id, or else the newest with this name."""
    kept = tuple(kept)
    return next((s for s in kept if s.id == wanted), None) or next(
        (s for s in kept if s.name == wanted), None
    )


def needed(snapshot: Snapshot, state: AppState) -> bool:
    """Whether the present goes on from it, so that it stays. Not known since the last save or revert."""
    return state.snapshots is not None and snapshot.id == state.present


def what_becomes(snapshot: Snapshot, frame: Frame) -> str:
    """What deleting it means, in sentences."""
    name = f"“{snapshot.name}”" if snapshot.name else SNAPSHOT_KINDS.get(snapshot.kind, snapshot.kind)
    ago = words.ago(max(0.0, frame.now - snapshot.at))
    size = words.size(snapshot.bytes_freed)
    return (
        f"{words.sentence(name)[:-1]}, step {snapshot.step:,}, {ago}. Deleting it gives back {size}; what "
        "other checkpoints share stays. It cannot be undone; the model as it is does not change."
    )
