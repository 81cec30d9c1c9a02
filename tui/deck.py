"""The main screen: header, panes placed by `tui.layout`, footer."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap
from textual.geometry import NULL_OFFSET, Region, Size, Spacing
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.screen import Screen
from textual.widget import Widget

from minagi.config import Ui
from tui import layout
from tui.keymap import PANES, Key, key_of
from tui.panes.base import Drawn, Frame, Pane
from tui.panes.chat import ChatPane
from tui.panes.depth import DepthPane
from tui.panes.footer import Footer, Strip
from tui.panes.header import Header
from tui.panes.log import LogPane
from tui.panes.loss import LossPane
from tui.panes.memory import MemoryPane
from tui.panes.notice import Notice
from tui.panes.pool import PoolPane
from tui.panes.subjects import SubjectsPane
from tui.panes.window import WindowPane

_KINDS: tuple[type[Pane] | type[ChatPane], ...] = (
    LossPane, MemoryPane, PoolPane, WindowPane, DepthPane, SubjectsPane, ChatPane, LogPane,
)  # fmt: skip
TO_TYPE = ("chat", "command", "inspect")  # actions after which one types
_PALETTE = (("enter", "run it"), ("↑ ↓", "choose"), ("esc", "close"))
LOW = 16  # lines below which header and frames give way to content


class _Placed(Layout):
    """Children stand where the deck's plan says; those it leaves out are not placed."""

    name = "placed"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Deck)
        plan = parent.plan(size)
        return [
            WidgetPlacement(plan[child.id], NULL_OFFSET, Spacing(), child)
            for child in children
            if child.id is not None and child.id in plan
        ]


class Deck(Widget):
    """The panes. One is CHOSEN: it is always on the screen, and may take all of it."""

    def __init__(self, table: tuple[Key, ...], ui: Ui) -> None:
        super().__init__(id="deck")
        self._placed = _Placed()
        self.chosen = PANES[0]
        self.maximised = False
        rates = {"figures": ui.refresh_hz, "charts": ui.chart_hz, "chat": ui.chat_hz}
        self.panes: dict[str, Pane | ChatPane] = {}
        for kind in _KINDS:
            rate = rates[kind.hertz]
            self.panes[kind.NAME] = kind(key_of(table, f"pane_{kind.NAME}"), 1.0 / rate)

    def compose(self) -> ComposeResult:
        yield from self.panes.values()

    @property
    def layout(self) -> Layout:
        return self._placed

    def plan(self, size: Size) -> dict[str, Region]:
        """Where the panes stand on `size`."""
        return layout.arrange(size.width, size.height, self.chosen, self.maximised)

    def choose(self, name: str, maximised: bool | None = None) -> None:
        """Bring a pane to the screen."""
        self.chosen = name
        self.maximised = self.maximised if maximised is None else maximised
        self._settle()

    def on_resize(self) -> None:
        self._settle()

    def _settle(self) -> None:
        """Hidden panes are no longer drawn, nor found by the focus."""
        plan = self.plan(self.size)
        for name, pane in self.panes.items():
            pane.display = name in plan
        self.refresh(layout=True)


class Desk(Screen[None]):
    """Header, panes, strip of panes where they do not all fit, footer. Its keys are those of the table."""

    def __init__(self, table: tuple[Key, ...], ui: Ui) -> None:
        super().__init__()
        self._table = table
        self.deck = Deck(table, ui)
        self.header = Header("header")
        self.notice = Notice()
        self.strip = Strip(table)
        self.footer = Footer(table)
        # the table may be remapped by the settings, so the keys are the instance's, not the class's
        self._bindings = BindingsMap(bindings(table))

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.notice
        yield self.deck
        yield self.strip
        yield self.footer

    def on_mount(self) -> None:
        self.deck.panes[self.deck.chosen].focus()

    def on_resize(self, event: events.Resize) -> None:
        """Small screens: no second line of the header; the strip where panes are hidden."""
        self.set_class(event.size.height < LOW, "-low")
        self.set_class(event.size.width < layout.WIDE, "-narrow")

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The pane that has the focus, or holds what has it, is the chosen one."""
        pane = next((node for node in event.widget.ancestors_with_self if node.id in self.deck.panes), None)
        if pane is not None and pane.id is not None:
            if pane.id != self.deck.chosen:
                self.deck.choose(pane.id)
            self.strip.choose(pane.id)
            self.footer.focus_moved(pane.id, event.widget.id == "chat-input")

    def on_screen_suspend(self) -> None:
        """The palette has no line for its keys; dialogs lay their own over this one."""
        self.footer.lie_under(_PALETTE)

    def on_screen_resume(self) -> None:
        self.footer.lie_under(())

    def go(self, name: str) -> None:
        """Choose a pane and give it the focus."""
        self.deck.choose(name)
        self.set_focus(self.deck.panes[name], scroll_visible=False)

    def show(self, frame: Frame) -> None:
        """Hand the newest frame to everything that is on the screen."""
        self.set_class(self.notice.show(frame, self.size), "-noticed")
        drawn: tuple[Drawn, ...] = (self.header, self.strip, self.footer)
        for widget in drawn:
            widget.show(frame)
        for pane in self.deck.panes.values():
            if pane.display:
                pane.show(frame)


def bindings(table: tuple[Key, ...]) -> list[Binding]:
    """Textual's bindings of the table. Those that act while you type go before the text field."""
    made = []
    for entry in table:
        for key in entry.keys:
            priority = entry.where == "text" and len(key) > 1 and entry.action != "interrupt"
            # a key that begins typing acts at once: what is typed after it must not be taken for keys
            priority = priority or entry.acts in TO_TYPE
            made.append(Binding(key, entry.run, entry.label, show=False, priority=priority))
    return made
