"""The app's heart: it folds what the source says into the state, draws it, and sends commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import RenderableType
from textual.app import App
from textual.binding import BindingsMap
from textual.command import CommandPalette
from textual.notifications import SeverityLevel
from textual.screen import Screen

from minagi import protocol
from minagi.config import Ui
from minagi.errors import EXIT_FAILED
from minagi.protocol import Command, Message
from minagi.worker.logfile import open_log
from tui import defects, private
from tui.client import Source
from tui.deck import Desk, bindings
from tui.keymap import TABLE, Key, key_of
from tui.logbook import Logbook, usual_place
from tui.panes.base import Frame, Pane, View
from tui.panes.chat import ChatPane
from tui.panes.chat_input import ChatInput
from tui.panes.notice import Said, heed_in_palette, seconds
from tui.recording import Recording
from tui.reducers import reduce
from tui.screens.dialog import Dialog
from tui.screens.inspect import InspectScreen
from tui.screens.logs import LogScreen
from tui.state import Asked, initial
from tui.status import status
from tui.styles import legible
from tui.terminal import title_sequence
from tui.words import loss

TITLE_SECONDS = 1.0
RECORDED_IDS = 1 << 30  # of commands: a recording's own are below
_APP_WIDE = ("leave", "interrupt")  # keys that act in dialogs too


class Core(App[None], inherit_bindings=False):
    """State, drawing, commands. What keys do is added by the classes beside this one.

    `clock` gives Unix time. The source's task outlives the app's own loop, so that a worker is still
    listened to while it saves. On the `first_run` of a model a screen comes first that tells what was found.
    `logbook` keeps the whole log.
    """

    CSS_PATH = "../app.tcss"
    TITLE = "minagi"

    def __init__(
        self,
        source: Source,
        ui: Ui,
        table: tuple[Key, ...] = TABLE,
        recent_span: float = 0.0,
        strength: float = 2.5,
        charts: bool = True,
        first_run: bool = False,
        logbook: Logbook | None = None,
        reply_chars: int = 400,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.source = source
        self.ui = ui
        self.table = table
        self.first_run = first_run
        self.logbook = logbook
        self.clock = clock
        self.state = initial(clock(), recent_span)
        self.view = View(strength=strength, charts=charts, reply_chars=reply_chars)
        self.running: asyncio.Task[None] | None = None
        self.defect = ""  # what there is to say of an exception that ended the app
        self._desk = Desk(table, ui)
        self._drawn = False  # the first frame was drawn
        self._early_exit: int | None = None  # status of an exit asked for before that
        self._last_id = RECORDED_IDS if source.recorded else 0
        self._alerted = 0  # serial of the last alert that was shown
        self._titled = ("", float("-inf"))
        wide = tuple(key for key in table if key.action in _APP_WIDE)
        self._bindings = BindingsMap([*bindings(wide)])

    # ----------------------------------------------------------------------------------- life

    def get_default_screen(self) -> Screen:
        return self._desk

    def get_css_variables(self) -> dict[str, str]:
        """The theme's colours, those of texts as far from what lies under them as reading needs."""
        variables = legible(super().get_css_variables())
        self.theme_variables = variables
        return variables

    def on_mount(self) -> None:
        """Draw first, then start the source: the first frame waits for nothing."""
        if self.ui.theme in self.available_themes:
            self.theme = self.ui.theme
        fastest = max(self.ui.refresh_hz, self.ui.chart_hz, self.ui.chat_hz)
        self.set_interval(1.0 / fastest, self.tick)
        self.tick()
        self.call_after_refresh(self._drawn_once)

    def _drawn_once(self) -> None:
        self._drawn = True
        if self._early_exit is None:
            self.start()
        else:
            self.exit(return_code=self._early_exit)

    def exit(self, result: None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        """Leave. Textual fails when told to while it still mounts, so before the first frame it waits."""
        if self.defect:
            return  # it is being left already, and not in order
        if self._drawn:
            super().exit(result, return_code, message)
        else:
            self._early_exit = return_code

    def start(self) -> None:
        """Start the source, or start it again. Nothing while it runs, which `live` tells a moment later."""
        if self.running is not None and not self.running.done():
            return
        self.running = self.watched(asyncio.create_task(self.source.run(self.fold)))

    def watched(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """A task whose defects are the app's."""

        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                self.fail(error)

        task.add_done_callback(ended)
        return task

    def fail(self, error: Exception) -> None:
        """A defect: it goes to the log whole; the worker saves and ends as for any other way out."""
        if not self.defect:
            file = self.logbook.path if self.logbook is not None else open_log(usual_place())
            self.defect = defects.told(error, file)
        private.end(self, error, EXIT_FAILED)

    def _handle_exception(self, error: Exception) -> None:
        """Textual calls this for what a handler or a widget lets through; it would print the traceback."""
        self.fail(error)

    def fold(self, event: Message) -> None:
        """Take one event in; drawing comes later."""
        self.state = reduce(self.state, event, self.now)

    @property
    def frame(self) -> Frame:
        """What there is to draw now."""
        playing = self.source.playing if isinstance(self.source, Recording) else None
        kept = self.logbook.kept if self.logbook is not None else ""
        return Frame(self.state, self.view, self.now, self.clock(), playing, kept, self.table)

    @property
    def now(self) -> float:
        """Unix time of the run that is shown."""
        return self.clock() if self.source.at is None else self.source.at

    def tick(self) -> None:
        """Draw what changed, and say what must be said."""
        frame = self.frame
        for screen in self.screen_stack:
            if isinstance(screen, (Dialog, InspectScreen, LogScreen)):
                screen.heed(frame, self._desk.notice)
            elif isinstance(screen, CommandPalette):
                heed_in_palette(screen, frame, self._desk.notice)
            show = getattr(screen, "show", None)
            if show is not None and screen.is_mounted:
                show(frame)
        self._tell_alerts()
        self._tell_title(frame)
        if self.logbook is not None:
            self.logbook.keep(self.state.log)

    # ------------------------------------------------------------------------------ telling

    def _tell_alerts(self) -> None:
        if isinstance(self.source, Recording) and self.source.winding:
            self._alerted = self.state.serial  # nobody could read them
        for alert in self.state.alerts:
            if alert.serial <= self._alerted:
                continue
            self._alerted = alert.serial
            if alert.level != "quiet" and not (alert.level == "information" and self.undisturbed):
                severity = alert.level if alert.level in ("warning", "error") else "information"
                self.notify(alert.text, severity=severity, markup=False)  # type: ignore[arg-type]
            if alert.bell and not self.app_focus and self.ui.notifications:
                self.bell()
                self._set_title(f"(!) {alert.text}")

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Say something at once, in lines of its own."""
        stands = seconds(message) if timeout is None else timeout
        now = self.clock()
        self._desk.notice.tell(Said(message, severity, now, now + stands))
        super().notify(message, title=title, severity=severity, timeout=stands, markup=markup)

    @property
    def undisturbed(self) -> bool:
        """Whether what is shown should not be covered by what can be read in the log later."""
        return any(getattr(screen, "UNDISTURBED", False) for screen in self.screen_stack)

    def _tell_title(self, frame: Frame) -> None:
        """The terminal's title: model, state and held-out loss, for those who look elsewhere."""
        if frame.tick - self._titled[1] < TITLE_SECONDS or not self.app_focus:
            return
        now = status(self.state, frame.now)
        name = self.state.hello.model if self.state.hello else ""
        parts = [f"{now.glyph} {now.word}", name]
        if self.state.held_out is not None:
            unit = "bits" if self.view.bits else "nats"
            parts.append(f"{loss(self.state.held_out.nats, self.view.bits, 2)} {unit}")
        self._set_title(" · ".join(part for part in (*parts, "minagi") if part))

    def _set_title(self, title: str) -> None:
        if title != self._titled[0] and self._driver is not None and not self.is_headless:
            self._driver.write(title_sequence(title))
        self._titled = (title, self.clock())

    # ------------------------------------------------------------------- asking and looking

    def ask(self, kind: type[Command], **fields: object) -> bool:
        """Send a command and keep it as pending until its acknowledgement."""
        if not self.source.live:
            over, nobody = (
                "The recording is over. {} begins it again.",
                "There is no worker to ask. {} starts it again.",
            )
            told = (over if self.source.recorded else nobody).format(key_of(self.table, "restart"))
            self.notify(told, severity="warning", markup=False)
            return False
        self._last_id += 1
        command = kind(id=self._last_id, **fields)
        self.fold(Asked(command))
        if not self.source.send(command):
            self.fold(protocol.Ack(command.id, command.type, False, "The worker takes no more commands."))
        self.tick()
        return True

    def only_shown(self) -> bool:
        """Whether this is a recording, which is told: there is nobody to ask."""
        if self.source.recorded:
            self.notify("This is a recording: it can be looked at, nothing more.", markup=False)
        return self.source.recorded

    def look(self, **changes: object) -> None:
        """Look at the state in another way."""
        self.view = replace(self.view, **changes)  # type: ignore[arg-type]
        self.tick()

    @property
    def typing(self) -> bool:
        """The text field has the focus."""
        return isinstance(self.focused, ChatInput)

    @property
    def pane(self) -> Pane | ChatPane:
        """The chosen pane."""
        return self._desk.deck.panes[self._desk.deck.chosen]

    @property
    def chat_pane(self) -> ChatPane:
        pane = self._desk.deck.panes["chat"]
        assert isinstance(pane, ChatPane)
        return pane
