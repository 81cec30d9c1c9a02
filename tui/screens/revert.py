"""The revert picker: every snapshot, what going back to it would lose, and Cancel first."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from minagi.protocol import SNAPSHOT_KINDS, ListSnapshots
from tui import words
from tui.panes.base import Frame, fitted, line
from tui.screens.dialog import Dialog
from tui.state import Snapshot

_WIDTH, _BESIDE, _BESIDE_LOW = 84, 8, 6  # columns of the box, and those of its frame and scrollbar
_AGO, _NAME = 15, 22  # columns of a line's beginning


class RevertScreen(Dialog[str]):
    """Answers the id of a snapshot, or None."""

    heading = "Go back to a checkpoint"

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame
        self._shown: tuple[Snapshot, ...] | None = None

    def body(self) -> Iterable[Widget]:
        self._options = OptionList(_cancel(), id="snapshots", markup=False)
        self._text = Static(Content("Asking for the list…"), id="preview")
        yield self._options
        yield self._text

    def on_mount(self) -> None:
        self._options.highlighted = 0
        self.show(self._frame)

    def show(self, frame: Frame) -> None:
        self._frame = frame
        found = frame.state.snapshots
        if found is None and self._shown is None and not _asked(frame):
            self._text.update(Content("The list did not come; the log says why."))
        if found is None or found is self._shown:
            return
        self._shown = found
        self._list(found, 0)
        self._preview(None)

    def _list(self, found: tuple[Snapshot, ...], highlighted: int | None) -> None:
        """Fill the list, as wide as there is room."""
        self._options.clear_options()
        self._options.add_option(_cancel())
        for place, snapshot in enumerate(found):
            self._options.add_option(Option(_row(snapshot, self._frame, self._room), id=str(place)))
        self._options.highlighted = highlighted

    def on_resize(self, event: events.Resize) -> None:
        self.call_later(self._refill)  # once the dialog has taken its new shape

    def _refill(self) -> None:
        if self._shown:
            self._list(self._shown, self._options.highlighted)

    @property
    def _room(self) -> int:
        """Columns of a line of the list."""
        if self.has_class("-low"):
            return max(20, self.size.width - _BESIDE_LOW)
        return max(20, min(_WIDTH, self.size.width * 24 // 25) - _BESIDE)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._preview(self._at(event.option.id))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        snapshot = self._at(event.option.id)
        self.dismiss(snapshot.id if snapshot else None)

    def _at(self, id: str | None) -> Snapshot | None:
        return self._shown[int(id)] if self._shown and id and id.isdigit() else None

    def _preview(self, snapshot: Snapshot | None) -> None:
        if self._shown is None:
            return
        if not self._shown:
            text = "There is no checkpoint yet: s saves one."
        elif snapshot is None:
            text = "Choose one with the arrow keys; what would be lost is told here before anything happens."
        else:
            text = preview(snapshot, self._frame)
        self._text.update(Content(text))


def _cancel() -> Option:
    return Option(Content("Cancel: stay as it is"), id="cancel")


def _asked(frame: Frame) -> bool:
    """Whether an answer is still to come."""
    return any(pending.command.type == ListSnapshots.type for pending in frame.state.pending)


def _row(snapshot: Snapshot, frame: Frame, width: int) -> Content:
    """One snapshot in a line, what fits of it."""
    name = snapshot.name or SNAPSHOT_KINDS.get(snapshot.kind, snapshot.kind)
    held = words.loss(snapshot.held_out, frame.view.bits)
    ago = words.ago(max(0.0, frame.now - snapshot.at))
    column = max(1, min(_NAME, width - _AGO - 1))
    if cell_len(name) > column:
        name = set_cell_size(name, column - 1) + "…"
    items = [
        (0, line(f"{ago:<{_AGO}}")),  # in no colour of its own: the list lays its own under what is chosen
        (1, line((set_cell_size(name, column), "bold" if snapshot.name else ""))),
        (2, line(f"step {snapshot.step:>9,}")),
        (3, line(f"held-out {held}")),
    ]
    return fitted(items, width, " ")


def preview(snapshot: Snapshot, frame: Frame) -> str:
    """What going back would lose, in sentences."""
    state = frame.state
    steps = state.metrics.step - snapshot.step
    chars = state.metrics.chars - snapshot.chars
    read = words.plural(max(0, chars), "character")
    lines = [f"From {_when(snapshot.at)}. Loses {words.plural(max(0, steps), 'step')} and {read} of reading."]
    unit = "bits" if frame.view.bits else "nats"
    now = state.held_out.nats if state.held_out else None
    if snapshot.held_out is not None:
        held = f"Held-out was {words.loss(snapshot.held_out, frame.view.bits)} {unit} then"
        if now is not None:
            better = (
                "better" if now < snapshot.held_out else "worse" if now > snapshot.held_out else "the same"
            )
            held += f" and is {words.loss(now, frame.view.bits)} now, which is {better}"
        lines.append(held + ".")
    else:
        lines.append("Held-out text had not been measured then.")
    lines += _experts(snapshot, frame, chars)
    return "\n".join([*lines, "The present is kept as a snapshot first, so this can be undone."])


def _experts(snapshot: Snapshot, frame: Frame, chars: int) -> list[str]:
    """Who was born since, and who has been pruned since and comes back."""
    experts = frame.state.pool.experts
    if not experts or not snapshot.experts:
        return []
    born = sum(expert.age < chars for expert in experts)
    pruned = max(0, snapshot.experts - (len(experts) - born))
    told = []
    if born:
        told.append(f"{words.plural(born, 'expert')} born since {'is' if born == 1 else 'are'} lost")
    if pruned:
        told.append(
            f"{words.plural(pruned, 'expert')} pruned since {'comes' if pruned == 1 else 'come'} back"
        )
    return [words.sentence(", ".join(told))] if told else ["The experts are the same."]


def _when(at: float) -> str:
    try:
        return time.strftime("%d %B, %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "an unknown time"
