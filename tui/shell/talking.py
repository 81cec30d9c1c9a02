"""Keys of the conversation."""

from __future__ import annotations

from minagi import protocol
from tui import exporting
from tui.panes.chat import ChatInput
from tui.shell.core import Core

REPLY_CHARS = 400
STRENGTH_STEP, STRENGTH_MOST = 0.5, 10.0


class Talking(Core):
    """Talk to the model, choose how it answers, keep what was said."""

    def action_chat(self) -> None:
        self._desk.deck.choose("chat")
        self.screen.set_focus(self.chat_pane.input, scroll_visible=False)

    def action_leave_chat(self) -> None:
        if self.typing and self.state.reply is not None:
            self.action_cancel_reply()
        elif self.typing:
            self._desk.go("chat")
        elif self._desk.deck.maximised:
            self._desk.deck.choose(self._desk.deck.chosen, maximised=False)

    def action_cancel_reply(self) -> None:
        self.ask(protocol.Cancel)

    def on_chat_input_sent(self, event: ChatInput.Sent) -> None:
        """A text for the model; one at a time."""
        if self.state.reply is not None:
            self.notify("It is still writing; esc stops it.", markup=False)
            return
        strength = None if self.view.raw else self.view.strength
        if self.ask(
            protocol.Write, prompt=event.text, chars=REPLY_CHARS, raw=self.view.raw, strength=strength
        ):
            self.chat_pane.input.clear()

    def action_raw(self) -> None:
        self.look(raw=not self.view.raw)

    def action_strengthen(self, steps: int) -> None:
        strength = self.view.strength + steps * STRENGTH_STEP
        self.look(strength=max(0.0, min(STRENGTH_MOST, strength)))

    def action_new_chat(self) -> None:
        self.ask(protocol.NewChat)

    def action_copy_reply(self) -> None:
        replies = [turn.text for turn in self.state.chat if turn.role == "model" and turn.text]
        if replies:
            self.copy_to_clipboard(replies[-1])
        self.notify("Copied the last reply." if replies else "There is no reply yet.", markup=False)

    def action_export(self) -> None:
        try:
            self.notify(exporting.export(self.state, self.clock()), markup=False)
        except OSError as error:
            self.notify(f"Nothing was written: {error.strerror}.", severity="error", markup=False)
