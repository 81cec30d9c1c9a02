"""Keys that change what is looked at, and how."""

from __future__ import annotations

from minagi import protocol
from tui.keymap import PANES, offered
from tui.panes.log import TOPICS
from tui.panes.pool import PoolPane
from tui.panes.typed import SENT_MAX
from tui.screens.help import HelpScreen
from tui.screens.inspect import InspectScreen, ProbeField
from tui.screens.logs import LogScreen
from tui.shell.core import Core

AXES = ("plain", "log", "log-log")


class Looking(Core):
    """Panes, their focus, and the ways of drawing them."""

    def action_log_axis(self) -> None:
        self.look(axes=AXES[(AXES.index(self.view.axes) + 1) % len(AXES)])

    def action_units(self) -> None:
        self.look(bits=not self.view.bits)

    def action_span(self) -> None:
        self.look(recent=not self.view.recent)

    def action_filter(self) -> None:
        place = TOPICS.index(self.view.log_filter)
        self.look(log_filter=TOPICS[(place + 1) % len(TOPICS)])

    def action_go(self, name: str) -> None:
        self._desk.go(name)

    def action_next_pane(self, by: int = 1) -> None:
        place = (PANES.index(self._desk.deck.chosen) + by) % len(PANES)
        self._desk.go(PANES[place])

    def action_maximise(self) -> None:
        deck = self._desk.deck
        deck.choose(deck.chosen, maximised=not deck.maximised)
        self.tick()

    def action_select(self, columns: int, rows: int) -> None:
        pane = self._desk.deck.panes["pool"]
        assert isinstance(pane, PoolPane)
        pane.select(columns, rows)

    def action_scroll_by(self, lines: int) -> None:
        self.pane.scroll_lines(lines)

    def action_help(self) -> None:
        self.push_screen(HelpScreen(offered(self.table, self.source.recorded), self.source.recorded))

    def action_whole_log(self, searching: bool = False) -> None:
        if not isinstance(self.screen, LogScreen):
            self.push_screen(LogScreen(self.frame, searching))

    async def action_inspect(self) -> None:
        if self.only_shown():
            return
        screen = InspectScreen()
        await self.push_screen(screen)
        screen.begin()

    def on_probe_field_given(self, event: ProbeField.Given) -> None:
        """A text to read; how much of it can be is the worker's to say."""
        if len(event.text) > SENT_MAX:
            told = f"That is {len(event.text):,} characters; {SENT_MAX:,} can be sent at once."
            self.notify(told, severity="warning", markup=False)
            return
        self.ask(protocol.Probe, text=event.text, strength=self.view.strength)
