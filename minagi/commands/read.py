"""`minagi read`: the trainer without a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from minagi.commands.running import log_path, told
from minagi.options import ENGINE, Parser, add_machine, add_run, add_settings, session_request
from minagi.training.request import SessionRequest
from minagi.worker.eventlog import logged
from minagi.worker.parties import ChannelLike, TrainerLike
from minagi.worker.serve import open_session, serve
from minagi.worker.signals import Signals

EXAMPLE = """examples:
  minagi read ~/notes --minutes 5              try it out; nothing is kept
  minagi read ~/notes --weights my/model --save --passes 1
  minagi read ~/notes --steps 100 --json | jq .loss
"""


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
    request = session_request(arguments, log_path())
    opened = partial(open_trainer or open_session, request)

    def held(channel: ChannelLike, signals: Signals) -> int:
        return serve(opened, logged(channel, request), request.limits, signals, request.log)

    return told(arguments.json, request.limits, request.loaded.notice, held)
