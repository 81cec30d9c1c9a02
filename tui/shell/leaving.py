"""Leaving, for a while or for good, and what to do when the worker has left."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

from minagi.errors import EXIT_FAILED, EXIT_OK
from tui.keymap import key_of
from tui.panes.chat_input import ChatInput
from tui.screens.died import DiedScreen
from tui.screens.quit import LeavingScreen, QuitScreen
from tui.screens.welcome import WelcomeScreen
from tui.shell.core import Core
from tui.state import Ending
from tui.terminal import in_foreground, take_job_control

TWICE_SECONDS = 2.0  # within which ctrl+c counts as the second one


class Leaving(Core):
    """The ways out: all of them give the terminal back, and save unless told not to."""

    _departure: asyncio.Task[None] | None = None
    _interrupted_at = float("-inf")
    _mourned: Ending | None = None  # the last death that was shown

    def on_mount(self) -> None:
        """Take the signals of job control from Textual."""
        if not self.is_headless:
            take_job_control(self.action_suspend, partial(self.refresh, layout=True))

    def tick(self) -> None:
        super().tick()
        ending = self.state.ending
        if self.state.link != "died" or self._mourned is ending or self._departure is not None:
            return
        self._mourned = ending
        if self.state.failure and self.state.hello is None:
            self._gone()  # it refused before it opened anything: the sentence is all there is to see
        else:
            self.push_screen(DiedScreen(self.frame), self._after_death)

    def signalled(self, number: int) -> None:
        """A signal to leave: give the terminal back at once; `finish` lets the worker save. One that comes
        when the app is on its way out, a ctrl+c too many, changes nothing."""
        if self.return_code is None:
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
        if self.logbook is not None:
            self.logbook.keep(self.state.log)
            self.logbook.close()

    def _after_death(self, answer: str | None) -> None:
        if answer == "restart":
            self.start()
        elif answer == "quit":
            self.leave(save=False)

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

    def action_leave(self) -> None:
        """Leave, but not before what was typed ahead of the key: that goes by way of the text field."""
        if isinstance(self.focused, ChatInput):
            self.focused.behind(self._ask_to_leave)
        else:
            self._ask_to_leave()

    def on_chat_input_behind(self, event: ChatInput.Behind) -> None:
        event.action()

    def _ask_to_leave(self) -> None:
        """Ask what to keep; asked again, take the safe answer."""
        screen = self.screen
        if isinstance(screen, (QuitScreen, LeavingScreen, WelcomeScreen)):
            screen.again()
        elif self.source.recorded or not self.source.live:
            self._gone()
        else:
            self.push_screen(QuitScreen(self.frame), self._after_quit)

    def action_interrupt(self) -> None:
        """ctrl+c: a hint first, then save and quit."""
        now = self.clock()
        if 0 <= now - self._interrupted_at <= TWICE_SECONDS:  # a clock may be set back in between
            self.leave(save=True)
            return
        self._interrupted_at = now
        does = "quits" if self.source.recorded else "saves and quits"
        key = key_of(self.table, "interrupt", typing=True).replace("^", "ctrl+")
        self.notify(f"{key} once more {does}.", timeout=TWICE_SECONDS, markup=False)

    def _after_quit(self, answer: str | None) -> None:
        if answer is not None:
            self.leave(save=answer == "save")

    def leave(self, save: bool) -> None:
        """End the worker, which saves or not, then the app."""
        if self._departure is not None:
            return
        self.push_screen(LeavingScreen(save, self.clock()))
        self._departure = self.watched(asyncio.create_task(self._close(save)))

    async def _close(self, save: bool) -> None:
        await self.source.close(self.fold, save)
        self._gone()

    def _gone(self) -> None:
        ending = self.state.ending
        failed = (
            (ending.status if ending and ending.status else EXIT_FAILED) if self.state.failure else EXIT_OK
        )
        self.exit(return_code=failed)
