"""The run itself: one training step after another, and between two steps whatever was asked for.

`run` is the loop; `minagi.worker.serve` adds what a process needs around it. It knows a trainer by
`TrainerLike` and the other side by `ChannelLike`, and neither torch nor a terminal.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from minagi import protocol
from minagi.errors import MinagiError, UsageError
from minagi.protocol import (
    Ack,
    Command,
    Continue,
    Goodbye,
    Log,
    Message,
    Phase,
    ReplyChunk,
    ReplyEnded,
    ReplyStarted,
    Write,
)
from minagi.training.request import NOTHING_SAVED, Limits
from minagi.worker.parties import ChannelLike, RunLike, TrainerLike
from minagi.worker.signals import Signals

WAIT_SECONDS = 1.0  # a paused run looks around this often; a command or a signal wakes it at once
REPLY_CHARS_MAX = 1_000_000
AT_ONCE = (protocol.Pause, protocol.Resume, protocol.Set, protocol.Stop)  # carried out while writing
AFTERWARDS = (protocol.Evaluate, protocol.Revert)  # not carried out while held-out text is measured


def run(
    trainer: TrainerLike,
    channel: ChannelLike,
    limits: Limits,
    signals: Signals | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Goodbye:
    """Train until a limit, a command, a signal or the loss of the other side ends it; save; say why.

    Raises what `trainer.step` raises, and Hurried after a second signal.
    """
    return _Run(trainer, channel, limits, signals or Signals(), clock).to_the_end()


class _Run:
    """One run's state: whether it is paused, why it is to end, what was asked and waits its turn."""

    def __init__(
        self,
        trainer: TrainerLike,
        channel: ChannelLike,
        limits: Limits,
        signals: Signals,
        clock: Callable[[], float],
    ) -> None:
        self.trainer, self.channel, self.limits = trainer, channel, limits
        self.signals, self.clock = signals, clock
        self.paused = False
        self.leaving = ""  # why, once it is decided
        self.save = True  # at the end
        self.last_reading: float | None = None  # of held-out text, made at the end: nats
        self.kept_reading: float | None = None  # that of the last checkpoint
        self.waiting: deque[Command] = deque()
        self.corpus_chars = 0
        self.phase = ""
        self.began = clock()
        self.first_step, self.first_char = trainer.steps, trainer.chars
        self.handlers: dict[type[Command], Callable[..., str]] = {
            protocol.Pause: self.on_pause,
            protocol.Resume: self.on_resume,
            protocol.Checkpoint: self.on_checkpoint,
            protocol.ListSnapshots: self.on_snapshots,
            protocol.Revert: self.on_revert,
            protocol.Delete: self.on_delete,
            protocol.NewChat: self.on_new_chat,
            protocol.Cancel: self.on_cancel,
            protocol.Probe: self.on_probe,
            protocol.Evaluate: self.on_evaluate,
            protocol.Set: self.on_set,
            protocol.Stop: self.on_stop,
        }

    def to_the_end(self) -> Goodbye:
        with self.signals.breakable():
            self.send_all(self.trainer.greet())  # Hello is the first thing said
        while True:
            self.take_commands()
            self.leaving = self.leaving or self.called_away()
            if not self.leaving and (over := self.over()):
                self.measure_at_the_end()
                self.leaving = self.leaving or self.called_away() or over
            if self.leaving:
                return self.farewell()
            self.tell("paused" if self.paused else self.trainer.phase)
            if self.paused:
                self.send_all(self.trainer.news())
                self.channel.wait(WAIT_SECONDS)
            else:
                with self.signals.breakable():
                    self.send_all(self.trainer.step())

    def called_away(self) -> str:
        """Why the run has to end at once, or ""."""
        if self.signals.received:
            return f"stopped by {self.signals.received}"
        return self.channel.closed

    def over(self) -> str:
        """The limit that is reached, or ""."""
        read, limits = self.trainer.chars - self.first_char, self.limits
        if limits.minutes is not None and self.clock() - self.began >= limits.minutes * 60:
            return f"the {limits.minutes:g} minutes are over"
        if limits.chars is not None and read >= limits.chars:
            return f"{read} characters were read"
        if limits.steps is not None and self.trainer.steps - self.first_step >= limits.steps:
            return f"{self.trainer.steps - self.first_step} steps were made"
        if limits.passes is not None and 0 < limits.passes * self.corpus_chars <= read:
            return f"{limits.passes:g} passes are complete"
        return ""

    def farewell(self) -> Goodbye:
        """Save unless told not to or nothing is new, and say goodbye.

        The reading a run ends with is new as well: a checkpoint of the last step holds the one before.
        """
        trainer = self.trainer
        self.tell("stopping", self.leaving)
        self.send_all(trainer.conclude())
        measured = self.last_reading is not None and self.last_reading != self.kept_reading
        if self.save and not trainer.dry_run and (trainer.unsaved_chars > 0 or measured):
            self.tell("saving")
            self.send_all(trainer.checkpoint(kind="final"))
        saved = not trainer.dry_run and trainer.unsaved_chars == 0
        return goodbye(trainer, self.leaving, saved)

    # --------------------------------------------------------------------------------------- telling

    def send_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(message, Phase):
                self.tell(message.phase, message.reason)
                continue
            if isinstance(message, protocol.CorpusFound):
                self.corpus_chars = message.chars
            elif isinstance(message, protocol.Saved):
                self.kept_reading = message.held_out
            self.channel.send(message)

    def tell(self, phase: str, reason: str = "") -> None:
        if phase != self.phase:
            self.phase = phase
            self.channel.send(Phase(phase=phase, reason=reason))

    def acknowledge(self, command: Command, text: str = "", ok: bool = True) -> None:
        self.channel.send(Ack(id=command.id, command=command.type, ok=ok, text=text))

    # -------------------------------------------------------------------------------------- commands

    def take_commands(self) -> None:
        self.waiting.extend(self.channel.poll())
        while self.waiting and not self.leaving:
            self.carry_out(self.waiting.popleft())

    def carry_out(self, command: Command) -> None:
        """Do what was asked and acknowledge it; what is refused is told and changes nothing."""
        try:
            if isinstance(command, (Write, Continue)):
                self.write(command)  # acknowledges by itself, as soon as the reply is under way
                return
            text = self.handlers[type(command)](command)
        except MinagiError as error:
            self.acknowledge(command, str(error), ok=False)
        except OSError as error:
            self.acknowledge(command, f"That failed: {error.strerror or error}.", ok=False)
        else:
            self.acknowledge(command, text)

    def on_pause(self, command: protocol.Pause) -> str:
        self.paused = True
        return "Paused."

    def on_resume(self, command: protocol.Resume) -> str:
        self.paused = False
        return "Going on."

    def on_checkpoint(self, command: protocol.Checkpoint) -> str:
        if self.trainer.dry_run:
            raise UsageError(NOTHING_SAVED)
        self.tell("saving")
        self.send_all(self.trainer.checkpoint(command.name))
        if command.name:
            self.tell_of_namesakes(command.name)
        return "Saved."

    def tell_of_namesakes(self, name: str) -> None:
        """Two checkpoints may have one name, but nobody should have to find that out in the list."""
        older = sum(item.get("name") == name for item in self.trainer.snapshots().items) - 1
        if older > 0:
            others = "Another checkpoint is" if older == 1 else f"{older} other checkpoints are"
            text = f"{others} named “{name}” too: all are kept, and the list marks the older."
            self.channel.send(Log(at=time.time(), level="warning", topic="checkpoint", text=text))

    def on_snapshots(self, command: protocol.ListSnapshots) -> str:
        self.channel.send(self.trainer.snapshots())
        return ""

    def on_revert(self, command: protocol.Revert) -> str:
        self.tell("reverting")
        self.send_all(self.trainer.revert(command.to))
        return "Reverted."

    def on_delete(self, command: protocol.Delete) -> str:
        self.send_all(self.trainer.delete(command.snapshot))
        return "Deleted."

    def on_new_chat(self, command: protocol.NewChat) -> str:
        self.channel.send(self.trainer.new_chat())
        return "A new conversation."

    def on_cancel(self, command: protocol.Cancel) -> str:
        raise UsageError("Nothing is being written or measured.")

    def on_probe(self, command: protocol.Probe) -> str:
        check_strength(command.strength)
        with self.signals.breakable():
            self.channel.send(self.trainer.probe(command))
        return ""

    def measure_at_the_end(self) -> None:
        """Measure what the run came to, so that it can say what reading gained and cost."""
        with contextlib.suppress(UsageError):  # there is nothing to measure
            self.on_evaluate(protocol.Evaluate(), last=self.trainer.steps > self.first_step)

    def on_evaluate(self, command: protocol.Evaluate, last: bool = False) -> str:
        """Measure. Between two slices it can be cancelled, and what else is asked for is done."""
        self.tell("evaluating")
        slices = self.trainer.evaluate()
        try:
            while (message := self.next_of(slices)) is not None:
                self.send_all([message])
                if last and isinstance(message, (protocol.HeldOut, protocol.Reverted)):
                    self.last_reading = message.nats if isinstance(message, protocol.HeldOut) else None
                between = isinstance(message, Phase)  # other events are what came of the whole
                if between and (self.heard_cancel() or self.did_what_waits()):
                    return "Not measured to the end."
        finally:
            slices.close()
        return "Measured."

    def did_what_waits(self) -> bool:
        """Carry out, in order, what can be while measuring; whether the run is to end because of it."""
        while self.waiting and not self.leaving and not isinstance(self.waiting[0], AFTERWARDS):
            self.carry_out(self.waiting.popleft())
        return bool(self.leaving)

    def on_set(self, command: protocol.Set) -> str:
        if isinstance(command.value, float) and not math.isfinite(command.value):
            raise UsageError(f"{command.key} cannot be {command.value}.")
        return self.trainer.set(command.key, command.value)

    def on_stop(self, command: protocol.Stop) -> str:
        self.save = command.save
        self.leaving = "asked to stop"
        return "Stopping."

    # --------------------------------------------------------------------------------------- writing

    def write(self, command: Write | Continue) -> None:
        """Answer a prompt. Between any two characters it can be cancelled, and commands are heard."""
        if not 1 <= command.chars <= REPLY_CHARS_MAX:
            raise UsageError(f"A reply is 1 to {REPLY_CHARS_MAX} characters long, not {command.chars}.")
        if isinstance(command, Write):
            check_strength(command.strength)
        self.tell("writing")
        replies = self.trainer.reply(command)
        first = self.next_of(replies)  # a prompt that is refused is refused here, before it is acknowledged
        self.acknowledge(command)
        began = self.clock()
        ending = ReplyEnded(id=command.id)  # what there is to say if the reply goes no further
        try:
            message = first
            while message is not None:
                self.channel.send(message)
                ended = isinstance(message, ReplyEnded)
                if isinstance(message, ReplyStarted):
                    ending = ReplyEnded(id=command.id, variant=message.variant)
                elif isinstance(message, ReplyChunk):
                    ending = replace(ending, chars=ending.chars + len(message.rows))
                if not ended and self.heard_cancel():
                    ending = replace(ending, reason="cancelled")
                    break
                message = self.next_of(replies)
                if message is None and ended:
                    return
        except MinagiError as error:
            ending = replace(ending, reason="failed")
            self.channel.send(Log(at=time.time(), level="error", topic="chat", text=str(error)))
        finally:
            replies.close()
        self.channel.send(replace(ending, seconds=self.clock() - began))

    def next_of(self, messages: Iterator[Message]) -> Message | None:
        with self.signals.breakable():
            return next(messages, None)

    def heard_cancel(self) -> bool:
        """Take what comes in while writing or measuring: some is carried out at once, the rest waits."""
        cancelled = False
        for command in self.channel.poll():
            if isinstance(command, protocol.Cancel):
                cancelled = True
                self.acknowledge(command, "Cancelled.")
            elif isinstance(command, AT_ONCE):
                self.carry_out(command)
            else:
                self.waiting.append(command)
        return cancelled or bool(self.leaving or self.signals.received or self.channel.closed)


def goodbye(trainer: RunLike | None, reason: str, saved: bool) -> Goodbye:
    step, chars = (trainer.steps, trainer.chars) if trainer else (0, 0)
    return Goodbye(reason=reason, saved=saved, step=step, chars=chars)


def check_strength(strength: float | None) -> None:
    """Raises UsageError for a strength of adaptation that is none."""
    if strength is not None and not 0 <= strength < math.inf:
        raise UsageError(f"The strength of adaptation must be 0 or more, not {strength}.")
