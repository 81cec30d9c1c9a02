"""The app: its state and drawing (`core`), and what its keys do, a module a group."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from textual.app import SystemCommand
from textual.screen import Screen

from tui import slash
from tui.deck import TO_TYPE
from tui.keymap import PANES, offered, shown
from tui.shell.looking import Looking
from tui.shell.running import Running
from tui.shell.talking import Talking

__all__ = ["MinagiApp"]


class MinagiApp(Running, Talking, Looking):
    """The whole program but for its command line."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of one pane act in that pane; those of the text field only when there is something to do."""
        where = next((key.where for key in self.table if key.acts == action), "app")
        if where in PANES:
            return self._desk.deck.chosen == where and not self.typing
        if where == "scroll":
            return self.pane.scrolls and not self.typing
        if where == "replay":
            return self.source.recorded
        if action == "cancel_reply":
            return self.state.reply is not None
        if action in TO_TYPE:
            return not self.typing
        if action == "next_pane":
            return not self.typing or not self.chat_pane.input.matches()  # tab completes a command then
        return True

    def action_command(self) -> None:
        """Begin a command; in the log the key searches, as it does on every screen with much to read."""
        if self._desk.deck.chosen == "log":
            self.action_whole_log(searching=True)
        else:
            self.action_chat("/")

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:
        """The command palette: the keys that act here, and the theme."""
        for key in offered(self.table, self.source.recorded):
            typed = "" if self.source.recorded else slash.name_of(key)
            keys = ", ".join(filter(None, (*(shown(one) for one in key.keys), typed)))
            yield SystemCommand(key.told, keys, partial(self.call_later, self.run_action, key.run))
        yield SystemCommand("Choose a theme", "colours, light and dark", self.action_change_theme)
