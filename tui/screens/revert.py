"""The revert picker: every snapshot, what going back to it would lose, and Cancel first."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from minagi.protocol import SNAPSHOT_KINDS, Delete, ListSnapshots
from tui import words
from tui.panes.base import Frame, fitted, line
from tui.screens.delete import NEEDED, DeleteScreen, needed
from tui.screens.dialog import Dialog
from tui.state import AppState, Snapshot

_WIDTH, _BESIDE, _BESIDE_LOW = 84, 8, 6  # columns of the box, and those of its frame and scrollbar
_LIST_LEAST, _LIST_MOST, _PREVIEW = 4, 14, 8  # lines of the list, and those below it
_NO_BUTTONS = 2  # lines that other dialogs have for them
_AGO, _NAME = 15, 20  # columns of a line's beginning


class RevertScreen(Dialog[str]):
    """Answers the id of a snapshot, or None. One can be deleted without leaving the list."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("d", "delete", show=False)]
    heading = "Go back to a checkpoint"
    hints = (("↑ ↓", "choose"), ("enter", "go back"), ("d", "delete"), ("esc", "cancel"))

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame
        self._shown: tuple[Snapshot, ...] | None = None
        self._ages: list[str] = []  # as the list tells them
        self._chosen: Snapshot | None = None  # the one whose loss is told

    def body(self) -> Iterable[Widget]:
        self._options = OptionList(_cancel(), id="snapshots", markup=False)
        self._text = Static(Content("Asking for the list…"), id="preview")
        yield self._options
        yield self._text

    def on_mount(self) -> None:
        self._options.highlighted = 0
        self.show(self._frame)

    def show(self, frame: Frame) -> None:
        moved = frame.state.metrics is not self._frame.state.metrics
        self._frame = frame
        self._age()
        found = frame.state.snapshots
        if found is None and self._shown is None and not _asked(frame):
            self._text.update(Content("The list did not come; the log says why."))
        if found is None or found is self._shown:
            if moved and self._chosen is not None:  # it is read on meanwhile, and more would be lost
                self._preview(self._chosen)
            return
        chosen = self._chosen.id if self._chosen is not None else None
        self._shown = found
        place = next((place for place, snapshot in enumerate(found, 1) if snapshot.id == chosen), 0)
        self._list(found, place)
        self._preview(found[place - 1] if place else None)

    def _list(self, found: tuple[Snapshot, ...], highlighted: int | None) -> None:
        """Fill the list, as wide as there is room."""
        self._options.clear_options()
        self._options.add_option(_cancel())
        for place in range(len(found)):
            self._options.add_option(Option(self._line(place), id=str(place)))
        self._ages = [_ago(snapshot, self._frame) for snapshot in found]
        self._options.highlighted = highlighted

    def _age(self) -> None:
        """The list stands open while time goes by: rows are written anew when they tell another age."""
        ages = [_ago(snapshot, self._frame) for snapshot in self._shown or ()]
        for place, (age, before) in enumerate(zip(ages, self._ages, strict=False)):
            if age != before and place + 1 < self._options.option_count:
                self._options.replace_option_prompt_at_index(place + 1, self._line(place))
        self._ages = ages

    def _line(self, place: int) -> Content:
        """A snapshot's row; of several with one name the older ones say so."""
        found = self._shown or ()
        snapshot = found[place]
        newer = sum(other.name == snapshot.name for other in found[:place]) if snapshot.name else 0
        return _row(snapshot, self._frame, self._room, newer)

    def _fit(self, size: Size) -> None:
        """All that is said of the chosen one stays in sight, and the list gives way."""
        super()._fit(size)
        room = self._box.styles.max_height
        lines = (int(room.value) if room is not None else _LIST_MOST) + _NO_BUTTONS
        self._box.styles.max_height = lines
        self._options.styles.max_height = max(_LIST_LEAST, min(_LIST_MOST, lines - _PREVIEW))

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

    def action_delete(self) -> None:
        """Ask once more, then ask the worker; the list it sends takes the place of this one."""

        def delete(id: str | None) -> None:
            if id:
                self.app.ask(Delete, snapshot=id)  # type: ignore[attr-defined]

        if self._chosen is None:
            return
        if needed(self._chosen, self._frame.state):
            self.notify(NEEDED, severity="warning")
        else:
            self.app.push_screen(DeleteScreen(self._frame, self._chosen.id), delete)

    def _at(self, id: str | None) -> Snapshot | None:
        return self._shown[int(id)] if self._shown and id and id.isdigit() else None

    def _preview(self, snapshot: Snapshot | None) -> None:
        self._chosen = snapshot
        if self._shown is None:
            return
        if not self._shown:
            text = f"There is no checkpoint yet: {self._frame.key('checkpoint')} saves one."
        elif snapshot is None:
            text = "Choose one with the arrow keys; what would be lost is told here before anything happens."
        else:
            deleted = f"d deletes it, which gives back {words.size(snapshot.bytes_freed)}."
            if needed(snapshot, self._frame.state):
                deleted = NEEDED
            text = f"{preview(snapshot, self._frame)}\n{deleted}"
        self._text.update(Content(text))


def _cancel() -> Option:
    return Option(Content("Cancel: stay as it is"), id="cancel")


def _asked(frame: Frame) -> bool:
    """Whether an answer is still to come."""
    return any(pending.command.type == ListSnapshots.type for pending in frame.state.pending)


def _ago(snapshot: Snapshot, frame: Frame) -> str:
    return words.ago(max(0.0, frame.now - snapshot.at))


def _row(snapshot: Snapshot, frame: Frame, width: int, newer: int = 0) -> Content:
    """One snapshot in a line, what fits of it. `newer`: how many that came later have its name."""
    left, right = "“”" if snapshot.name else ("", "")  # as the log and the questions write a name
    name = snapshot.name or SNAPSHOT_KINDS.get(snapshot.kind, snapshot.kind)
    held = words.loss(snapshot.held_out, frame.view.bits)
    ago = _ago(snapshot, frame)
    column = max(1, min(_NAME, width - _AGO - 1))
    older = "" if not newer else " (older)" if newer == 1 else f" (older, {newer})"
    room = max(1, column - len(older) - len(left + right))
    if cell_len(name) > room:
        name = set_cell_size(name, room - 1) + "…"
    name = f"{left}{name}{right}{older}"
    items = [
        (0, line(f"{ago:<{_AGO}}")),  # in no colour of its own: the list lays its own under what is chosen
        (1, line((set_cell_size(name, column), "bold" if snapshot.name else ""))),
        (2, line(f"step {snapshot.step:>9,}")),
        (3, line(f"held-out {held}")),
        *([(4, line(f"at {snapshot.held_out_step:,}"))] if _steps_before(snapshot) else []),
    ]
    return fitted(items, width, " ")


def _steps_before(snapshot: Snapshot) -> int:
    """How long before it its held-out text was read: several snapshots may have one reading's figure."""
    return 0 if snapshot.held_out_step is None else max(0, snapshot.step - snapshot.held_out_step)


def preview(snapshot: Snapshot, frame: Frame) -> str:
    """What going back would lose, in sentences."""
    state = frame.state
    lost = what_goes(snapshot, state)
    read = words.plural(lost.chars, "character")
    steps = words.plural(lost.steps, "step")
    lines = [f"From {_when(snapshot.at)}. Loses {steps} and {read} of reading{lost.since}."]
    unit = "bits" if frame.view.bits else "nats"
    now = state.held_out.nats if state.held_out else None
    if snapshot.held_out is not None:
        before = _steps_before(snapshot)
        when = f", measured {words.plural(before, 'step')} before it," if before else " then"
        held = f"Held-out was {words.loss(snapshot.held_out, frame.view.bits)} {unit}{when}"
        if now is not None:
            better = (
                "better" if now < snapshot.held_out else "worse" if now > snapshot.held_out else "the same"
            )
            held += f" and is {words.loss(now, frame.view.bits)} now, which is {better}"
        lines.append(held.rstrip(",") + ".")
    else:
        lines.append("Held-out text had not been measured then.")
    lines += _experts(snapshot, frame, lost)
    return "\n".join([*lines, "The present is kept as a snapshot first, so this can be undone."])


class Lost(NamedTuple):
    """What going back would lose; `since` says where it is counted from, if not from the snapshot."""

    steps: int
    chars: int
    since: str


def what_goes(snapshot: Snapshot, state: AppState) -> Lost:
    """What was read on the way from the snapshot to the present.

    A snapshot that the present does not come from lies on another way: what goes then is what was read
    since the two parted. Snapshots tell the ways that led to them; of older ones only what was done in this
    session is known, and one that is ahead of the present is counted from the last save or revert.
    """
    here = next((other.ways for other in state.snapshots or () if other.id == state.present), ())
    parted = _parted(snapshot.ways, here)
    if parted is not None:
        step, chars = parted
        since = "" if step >= snapshot.step else f" since the two parted at step {step:,}"
        return _since(state, step, chars, since)
    back, kept, now = state.reverted, state.kept, state.metrics
    if back is not None and snapshot.at <= back.at:  # not made on the way from there to the present
        if snapshot.step > back.step:
            return _since(state, back.step, back.chars, f" since going back to step {back.step:,}")
        if snapshot.step > min(state.reverts):
            often = words.plural(len(state.reverts), "time")
            return _since(state, snapshot.step, snapshot.chars, f", or more: it went back {often}")
    elif kept is not None and snapshot.step > max(now.step, kept.step):
        return _since(state, kept.step, kept.chars, f", or more, since the checkpoint at step {kept.step:,}")
    return _since(state, snapshot.step, snapshot.chars, "")


def _parted(
    there: tuple[tuple[int, int, int], ...], here: tuple[tuple[int, int, int], ...]
) -> tuple[int, int] | None:
    """Where the last way that both have gone was left by the first of them: step and characters."""
    known = {way: (step, chars) for way, step, chars in here}
    return next(
        (min((step, chars), known[way]) for way, step, chars in reversed(there) if way in known), None
    )


def _since(state: AppState, step: int, chars: int, since: str) -> Lost:
    return Lost(max(0, state.metrics.step - step), max(0, state.metrics.chars - chars), since)


def _experts(snapshot: Snapshot, frame: Frame, lost: Lost) -> list[str]:
    """Who was born since, and who has been pruned since and comes back."""
    experts = frame.state.pool.experts
    if not experts or not snapshot.experts:
        return []
    if lost.since:  # who comes back was born on a way that is not this one
        as_many = snapshot.experts == len(experts)
        now = ", as many as there are now" if as_many else f"; there are {len(experts):,} now"
        return [f"It has {words.plural(snapshot.experts, 'expert')}{now}."]
    born = sum(expert.age < lost.chars for expert in experts)
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
