"""The terminal itself: whether there is one, and its title."""

from __future__ import annotations

import sys

from tui.sanitise import clean_line

KEEP_TITLE, RESTORE_TITLE = "\x1b[22;0t", "\x1b[23;0t"  # xterm's stack of titles


def missing() -> str:
    """Which of the streams the app needs is no terminal, in words; "" when all is well.

    The screen is drawn on stderr, the keys come from stdin.
    """
    streams = (("standard input", sys.__stdin__), ("standard error", sys.__stderr__))
    bad = [name for name, stream in streams if stream is None or stream.closed or not stream.isatty()]
    return " and ".join(bad)


def title_sequence(title: str) -> str:
    """What sets the window's title."""
    return f"\x1b]0;{clean_line(title, 100)}\x07"
