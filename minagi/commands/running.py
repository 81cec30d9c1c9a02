"""A run told on the command line: as JSON events on stdout, or to a person on stderr."""

from __future__ import annotations

import logging
from collections.abc import Callable

from minagi.commands.output import private_stdout, say
from minagi.commands.progress import ProgressChannel
from minagi.errors import EXIT_FAILED, EXIT_OK
from minagi.protocol import Failure, Message
from minagi.training.request import Limits
from minagi.worker.channel import Channel
from minagi.worker.parties import ChannelLike
from minagi.worker.signals import Signals


class JsonChannel(Channel):
    """Events on stdout for a program; a failure is told to the person at the terminal as well."""

    def send(self, message: Message) -> None:
        if isinstance(message, Failure):
            say(message.text)
        super().send(message)

    def finish(self, seconds: float = 60.0) -> None:
        super().finish(seconds)


def told(as_json: bool, limits: Limits, notice: str, held: Callable[[ChannelLike, Signals], int]) -> int:
    """Let `held` run over a channel and under signals; returns the exit status, its own if that says more.

    notice: a sentence on the settings, said at once.
    """
    if notice:
        say(notice)
    with Signals() as signals:
        if as_json:
            with private_stdout() as stdout:
                channel = JsonChannel(None, stdout, signals.wake_fd)
                status = held(channel, signals)
                if channel.closed:
                    say(f"minagi: {channel.closed}.")
                return status or (EXIT_FAILED if channel.closed else EXIT_OK)
        shown = ProgressChannel(limits, told=notice)
        try:
            return held(shown, signals)
        finally:
            shown.finish()


def log_path() -> str:
    """The file that logging goes to, if it goes to one."""
    files = [h.baseFilename for h in logging.getLogger().handlers if isinstance(h, logging.FileHandler)]
    return files[0] if files else ""
