"""`minagi read`: the trainer without a screen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from minagi.commands.output import private_stdout, say
from minagi.commands.progress import ProgressChannel
from minagi.errors import EXIT_FAILED, EXIT_OK
from minagi.options import ENGINE, Parser, add_machine, add_run, add_settings, session_request
from minagi.protocol import Failure, Message
from minagi.training.request import SessionRequest
from minagi.worker.channel import Channel
from minagi.worker.eventlog import logged
from minagi.worker.loop import TrainerLike
from minagi.worker.serve import open_session, serve
from minagi.worker.signals import Signals

EXAMPLE = """examples:
  minagi read ~/notes --minutes 5              try it out; nothing is kept
  minagi read ~/notes --weights my/model --save --passes 1
  minagi read ~/notes --steps 100 --json | jq .loss
"""


class JsonChannel(Channel):
    """Events on stdout for a program; a failure is told to the person at the terminal as well."""

    def send(self, message: Message) -> None:
        if isinstance(message, Failure):
            say(message.text)
        super().send(message)

    def finish(self, seconds: float = 60.0) -> None:
        super().finish(seconds)


def parser() -> Parser:
    made = Parser(
        prog="minagi read",
        usage="%(prog)s PATH… [--weights DIR] [--save] [--minutes M] [flags]",
        description="Read files and folders and be trained by them. Keeps nothing unless --save is given.\n"
        "Ctrl+c ends the run after the step in flight, saved if it saves; a second one ends it at once.",
        epilog=EXAMPLE,
    )
    add_run(made, saves=False)
    made.add_argument("--json", action="store_true", help="events as JSON lines on stdout")
    add_machine(made)
    add_settings(made, ENGINE)
    return made


def main(argv: Sequence[str], open_trainer: Callable[[SessionRequest], TrainerLike] | None = None) -> int:
    """Read until a limit or a signal. `open_trainer` stands in for the real session."""
    arguments = parser().parse(argv)
    request = session_request(arguments, _log_path())
    opened = partial(open_trainer or open_session, request)
    if request.loaded.notice:
        say(request.loaded.notice)
    with Signals() as signals:
        if arguments.json:
            with private_stdout() as stdout:
                channel = JsonChannel(None, stdout, signals.wake_fd)
                status = serve(opened, logged(channel, request), request.limits, signals, request.log)
                if channel.closed:
                    say(f"minagi: {channel.closed}.")
                return status or (EXIT_FAILED if channel.closed else EXIT_OK)
        shown = ProgressChannel(request.limits, told=request.loaded.notice)
        try:
            return serve(opened, logged(shown, request), request.limits, signals, request.log)
        finally:
            shown.finish()


def _log_path() -> str:
    """The file that logging goes to, if it goes to one."""
    files = [h.baseFilename for h in logging.getLogger().handlers if isinstance(h, logging.FileHandler)]
    return files[0] if files else ""
