"""The chat's text field: enter sends, arrows bring back what was said, a long paste stands as one word."""

from __future__ import annotations

import re
from collections.abc import Callable

from textual import events
from textual.message import Message

from tui import slash
from tui.keymap import Key
from tui.panes.typed import TypedField, typeable

PASTE_WHOLE = 2_000  # characters of a paste from which on it stands as one word: longer text would be slow


class ChatInput(TypedField):
    """Where you type. `prompts`, newest last, are what the arrows bring back; before them a command that was
    `refused`, to be mended."""

    class Sent(Message):
        """A text to say to the model, or a command."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Behind(Message):
        """What is to be done only after the keys before it were."""

        def __init__(self, action: Callable[[], None]) -> None:
            super().__init__()
            self.action = action

    class Paged(Message):
        """The conversation should move by `pages`."""

        def __init__(self, pages: int) -> None:
            super().__init__()
            self.pages = pages

    def __init__(self) -> None:
        super().__init__("chat-input", "enter sends, / begins a command")
        self.prompts: tuple[str, ...] = ()
        self.refused = ""
        self._pastes: dict[str, str] = {}  # the word that stands for it -> text
        self._back = 0  # how many prompts back the text is; 0 is the one being written
        self._draft = ""

    # ------------------------------------------------------------------------------------- text

    @property
    def said(self) -> str:
        """The whole text, pastes in place."""
        if not self._pastes:
            return self.text
        words = re.compile("|".join(map(re.escape, self._pastes)))
        return words.sub(lambda match: self._pastes[match[0]], self.text)

    def put(self, text: str) -> None:
        """As in any field, but a long text stands as one word."""
        text = typeable(text)
        if len(text) > PASTE_WHOLE:
            word = f"[paste {len(self._pastes) + 1}: {len(text):,} characters]"
            self._pastes[word] = text
            text = word
        super().put(text)

    def forget(self) -> None:
        """Begin with an empty field."""
        self.clear()
        self._pastes.clear()
        self._back = 0

    def put_back(self, text: str) -> None:
        """A text that was not taken, in front of what was typed since."""
        since = self.said
        self.forget()
        self.put(text + since)

    def matches(self) -> list[Key]:
        """The commands that what is typed may become."""
        return slash.matches(self.text)

    def complete(self) -> None:
        """Make the command begun the first it may become."""
        key = self.matches()[0]
        self.text = slash.name_of(key) + (" " if slash.wants(key) else "")
        self.move_cursor(self.document.end)

    def update_suggestion(self) -> None:
        """The rest of the first command it may become, in grey."""
        found = self.matches() if self.cursor_location == self.document.end else []
        self.suggestion = slash.name_of(found[0])[len(self.text) :] if found else ""

    # ------------------------------------------------------------------------------------- keys

    def behind(self, action: Callable[[], None]) -> None:
        """Have the app do something after all that was typed here before has come to it."""
        self.call_later(self.post_message, self.Behind(action))

    def given(self) -> None:
        said = self.said
        if said.strip():
            self.refused = ""
            self.forget()  # at once: what is typed behind it is another text
            self.post_message(self.Sent(said))

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "tab" and self.matches():
            self._stop(event)
            self.complete()

    def action_cursor_up(self, select: bool = False) -> None:
        """Up, and from the first line on, what was said before."""
        if select or self.wrapped_document.location_to_offset(self.cursor_location).y > 0:
            super().action_cursor_up(select)
        elif self._back < len(self._earlier):
            self._bring_back(self._back + 1)

    def action_cursor_down(self, select: bool = False) -> None:
        """Down, and from the last line on, what was said after that."""
        last = self.wrapped_document.height - 1
        if select or self.wrapped_document.location_to_offset(self.cursor_location).y < last:
            super().action_cursor_down(select)
        elif self._back:
            self._bring_back(self._back - 1)

    @property
    def _earlier(self) -> tuple[str, ...]:
        return (*self.prompts, self.refused) if self.refused else self.prompts

    def _bring_back(self, back: int) -> None:
        if not self._back:
            self._draft = self.said
        self._back = back
        self._pastes.clear()
        self.clear()
        self.put(self._earlier[-back] if back else self._draft)

    def action_cursor_page_up(self) -> None:
        """The field is low: pages are the conversation's."""
        self.post_message(self.Paged(-1))

    def action_cursor_page_down(self) -> None:
        self.post_message(self.Paged(1))
