"""Keys of the conversation, and the commands typed into it."""

from __future__ import annotations

from minagi import protocol
from minagi.errors import UsageError
from tui import exporting, slash
from tui.keymap import key_of
from tui.panes.chat_input import ChatInput
from tui.panes.typed import SENT_MAX
from tui.sanitise import clean_line
from tui.shell.core import Core

LENGTH_MOST = 1_000_000  # characters of a reply
STRENGTH_STEP, STRENGTH_MOST = 0.5, 10.0
MANNERS = ("adapted", "raw", "both")


class Talking(Core):
    """Talk to the model, choose how it answers, keep what was said."""

    def tick(self) -> None:
        """What is no longer so is no longer said."""
        if self.state.reply is None:
            self._desk.notice.withdraw(self._writing)
        super().tick()

    @property
    def _writing(self) -> str:
        return f"It is still writing; {key_of(self.table, 'leave_chat', typing=True)} stops it."

    def action_chat(self, begin: str = "") -> None:
        """Give the text field the focus, with what the key itself began."""
        if self.only_shown():
            return
        self._desk.deck.choose("chat")
        self.screen.set_focus(self.chat_pane.input, scroll_visible=False)
        if begin:
            self.chat_pane.input.put(begin)

    def action_leave_chat(self) -> None:
        if self.typing and self.state.reply is not None:
            self.action_cancel_reply()
        elif self.typing:
            self._desk.go("chat")
        elif self._desk.deck.maximised:
            self._desk.deck.choose(self._desk.deck.chosen, maximised=False)

    def action_cancel_reply(self) -> None:
        self.ask(protocol.Cancel)

    # ------------------------------------------------------------------------------------ saying

    def on_chat_input_sent(self, event: ChatInput.Sent) -> None:
        """A command, or a text for the model; one at a time."""
        command = slash.is_command(event.text)
        try:
            taken = self._obey(event.text) if command else self._say(event.text)
        except UsageError as error:
            self._warn(str(error))
            taken = False
        if not taken and command:
            self.chat_pane.input.refused = event.text
        elif not taken:
            self.chat_pane.input.put_back(event.text)

    def _obey(self, text: str) -> bool:
        key, rest = slash.read(text)
        getattr(self, f"action_{key.acts}")(*([rest] if rest else []))
        return True

    def _say(self, text: str) -> bool:
        if self.state.reply is not None:
            raise UsageError(self._writing)
        if len(text) > SENT_MAX:
            raise UsageError(f"That is {len(text):,} characters; {SENT_MAX:,} can be sent at once.")
        manner = self.view.manner
        return self.ask(
            protocol.Write, prompt=slash.plain(text), chars=self.view.reply_chars, raw=manner == "raw",
            strength=None if manner == "raw" else self.view.strength, both=manner == "both",
        )  # fmt: skip

    def action_go_on(self) -> None:
        """Let the last reply go on where it stopped."""
        last = self.state.chat[-1] if self.state.chat else None
        if self.state.reply is not None:
            self._warn(self._writing)
        elif last is None:
            self._warn("There is no reply to go on with yet.")
        elif last.replies[0].phase == "finished":
            self._warn("The last reply came to its own end: there is nothing to go on with.")
        elif not last.can_go_on:
            self._warn("The last reply never came: say it again (↑ brings it back).")
        else:
            self.ask(protocol.Continue, chars=self.view.reply_chars)

    def action_new_chat(self) -> None:
        self.ask(protocol.NewChat)

    # ------------------------------------------------------------------------------------ manner

    def action_manner(self) -> None:
        self.look(manner=MANNERS[(MANNERS.index(self.view.manner) + 1) % len(MANNERS)])

    def action_raw(self) -> None:
        self.look(manner="raw")

    def action_both(self) -> None:
        self.look(manner="both")

    def action_adapt(self, strength: str = "") -> None:
        """Adapted replies; raises UsageError for a strength that is none."""
        try:
            wanted = float(strength) if strength else self.view.strength
        except ValueError:
            wanted = -1.0
        if not 0.0 <= wanted <= STRENGTH_MOST:
            shown = clean_line(strength, 30)
            raise UsageError(f"The strength is a number from 0 to {STRENGTH_MOST:g}, not {shown!r}.")
        self.look(manner="adapted", strength=wanted)

    def action_strengthen(self, steps: int) -> None:
        strength = self.view.strength + steps * STRENGTH_STEP
        self.look(strength=max(0.0, min(STRENGTH_MOST, strength)))

    def action_length(self, wish: str = "") -> None:
        """How long replies may be from now on, or are; raises UsageError for a length that is none."""
        if wish:
            if not (wish.isascii() and wish.isdigit() and len(wish) < 9 and 1 <= int(wish) <= LENGTH_MOST):
                shown = clean_line(wish, 30)
                raise UsageError(
                    f"The length is a number of characters, 1 to {LENGTH_MOST:,}, not {shown!r}."
                )
            self.look(reply_chars=int(wish))
        told = f"Replies are up to {self.view.reply_chars:,} characters long."
        self.notify(f"{told} /length N changes that." if not wish else told, markup=False)

    def action_learn(self, wish: str = "") -> None:
        """Read finished exchanges, or no more; raises UsageError for a wish that is neither."""
        if wish not in ("", "on", "off"):
            raise UsageError(f"/learn is on or off, not {clean_line(wish, 30)!r}.")
        on = wish == "on" if wish else not self.state.learning
        self.ask(protocol.Set, key="learn_from_chat", value=on)

    # ----------------------------------------------------------------------------------- keeping

    def action_copy_reply(self) -> None:
        replies = [exchange.replies[0].text for exchange in self.state.chat]
        said = [text for text in replies if text]
        if said:
            self.copy_to_clipboard(said[-1])
        self.notify("Copied the last reply." if said else "There is no reply yet.", markup=False)

    def action_export(self) -> None:
        try:
            self.notify(exporting.export(self.state, self.clock()), markup=False)
        except OSError as error:
            self.notify(f"Nothing was written: {error.strerror}.", severity="error", markup=False)

    def _warn(self, text: str) -> None:
        self.notify(text, severity="warning", markup=False)
