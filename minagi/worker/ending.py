"""How a process of ours ends: at once, and no signal that comes on the way changes how it ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from minagi.errors import EXIT_INTERRUPTED
from minagi.worker.signals import INTERRUPT, Signals, leave_alone


def ending(run: Callable[[], int], interrupt: Any) -> NoReturn:
    """Do `run`, and end the process with the status that it returns.

    interrupt: what was to be done at a ctrl+c when the process began.
    """
    Signals.for_good = True
    try:
        signal.signal(signal.SIGINT, INTERRUPT if interrupt is signal.default_int_handler else interrupt)
        status = run()
        leave_alone()
    except KeyboardInterrupt:  # before it began, or after it had ended
        leave_alone()
        status = EXIT_INTERRUPTED
    _leave(status)


def _leave(status: int) -> NoReturn:
    """Everything is written and closed. To take a large model apart would take seconds, and a library that
    still computes in a thread of its own may end the process with a fault."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)
