"""The app: folds what the source says into the state, draws it, and turns keys into commands."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from rich.console import RenderableType
from textual.app import App, SystemCommand
from textual.binding import BindingsMap
from textual.screen import Screen

from minagi import protocol
from minagi.config import Ui
from minagi.errors import EXIT_FAILED, EXIT_OK
from minagi.protocol import Command, Message
from tui import exporting
from tui.client import Source
from tui.deck import Desk, bindings
from tui.keymap import PANES, TABLE, Key, shown
from tui.panes.base import Frame, View
from tui.panes.chat import ChatInput, ChatPane
from tui.panes.log import TOPICS
from tui.panes.pool import PoolPane
from tui.reducers import reduce
from tui.screens.died import DiedScreen
from tui.screens.help import HelpScreen
from tui.screens.name import NameScreen
from tui.screens.quit import LeavingScreen, QuitScreen
from tui.screens.revert import RevertScreen
from tui.state import Asked, initial
from tui.status import status
from tui.terminal import in_foreground, title_sequence
from tui.words import loss

AXES = ("plain", "log", "log-log")
REPLY_CHARS = 400
STRENGTH_STEP, STRENGTH_MOST = 0.5, 10.0
TWICE_SECONDS = 2.0  # within which ctrl+c counts as the second one
TITLE_SECONDS = 1.0
_APP_WIDE = ("leave", "interrupt")  # keys that act in dialogs too


class MinagiApp(App[None], inherit_bindings=False):
    """The whole program but for its command line.

    `clock` gives Unix time. The source's task outlives the app's own loop, so that a worker is still
    listened to while it saves; `finish` ends it.
    """

    CSS_PATH = "app.tcss"
    TITLE = "minagi"

    def __init__(
        self,
        source: Source,
        ui: Ui,
        table: tuple[Key, ...] = TABLE,
        recent_span: float = 0.0,
        strength: float = 2.5,
        charts: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.source = source
        self.ui = ui
        self.table = table
        self.clock = clock
        self.state = initial(clock(), recent_span)
        self.view = View(strength=strength, charts=charts)
        self.running: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._desk = Desk(table, ui)
        self._where = {key.run.partition("(")[0]: key.where for key in table}
        self._drawn = False  # the first frame was drawn
        self._early_exit: int | None = None  # status of an exit asked for before that
        self._last_id = 0
        self._alerted = 0  # serial of the last alert that was shown
        self._mourned = False  # the present death was shown
        self._interrupted_at = float("-inf")
        self._titled = ("", float("-inf"))
        wide = tuple(key for key in table if key.action in _APP_WIDE)
        self._bindings = BindingsMap([*bindings(wide)])

    # ----------------------------------------------------------------------------------- life

    def get_default_screen(self) -> Screen:
        return self._desk

    def on_mount(self) -> None:
        """Draw first, then start the source: the first frame waits for nothing."""
        if self.ui.theme in self.available_themes:
            self.theme = self.ui.theme
        if not self.is_headless:
            # Textual takes the screen at any SIGCONT, a second time if it never gave it back, and the
            # terminal would stay raw for good
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTSTP, self.action_suspend)
            loop.add_signal_handler(signal.SIGCONT, partial(self.refresh, layout=True))
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
        if self._drawn:
            super().exit(result, return_code, message)
        else:
            self._early_exit = return_code

    def start(self) -> None:
        """Start the source, or start it again."""
        self._mourned = False
        self.running = asyncio.create_task(self.source.run(self.fold))

    def fold(self, event: Message) -> None:
        """Take one event in; drawing comes later."""
        self.state = reduce(self.state, event, self.clock())

    @property
    def frame(self) -> Frame:
        """What there is to draw now."""
        return Frame(self.state, self.view, self.clock())

    def tick(self) -> None:
        """Draw what changed, and say what must be said."""
        frame = self.frame
        for screen in self.screen_stack:
            show = getattr(screen, "show", None)
            if show is not None and screen.is_mounted:
                show(frame)
        self._tell_alerts()
        self._tell_title(frame)
        if self.state.link == "died" and not self._mourned and self._leaving is None:
            self._mourned = True
            if self.state.failure and self.state.hello is None:
                self._gone()  # it refused before it opened anything: the sentence is all there is to see
            else:
                self.push_screen(DiedScreen(frame), self._after_death)

    def signalled(self, number: int) -> None:
        """A signal to leave: give the terminal back at once; `finish` lets the worker save."""
        self.exit(return_code=128 + number)

    def terminal_lost(self) -> None:
        """The terminal is gone without a signal: nothing can be shown, what was learned can be kept."""
        self.exit(return_code=EXIT_FAILED)

    async def finish(self) -> None:
        """After the screen is gone: let a worker that still runs save, and wait for it."""
        await self.source.close(self.fold, save=True)
        if self.running is not None:
            if self.source.live:  # a recording, or a worker that not even a kill ended
                self.running.cancel()
            await asyncio.wait([self.running], timeout=1.0)

    # ------------------------------------------------------------------------------ telling

    def _tell_alerts(self) -> None:
        for alert in self.state.alerts:
            if alert.serial <= self._alerted:
                continue
            self._alerted = alert.serial
            if alert.level != "quiet":
                severity = alert.level if alert.level in ("warning", "error") else "information"
                self.notify(alert.text, severity=severity, markup=False)  # type: ignore[arg-type]
            if alert.bell and not self.app_focus and self.ui.notifications:
                self.bell()
                self._set_title(f"(!) {alert.text}")

    def _tell_title(self, frame: Frame) -> None:
        """The terminal's title: model, state and held-out loss, for those who look elsewhere."""
        if frame.now - self._titled[1] < TITLE_SECONDS or not self.app_focus:
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

    # ------------------------------------------------------------------------------- asking

    def ask(self, kind: type[Command], **fields: object) -> bool:
        """Send a command and keep it as pending until its acknowledgement."""
        if not self.source.live:
            self.notify("There is no worker to ask. R starts it again.", severity="warning", markup=False)
            return False
        self._last_id += 1
        command = kind(id=self._last_id, **fields)
        self.fold(Asked(command))
        if not self.source.send(command):
            self.fold(protocol.Ack(command.id, command.type, False, "The worker takes no more commands."))
        self.tick()
        return True

    def look(self, **changes: object) -> None:
        """Look at the state in another way."""
        self.view = replace(self.view, **changes)  # type: ignore[arg-type]
        self.tick()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of one pane act in that pane; those of the text field only when there is something to do."""
        where = self._where.get(f"app.{action}", "app")
        if where in PANES:
            return self._desk.deck.chosen == where and not self.typing
        if where == "scroll":
            return self.pane.scrolls and not self.typing
        if action == "cancel_reply":
            return self.state.reply is not None
        if action == "chat":
            return not self.typing
        return True

    @property
    def typing(self) -> bool:
        """The text field has the focus."""
        return isinstance(self.focused, ChatInput)

    @property
    def pane(self):
        """The chosen pane."""
        return self._desk.deck.panes[self._desk.deck.chosen]

    @property
    def chat_pane(self) -> ChatPane:
        pane = self._desk.deck.panes["chat"]
        assert isinstance(pane, ChatPane)
        return pane

    def get_system_commands(self, screen: Screen) -> Iterable[SystemCommand]:
        """The command palette: the whole key table, and the theme."""
        for key in self.table:
            keys = ", ".join(shown(one) for one in key.keys)
            yield SystemCommand(key.told, keys, partial(self.call_later, self.run_action, key.run))
        yield SystemCommand("Choose a theme", "colours, light and dark", self.action_change_theme)

    # ------------------------------------------------------------------------------ actions

    def action_pause(self) -> None:
        pausing = any(pending.command.type == "pause" for pending in self.state.pending)
        self.ask(protocol.Resume if self.state.phase.phase == "paused" or pausing else protocol.Pause)

    def action_checkpoint(self) -> None:
        self.ask(protocol.Checkpoint)

    def action_name_checkpoint(self) -> None:
        def save(name: str | None) -> None:
            if name:
                self.ask(protocol.Checkpoint, name=name)

        self.push_screen(NameScreen(), save)

    def action_revert(self) -> None:
        def revert(to: str | None) -> None:
            if to:
                self.ask(protocol.Revert, to=to)

        if self.ask(protocol.ListSnapshots):
            self.push_screen(RevertScreen(self.frame), revert)

    def action_evaluate(self) -> None:
        self.ask(protocol.Evaluate)

    def action_restart(self) -> None:
        if self.source.live or self.source.recorded:
            self.notify("The worker is running.", markup=False)
        else:
            self.start()

    def _after_death(self, answer: str | None) -> None:
        if answer == "restart":
            self.start()
        elif answer == "quit":
            self._leave(save=False)

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
        self.push_screen(HelpScreen(self.table))

    def action_suspend(self) -> None:
        """Give the terminal to the shell until it is told fg. Training goes on meanwhile."""
        if self.is_headless or os.getpgrp() == os.getsid(0):  # stopped, nobody could wake us again
            self.notify("There is no shell to go back to.", severity="warning", markup=False)
            return
        loop = asyncio.get_running_loop()
        with self.suspend():
            loop.remove_signal_handler(signal.SIGTSTP)
            while True:
                os.kill(0, signal.SIGTSTP)  # as the terminal itself would: make, or a script, stops with us
                if in_foreground():  # bg wakes us too, but there is nothing to do without the terminal
                    break
            loop.add_signal_handler(signal.SIGTSTP, self.action_suspend)

    # ------------------------------------------------------------------------------ leaving

    def action_leave(self) -> None:
        """Ask what to keep; asked again, take the safe answer."""
        screen = self.screen
        if isinstance(screen, (QuitScreen, LeavingScreen)):
            screen.again()
        elif self.source.recorded or not self.source.live:
            self._gone()
        else:
            self.push_screen(QuitScreen(self.frame), self._after_quit)

    def action_interrupt(self) -> None:
        """ctrl+c: a hint first, then save and quit."""
        now = self.clock()
        if now - self._interrupted_at <= TWICE_SECONDS:
            self._leave(save=True)
            return
        self._interrupted_at = now
        self.notify("ctrl+c once more saves and quits.", timeout=TWICE_SECONDS, markup=False)

    def _after_quit(self, answer: str | None) -> None:
        if answer is not None:
            self._leave(save=answer == "save")

    def _leave(self, save: bool) -> None:
        if self._leaving is not None:
            return
        self.push_screen(LeavingScreen(save, self.clock()))
        self._leaving = asyncio.create_task(self._close(save))

    async def _close(self, save: bool) -> None:
        await self.source.close(self.fold, save)
        self._gone()

    def _gone(self) -> None:
        ending = self.state.ending
        failed = (
            (ending.status if ending and ending.status else EXIT_FAILED) if self.state.failure else EXIT_OK
        )
        self.exit(return_code=failed)
