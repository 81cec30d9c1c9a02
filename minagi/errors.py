"""Errors a person reads: every one says what is wrong, where, and what to do.

`MinagiError` and its kinds are caught at the edge of each program (command line, worker, app) and
shown as their sentence, never as a traceback. Anything else that escapes is a defect.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1  # the run could not go on; the sentence says why
EXIT_USAGE = 2  # a flag, a setting or a path is wrong; nothing was started
EXIT_BAD_FILE = 3  # a file of the weights directory is damaged or not ours
EXIT_LOCKED = 4  # another program is writing these weights
EXIT_INTERRUPTED = 130  # stopped by ctrl+c, saved


class MinagiError(Exception):
    """Something a person can act on. `str(error)` is one or two full sentences."""

    exit_status = EXIT_FAILED


class UsageError(MinagiError):
    """A flag, a setting or a path that cannot be used as given."""

    exit_status = EXIT_USAGE


class WeightsError(MinagiError):
    """A weights directory, or one file of it, that cannot be opened or trusted."""

    exit_status = EXIT_BAD_FILE


class LockedError(WeightsError):
    """Another live process is writing these weights."""

    exit_status = EXIT_LOCKED
