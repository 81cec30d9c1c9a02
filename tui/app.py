"""`minagi-tui`: flags, everything that can be told before the screen is taken, and the run itself."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from minagi.completion import SHELLS, Print
from minagi.config import KEYS, LoadedSettings
from minagi.errors import EXIT_FAILED, MinagiError, UsageError
from minagi.options import (
    ENGINE,
    Parser,
    add_machine,
    add_run,
    add_settings,
    engine_flags,
    loaded_settings,
    session_request,
)
from minagi.wrapping import width_of, wrapped
from tui import keymap, terminal
from tui.client import Source, Worker, worker_command
from tui.logbook import Logbook, usual_place
from tui.recording import Recording
from tui.shell import MinagiApp

DEMO = Path(__file__).with_name("demo.jsonl.gz")  # made by docs/make_demo.py
DEMO_SPEED = 4.0
_MILLION = 1e6
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # that ask to leave
_TOLD = ("data.weights", "ui.theme")  # settings that --help tells of


def parser() -> Parser:
    """The flags of the app: those of a run, and its own."""
    made = Parser(
        prog="minagi-tui",
        usage="%(prog)s PATH… [flags]\n       %(prog)s --demo",
        description="Read a folder with a model of your own, watch it learn, and talk to it.",
        epilog="Every other setting is a flag too, as in --lr 1e-3; minagi config lists them.\n"
        "example: minagi-tui ~/notes --weights ~/models/notes",
    )
    made.add_argument("--version", action="version", version=f"minagi {version('minagi')}")
    made.add_argument(
        "--completion", action=Print, choices=SHELLS, help="print what a shell reads to complete these flags"
    )
    own = made.add_argument_group("the app")
    own.add_argument("--replay", type=Path, metavar="FILE", help="show a recorded run; trains nothing")
    own.add_argument("--demo", action="store_true", help="show a recorded run that comes with the app")
    own.add_argument("--speed", type=float, metavar="X", help="pace of a recorded run (0: at once)")
    own.add_argument(
        "--no-headless", action="store_true", help="fail without a terminal instead of reading unseen"
    )
    own.add_argument("--yes", action="store_true", help="start a new model without showing it first")
    add_run(made, saves=True)
    add_machine(made)
    add_settings(made, (*ENGINE, "plots", "ui"))
    for action in made._actions:  # the settings are many, and `minagi config` tells of them better
        if action.dest in KEYS and action.dest not in _TOLD:
            action.help = argparse.SUPPRESS
        elif action.dest == "paths":
            action.help = "files and folders to read"
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the app; returns its exit status. Every error before the first frame is a sentence on stderr."""
    try:
        arguments = parser().parse(argv)
        if not _recorded(arguments) and not arguments.paths:
            raise UsageError(
                "Name a folder or a file to read, as in: minagi-tui ~/notes (--help tells more)."
            )
        loaded = loaded_settings(arguments)
        table = keymap.table(loaded.settings.ui.keys)
        _check_theme(loaded)
        source = _source(arguments)
        missing = terminal.missing()
        if missing:
            _without_a_terminal(arguments, missing)
        app = MinagiApp(
            source, loaded.settings.ui, table, recent_span=loaded.settings.plots.last * _MILLION,
            strength=loaded.settings.decoding.adapt_strength, charts=loaded.settings.plots.enabled,
            reply_chars=loaded.settings.decoding.reply_chars,
            logbook=None if source.recorded else Logbook(usual_place()),
            first_run=not (source.recorded or arguments.yes or _has_model(loaded.settings.data.weights)),
        )  # fmt: skip
    except MinagiError as error:
        _say(str(error))
        return error.exit_status
    except OSError as error:  # nobody reads, or there is no room for, what --help and its like print
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would complain at exit about what is left
        _say(f"{error.strerror or error}.")
        return EXIT_FAILED
    return asyncio.run(_run(app))


def _source(arguments: argparse.Namespace) -> Source:
    """The recording asked for, or a worker for these paths, after what can be checked was checked."""
    if _recorded(arguments):
        if arguments.paths or (arguments.demo and arguments.replay):
            raise UsageError("A recorded run is shown by itself: name either files to read or one recording.")
        speed = arguments.speed if arguments.speed is not None else DEMO_SPEED if arguments.demo else 1.0
        if not 0 <= speed < 1e6:
            raise UsageError(f"--speed must be 0 or more, and less than a million, not {speed}.")
        return Recording(DEMO if arguments.demo else arguments.replay, speed)
    session_request(arguments)
    return Worker(worker_command(engine_flags(arguments)))


def _recorded(arguments: argparse.Namespace) -> bool:
    return arguments.demo or arguments.replay is not None


def _has_model(weights: Path) -> bool:
    """Whether there is something to go on with, told from the one file that every model has."""
    return (weights / "manifest.json").exists()


def _check_theme(loaded: LoadedSettings) -> None:
    from textual.theme import BUILTIN_THEMES

    theme = loaded.settings.ui.theme
    if theme not in BUILTIN_THEMES:
        raise UsageError(
            f"ui.theme is {theme!r}, which is no theme. There are: {', '.join(sorted(BUILTIN_THEMES))}."
        )


def _without_a_terminal(arguments: argparse.Namespace, missing: str) -> NoReturn:
    """Nothing to draw on: read without a screen, unless that is not wanted or means nothing."""
    if _recorded(arguments) or arguments.no_headless:
        raise UsageError(f"The app needs a terminal, and there is none on {missing}.")
    _say(f"There is no terminal on {missing}: reading without a screen, as minagi read does.")
    os.execv(sys.executable, [sys.executable, "-m", "minagi", "read", *engine_flags(arguments)])


async def _run(app: MinagiApp) -> int:
    """The app, then whatever time its worker needs to save."""
    _write(terminal.KEEP_TITLE)
    loop = asyncio.get_running_loop()
    terminal.outlast_input()
    terminal.hold_job_control()
    screen = terminal.outlast()
    screen.on_gone = lambda: loop.call_soon_threadsafe(app.terminal_lost)
    for number in _SIGNALS:  # before the screen is taken: none may come in between and leave it taken
        loop.add_signal_handler(number, app.signalled, number)
    try:
        await app.run_async()
    except Exception as error:  # the edge of the program: a defect is logged whole and told in a sentence
        app.fail(error)
    finally:
        terminal.give_back_job_control()
        _write(terminal.RESTORE_TITLE)
        if app.source.live and not app.source.recorded:
            _say("Saving what was learned…")
        for number in _SIGNALS:
            loop.add_signal_handler(number, app.source.hurry)
        try:
            await app.finish()
        except Exception as error:  # the worker saves all the same: its commands have come to an end
            app.fail(error)
        if app.defect:
            _say(app.defect)
        if told := _last_words(app):
            _say(told)
        # All is said and saved: a ctrl+c too many must not change how it ended while the process goes.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    return app.return_code if app.return_code is not None else EXIT_FAILED  # it did not mean to leave


def _last_words(app: MinagiApp) -> str:
    """What is left to say of the run; of one that was only shown, that nothing came of it here."""
    state = app.state
    if app.source.recorded and state.parting:
        step = f"step {state.metrics.step:,}"
        return f"This was a recording, left at {step}: nothing was read and nothing was written."
    return state.failure or state.parting


def _say(text: str) -> None:
    _write(f"{wrapped(text, width_of(sys.stderr) if sys.stderr else None)}\n")


def _write(text: str) -> None:
    """To stderr, whatever became of the terminal behind it, if there ever was one."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
