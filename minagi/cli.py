"""`minagi`: the engine's command line. Data goes to stdout, talk to stderr, errors are sentences."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from minagi.commands import COMMANDS
from minagi.commands.output import say
from minagi.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, MinagiError, UsageError
from minagi.options import nearest
from minagi.worker.logfile import logging_to, open_log
from minagi.worker.signals import INTERRUPT

OVERVIEW = """usage: minagi COMMAND [flags]

A model of your own that never stops learning. minagi-tui opens the app.

commands:
{commands}

  minagi COMMAND --help tells more about one, minagi --version which release this is.

example:
  minagi read ~/notes --weights my/model --save --minutes 10

exit status:
  0 all went well          1 the run could not go on
  2 a flag, a setting or a path is wrong; nothing was started
  3 a file of the weights is damaged or not ours
  4 another program is writing these weights
  130 stopped by a signal, saved if the run saves
"""

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    _open_standard_descriptors()
    log = open_log()
    with logging_to(log):
        try:
            status = _run(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()  # while what may come of it can still be told
            return status
        except SystemExit as leaving:  # argparse, after --help
            return int(leaving.code or EXIT_OK)
        except MinagiError as error:
            say(f"minagi: {error}")
            return error.exit_status
        except KeyboardInterrupt:
            say("Stopped.")
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            # What is still buffered cannot be written either; Python would complain about it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            say("minagi: nobody reads the output any more.")
            return EXIT_FAILED
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            say(f"minagi: {error.strerror or error}{where}.")
            return EXIT_FAILED
        except Exception as error:  # the edge of the program: a defect is logged whole, told in a sentence
            if INTERRUPT.came:
                say("Stopped.")
                return EXIT_INTERRUPTED
            logger.exception("A command ended in a defect.")
            kind = type(error).__name__
            say(f"minagi: something went wrong inside ({kind}). The log has the details: {log}")
            return EXIT_FAILED


def _run(argv: list[str]) -> int:
    name, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    if name == "--version":
        print(f"minagi {version('minagi')}")
        return EXIT_OK
    if name in ("--help", "-h", "help"):
        print(
            OVERVIEW.format(commands="\n".join(f"  {c:<10} {text}" for c, text in COMMANDS.items())), end=""
        )
        return EXIT_OK if argv else UsageError.exit_status
    if name not in COMMANDS:
        raise UsageError(
            f"There is no command {name[:60]!r}.{nearest(name, COMMANDS)} minagi --help lists them."
        )
    # Imported only now: each command pays for what it needs, and --help for nothing.
    return importlib.import_module(f"minagi.commands.{name}").main(rest)


def _open_standard_descriptors() -> None:
    """Where stdin, stdout or stderr was closed, put /dev/null: no file of ours may take that number."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 - lives as long as the process
