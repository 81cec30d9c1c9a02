"""What the fields for longer texts share: enter gives the text, keys typed ahead keep their order."""

from __future__ import annotations

from textual import events
from textual.widgets import TextArea

from minagi.steering import CONTROLS

SENT_MAX = 1_000_000  # characters that are sent at once
NEW_LINE = ("ctrl+j", "shift+enter", "alt+enter")  # plain terminals tell only the first apart from enter
_UNTYPED = dict.fromkeys(code for code in CONTROLS if chr(code) not in "\t\n")


class TypedField(TextArea):
    """A text of several lines. Each key is obeyed in its turn, however fast they come.

    Textual calls `_on_key` and `_on_paste` of every class, this one's after those of a class above, until
    one has stopped the event.
    """

    def __init__(self, id: str, placeholder: str) -> None:
        super().__init__(id=id, compact=True, highlight_cursor_line=False, placeholder=placeholder)
        self.cursor_blink = False  # a blink is a redraw, over SSH too

    def given(self) -> None:
        """Enter was pressed."""
        raise NotImplementedError

    def put(self, text: str) -> None:
        """Write `text` at the cursor, in the place of what is selected."""
        start, end = self.selection
        self.replace(typeable(text), start, end, maintain_selection_offset=False)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            self._stop(event)
            self.given()
        elif event.key in NEW_LINE:
            self._stop(event)
            self.insert("\n")
        else:
            await self._edit(event)

    async def _edit(self, event: events.Key) -> None:
        """Obey a key that is one of the field's own here and now.

        Textual would let it bubble to the app first, and letters typed behind it overtake it.
        """
        for key in event.aliases:
            for binding in self._bindings.key_to_bindings.get(key, ()):
                if await self.app.run_action(binding.action, self):
                    self._stop(event)
                    return

    async def _on_paste(self, event: events.Paste) -> None:
        self._stop(event)
        self.put(event.text)

    def _stop(self, event: events.Event) -> None:
        event.stop()
        event.prevent_default()


def typeable(text: str) -> str:
    """`text` without what nobody can type, its lines ending as they do here."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_UNTYPED)
