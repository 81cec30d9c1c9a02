"""A name for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from tui.sanitise import clean_line
from tui.screens.dialog import Dialog

NAME_LIMIT = 60  # characters


class NameScreen(Dialog[str]):
    """Answers a name, or None."""

    heading = "Save a checkpoint under a name"
    choices = (("save", "Save"), ("cancel", "Cancel"))
    hints = (("enter", "save"), ("esc", "cancel"), ("tab", "to the buttons"))

    def body(self) -> Iterable[Widget]:
        self._hint = Static(Content("It is kept until you delete it."))
        self._field = Input(id="name", max_length=NAME_LIMIT, placeholder="before the poems", compact=True)
        yield self._hint
        yield self._field

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.answer("save")

    def answer(self, choice: str) -> None:
        name = clean_line(self._field.value, NAME_LIMIT).strip()
        if choice == "save" and not name:
            self._hint.update(Content("A name, please."))
            return
        self.dismiss(name if choice == "save" else None)
