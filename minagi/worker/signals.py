"""SIGINT, SIGTERM and SIGHUP as requests to leave: the first politely, the second at once.

The first only leaves a note that the loop reads between steps. The second breaks off whatever may be
broken off, which is everything but saving: a save that has begun is always finished, also one that a step
began (`unbreakable`).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class Hurried(BaseException):
    """A second signal came: leave without saving. Not an Exception, so that nothing swallows it."""


_late: list[int] | None = None  # signals that came while a library was being loaded; None when none is


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Around the loading of torch: whatever a signal raises in its native parts may abort the process. So
    signals come when it is loaded."""
    global _late
    _late = []
    try:
        yield
    finally:
        came, _late = _late, None
        for number in came:
            signal.raise_signal(number)


def _waits(number: int) -> bool:
    if _late is not None:
        _late.append(number)
    return _late is not None


class Interrupt:
    """What to do at a ctrl+c where no `Signals` are: raise KeyboardInterrupt, as Python does, and know of it,
    for a library that is being loaded may make another error of that."""

    came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _waits(number):
            return
        self.came = True
        raise KeyboardInterrupt


INTERRUPT = Interrupt()


class Signals:
    """Use as a context in the main thread; handlers are put back at its end.

    A process that ends with its run says so by `for_good`: once a signal came no other one changes the end.
    """

    for_good = False

    def __init__(self) -> None:
        self.received = ""  # name of the first signal
        self.wake_fd: int | None = None  # readable once a signal came: ends a wait in select
        self._count = 0
        self._breakable = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self.wake_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._wake_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for name in NAMES:
            if hasattr(signal, name):
                number = getattr(signal, name)
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.received and Signals.for_good:
            leave_alone()
        else:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        signal.set_wakeup_fd(self._wake_before)
        os.close(self._write_fd)
        if self.wake_fd is not None:
            os.close(self.wake_fd)
            self.wake_fd = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if _waits(number):
            return
        self._count += 1
        self.received = self.received or signal.Signals(number).name
        if self.hurried and self._breakable:
            raise Hurried

    @property
    def hurried(self) -> bool:
        """Whether a second one came."""
        return self._count > 1

    @contextlib.contextmanager
    def breakable(self) -> Iterator[None]:
        """Around work that a second signal may break off at any point. Raises Hurried."""
        before, self._breakable = self._breakable, True
        try:
            if self.hurried:
                raise Hurried
            yield
        finally:
            self._breakable = before

    @contextlib.contextmanager
    def unbreakable(self) -> Iterator[None]:
        """Around work inside `breakable` that must be finished. A second signal that comes meanwhile raises
        nothing here: what was saved can still be told, and the next `breakable` raises Hurried."""
        before, self._breakable = self._breakable, False
        try:
            yield
        finally:
            self._breakable = before


def leave_alone() -> None:
    """Let no further signal break into the way out of the program."""
    for name in NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
