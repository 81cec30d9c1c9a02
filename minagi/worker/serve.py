"""A whole run as a process has it: open the session, train, and end in words whatever happens.

`minagi read` and `python -m minagi.worker` are both `serve`, over a channel of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from minagi.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, MinagiError
from minagi.hardware import prepare_environment
from minagi.protocol import Failure, Goodbye, Message
from minagi.training.request import Limits, SessionRequest
from minagi.worker.loop import goodbye, run
from minagi.worker.parties import ChannelLike, RunLike, TrainerLike
from minagi.worker.signals import Hurried, Signals, loading

R = TypeVar("R", bound=RunLike)

logger = logging.getLogger(__name__)


def open_session(request: SessionRequest) -> TrainerLike:
    """The real trainer. torch is loaded here, after its environment was set. Raises MinagiError."""
    prepare_environment(request.threads, request.loaded.settings.hardware)
    with loading():
        from minagi.training import session

    return session.open_session(request)


def serve(
    open_trainer: Callable[[], TrainerLike],
    channel: ChannelLike,
    limits: Limits,
    signals: Signals,
    log: str = "",
) -> int:
    """Open a session, run it to its end, say how it ended. Returns the exit status.

    log: where a person finds the traceback of a defect.
    """
    return hold(open_trainer, lambda trainer: run(trainer, channel, limits, signals), channel, signals, log)


def hold(
    open_run: Callable[[], R],
    drive: Callable[[R], Goodbye],
    channel: ChannelLike,
    signals: Signals,
    log: str = "",
) -> int:
    """`serve` for any kind of run: `drive` takes it to its end."""
    trainer: R | None = None
    status = EXIT_OK
    hurried = False
    try:
        with signals.breakable():
            trainer = _opened(open_run, signals)
            trainer.guarded = signals.unbreakable
        last: Message = drive(trainer)
        status = EXIT_INTERRUPTED if signals.received else EXIT_OK
    except Hurried:
        hurried = True
        _close(trainer)  # finishes a save that was begun: what that holds is not lost
        lost = trainer.unsaved_chars if trainer and not trainer.dry_run else 0
        reason = "stopped at once by a second signal"
        if lost:
            reason += f"; {lost} characters read since the last checkpoint are lost"
        last = goodbye(trainer, reason, saved=lost == 0)
        status = EXIT_INTERRUPTED
    except MinagiError as error:
        saved = _save_what_there_is(trainer, channel)
        last = Failure(text=str(error), saved=saved, exit_status=error.exit_status)
        status = error.exit_status
    except Exception as error:  # the edge of the process: a defect is logged whole and told in a sentence
        logger.exception("The run ended in a defect.")
        saved = _save_what_there_is(trainer, channel)
        where = f" The log has the details: {log}" if log else ""
        text = f"Something went wrong inside minagi ({type(error).__name__}: {_brief(error)}).{where}"
        last = Failure(text=text, saved=saved, exit_status=EXIT_FAILED)
        status = EXIT_FAILED
    channel.send(last)
    if not hurried:
        _close(trainer)
    channel.finish()
    return status


def _opened(open_run: Callable[[], R], signals: Signals) -> R:
    """What is to be run. Where a second signal breaks into a library that is being loaded, that may fail with
    an error of its own: no defect then, and nothing was read yet. Raises Hurried."""
    try:
        return open_run()
    except Exception as error:
        if signals.hurried:
            raise Hurried from error
        raise


def _save_what_there_is(trainer: RunLike | None, channel: ChannelLike) -> bool:
    """After a fault: whether what was learnt is on disk, if need be by saving it now."""
    if trainer is None or trainer.dry_run:
        return False
    if trainer.unsaved_chars == 0:
        return True
    try:
        for message in trainer.checkpoint(kind="final"):
            channel.send(message)
    except Exception:  # the first fault is the one to tell; this one goes to the log
        logger.exception("What was learnt could not be saved.")
        return False
    return True


def _close(trainer: RunLike | None) -> None:
    try:
        if trainer is not None:
            trainer.close()
    except Exception:  # the edge of the process: what there is to say was said
        logger.exception("The session could not be closed in order.")


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:200] + "…"
