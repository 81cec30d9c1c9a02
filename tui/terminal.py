"""The terminal itself: whether there is one, its title, and what happens when it goes away."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TextIO

from textual._parser import Parser
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.message import Message

from tui.sanitise import clean_line

_JOB_CONTROL = (signal.SIGTSTP, signal.SIGCONT)
KEEP_TITLE, RESTORE_TITLE = "\x1b[22;0t", "\x1b[23;0t"  # xterm's stack of titles


def missing() -> str:
    """Which of the streams the app needs is no terminal, as the end of "there is none on"; "" if all are.

    The screen is drawn on stderr, the keys come from stdin.
    """
    streams = (("standard input", sys.__stdin__), ("standard error", sys.__stderr__))
    bad = [name for name, stream in streams if stream is None or stream.closed or not stream.isatty()]
    return " nor ".join(bad)


def in_foreground() -> bool:
    """Whether the terminal takes its keys to us. One that is gone holds nothing up."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True


def hold_job_control() -> None:
    """Let the signals of job control wait for `take_job_control`.

    What Textual does at these is not for us: it takes the screen at any SIGCONT, a second time if it never
    gave it back, and the terminal would stay raw for good.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _JOB_CONTROL)


def take_job_control(stop: Callable[[], object], go_on: Callable[[], object]) -> None:
    """Have these called at them from now on, also at those that waited. A worker, which would start with what
    is held, starts after this."""
    loop = asyncio.get_running_loop()
    for number, act in zip(_JOB_CONTROL, (stop, go_on), strict=True):
        loop.add_signal_handler(number, act)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _JOB_CONTROL)


def give_back_job_control() -> None:
    """Let them do what they do to any program: there is no screen any more to be given back or taken."""
    loop = asyncio.get_running_loop()
    for number in _JOB_CONTROL:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)  # also where Textual alone had a handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _JOB_CONTROL)


def title_sequence(title: str) -> str:
    """What sets the window's title."""
    return f"\x1b]0;{clean_line(title, 100)}\x07"


class LastingStream(io.TextIOBase):
    """A stream to a terminal that may go away: from the first failed write on it takes all and keeps none.

    Textual writes from a thread behind a bounded queue. A write that raised would end the thread, and
    the app would then wait for room in the queue for ever, with the model unsaved.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gone = False
        self.on_gone: Callable[[], object] = lambda: None  # called once, from the writing thread

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        return not self._gone and self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _try(self, act: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            act()
        except (OSError, ValueError):
            self._gone = True
            self.on_gone()


def outlast() -> LastingStream:
    """Put a lasting stream in the place that Textual draws to."""
    assert isinstance(sys.__stderr__, io.TextIOWrapper)  # `missing` was asked before
    # a terminal that is not one of UTF-8 has become rare, a locale that says so by mistake has not
    sys.__stderr__.reconfigure(encoding="utf-8", errors="replace")
    lasting = LastingStream(sys.__stderr__)
    setattr(sys, "__stderr__", lasting)  # noqa: B010 - declared final, and the only way in
    return lasting


class PatientParser(XTermParser):
    """Textual's parser of keys, which goes on after a sequence that it cannot make sense of.

    Pasted text and noise on a line may hold any. What came with such a sequence is dropped.
    """

    def feed(self, data: str) -> Iterable[Message]:
        return self._begun_anew(super().feed(data))

    def tick(self) -> Iterable[Message]:
        return self._begun_anew(super().tick())

    def _begun_anew(self, messages: Iterable[Message]) -> Iterable[Message]:
        try:
            yield from messages
        except (ValueError, OverflowError):
            Parser.__init__(self)


def outlast_input() -> None:
    """Let no bytes that come from the terminal end the thread that reads them, and the app with it."""

    def decoder(encoding: str) -> Callable[[], Any]:
        return partial(getincrementaldecoder(encoding), errors="replace")

    setattr(linux_driver, "getincrementaldecoder", decoder)  # noqa: B010 - neither can be handed in
    setattr(linux_driver, "XTermParser", PatientParser)  # noqa: B010
