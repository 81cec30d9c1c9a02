"""The trainer as a process: `python -m minagi.worker PATH… [flags]`, newline-JSON on stdin and stdout.

The protocol runs over private copies of the two descriptors. What else would be printed, by us, by a
library or by a crash in native code, goes to a log file.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from minagi.errors import EXIT_OK, MinagiError, UsageError
from minagi.hardware import lower_priority
from minagi.options import ENGINE, Parser, add_machine, add_run, add_settings, session_request
from minagi.protocol import Failure
from minagi.training.request import SessionRequest
from minagi.worker.channel import Channel
from minagi.worker.eventlog import logged
from minagi.worker.logfile import FORMAT, STARTS, open_log
from minagi.worker.parties import TrainerLike
from minagi.worker.serve import open_session, serve
from minagi.worker.signals import Signals

logger = logging.getLogger(__name__)


def parser() -> Parser:
    """The worker's flags: those of a run that keeps what it learns."""
    made = Parser(
        prog="python -m minagi.worker",
        usage="%(prog)s PATH… [flags]",
        description="Read text and be trained by it, steered by newline-JSON on stdin, told on stdout.",
    )
    made.add_argument("--log", type=Path, metavar="FILE", help="log file (default: in the user's log folder)")
    add_run(made, saves=True)
    add_machine(made)
    add_settings(made, ENGINE)
    return made


def main(
    argv: Sequence[str] | None = None,
    open_trainer: Callable[[SessionRequest], TrainerLike] | None = None,
) -> int:
    """Run a worker to its end; returns its exit status. `open_trainer` stands in for the real session."""
    arguments = None
    fault: UsageError | None = None
    try:
        arguments = parser().parse(argv)
    except SystemExit:  # --help was answered
        return EXIT_OK
    except UsageError as error:
        fault = error
    log = open_log(arguments.log if arguments else None)
    try:
        read_fd, write_fd = _take_descriptors(log)
    except OSError as error:
        sys.stderr.write(f"The worker needs pipes on stdin and stdout: {error.strerror}.\n")
        return UsageError.exit_status
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=FORMAT)
    faulthandler.enable()
    logger.info(STARTS + "%s", os.getpid(), shlex.join(argv if argv is not None else sys.argv[1:]))
    with Signals() as signals:
        channel = Channel(read_fd, write_fd, signals.wake_fd)
        try:
            if fault or arguments is None:
                raise fault or UsageError("The flags could not be read.")
            request = session_request(arguments, str(log))
        except MinagiError as error:
            logger.error("%s", error)
            channel.send(Failure(text=str(error), exit_status=error.exit_status))
            channel.finish()
            return error.exit_status
        lower_priority()
        opener = open_trainer or open_session
        status = serve(lambda: opener(request), logged(channel, request), request.limits, signals, str(log))
    logger.info("Worker %d ends with status %d.", os.getpid(), status)
    return status


def _take_descriptors(log: Path) -> tuple[int, int]:
    """Private copies of stdin and stdout; afterwards 0 reads nothing, and 1 and 2 write to the log."""
    read_fd, write_fd = os.dup(0), os.dup(1)
    log_fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null_fd = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null_fd), (1, log_fd), (2, log_fd)):
        os.dup2(source, target)
    for spent in (log_fd, null_fd):
        if spent > 2:
            os.close(spent)
    return read_fd, write_fd
