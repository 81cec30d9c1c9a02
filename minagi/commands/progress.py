"""A run told on stderr: a live line on a terminal, plain sentences elsewhere."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from minagi import protocol
from minagi.commands.output import aligned, harmless
from minagi.protocol import Command, Message
from minagi.training.request import Limits
from minagi.units import LN2

PLAIN_SECONDS = 10.0  # between two lines of figures where there is no live line


class ProgressChannel:
    """A `ChannelLike` that shows a run and commands nothing.

    `told` is a sentence that the user has read already: a Log that repeats it is not shown.
    """

    def __init__(
        self,
        limits: Limits,
        console: Console | None = None,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        told: str = "",
    ) -> None:
        self.closed = ""
        self._told = told
        self._limits, self._clock, self._wait = limits, clock, wait
        self._console = console or Console(file=sys.stderr, highlight=False, markup=False)
        self._live = self._bar() if self._console.is_terminal else None
        self._task = self._live.add_task("starting", total=None, figures="") if self._live else None
        self._began = clock()
        self._told_at = -math.inf
        self._corpus_chars = 0
        self._context = 0
        self._first_step: int | None = None
        self._held_out = protocol.HeldOut()
        self._readings = 0

    def _bar(self) -> Progress:
        bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), TaskProgressColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self._console, refresh_per_second=4, transient=True,
        )  # fmt: skip
        bar.start()
        return bar

    def poll(self) -> list[Command]:
        """Nobody commands a run that is only shown."""
        return []

    def wait(self, seconds: float) -> None:
        self._wait(seconds)

    def finish(self) -> None:
        if self._live:
            self._live.stop()

    def send(self, message: Message) -> None:
        if isinstance(message, protocol.Metrics):
            self._figures(message)
        elif isinstance(message, protocol.Phase) and self._live and self._task is not None:
            self._live.update(self._task, description=message.phase)
        elif isinstance(message, protocol.HeldOut):
            self._held_out = message
            self._readings += 1
        elif isinstance(message, protocol.CorpusFound):
            self._corpus_chars = message.chars
        if isinstance(message, protocol.Phase) and message.phase == "stopping" and self._readings > 1:
            self._print(comparison(self._held_out))
        text = self._sentence(message)
        if text:
            self._print(text)

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone; the run is not
            self._console.print(harmless(text), soft_wrap=True)

    def _sentence(self, message: Message) -> str:
        if isinstance(message, protocol.Window):
            changed = message.context != self._context
            self._context = message.context
            self._told = message.sentence if changed else ""
            return self._told
        if isinstance(message, protocol.Log) and message.text == self._told:
            return ""
        return sentence(message)

    def _figures(self, metrics: protocol.Metrics) -> None:
        if self._first_step is None:
            self._first_step = metrics.step - 1
        nats = metrics.loss_smooth if metrics.loss_smooth is not None else metrics.loss
        parts = [
            _figure("loss {:.3f} bits a character", nats and nats / LN2),
            _figure("held-out {:.3f}", self._held_out.bits_per_byte),
            f"{metrics.session_chars:,} characters read",
            _figure("{:,.0f}/s", metrics.chars_per_second),
        ]
        text = " · ".join(part for part in parts if part)
        if self._live and self._task is not None:
            done = self._done(metrics)
            total = None if done is None else 1.0
            self._live.update(self._task, completed=min(done or 0.0, 1.0), total=total, figures=text)
        elif self._clock() - self._told_at >= PLAIN_SECONDS:
            self._told_at = self._clock()
            self._print(f"Step {metrics.step:,}: {text}")

    def _done(self, metrics: protocol.Metrics) -> float | None:
        """Share of the run that is over, by the limit that is nearest; without any, of one pass."""
        limits, corpus = self._limits, self._corpus_chars
        steps = metrics.step - (self._first_step or 0)
        shares = [
            (self._clock() - self._began) / (limits.minutes * 60) if limits.minutes else None,
            metrics.session_chars / limits.chars if limits.chars else None,
            steps / limits.steps if limits.steps else None,
            metrics.session_chars / (limits.passes * corpus) if limits.passes and corpus else None,
        ]
        known = [share for share in shares if share is not None]
        if not known and corpus:
            return metrics.session_chars / corpus % 1.0
        return max(known, default=None)


def sentence(message: Message) -> str:
    """What an event says to a person, or "" for those that are figures and drawings only.

    What a `Log` says as well is left to it: the notice of Hello, Growth, notable Rates, why it went back.
    """
    if isinstance(message, protocol.Hello):
        return _hello(message)
    if isinstance(message, protocol.CorpusFound):
        return (
            f"{_count(message.files, 'file')} with {message.chars:,} characters to read and "
            f"{message.held_out_chars:,} held out, in {_count(len(message.subjects), 'subject')}."
        )
    if isinstance(message, protocol.HeldOut):
        if message.nats is None:
            return "Held-out text could not be measured."
        bits = message.nats / LN2 if message.bits_per_byte is None else message.bits_per_byte
        error = _figure(" ± {:.3f}", message.stderr and message.stderr / LN2)
        best = ", the best so far" if message.best else ""
        return f"Held-out: {bits:.3f}{error} bits a character after {message.chars:,} characters{best}."
    if isinstance(message, protocol.Sampled):
        return _sampled(message)
    if isinstance(message, protocol.Saved):
        name = f" as {message.name!r}" if message.name else ""
        return f"Saved{name} at step {message.step:,} (snapshot {message.snapshot})."
    if isinstance(message, protocol.Reverted):
        where = f"snapshot {message.snapshot}, " if message.snapshot else ""
        return f"Back at {where}step {message.step:,}."
    if isinstance(message, (protocol.Log, protocol.Failure)):
        return message.text
    if isinstance(message, protocol.Goodbye):
        kept = "everything is saved" if message.saved else "nothing new was kept"
        return f"Ended at step {message.step:,}: {message.reason}; {kept}."
    return ""


def comparison(held_out: protocol.HeldOut) -> str:
    """What reading changed, subject by subject, in bits a character: a table, or "" if there is none."""
    rows = []
    for name, score in {**held_out.subjects, **held_out.elsewhere}.items():
        now, before, error = score.get("nats"), score.get("before"), score.get("change_stderr")
        if now is not None and before is not None:
            change = f"{(now - before) / LN2:+.3f}" + _figure(" ± {:.3f}", error and error / LN2)
            rows.append((name, f"{before / LN2:.3f}", f"{now / LN2:.3f}", change))
    if not rows:
        return ""
    rows.insert(0, ("held-out, bits a character", "before", "now", "change"))
    return "\n".join(aligned(rows))


def _sampled(sampled: protocol.Sampled) -> str:
    """The first words of each sample, adapted where there is that."""
    said = []
    for sample in sampled.samples:
        prompt, written = sample.get("prompt", ""), sample.get("adapted") or sample.get("raw", "")
        said.append(
            f"{sample.get('subject', '')}: after …{_brief(prompt[-40:])!r} it writes {_brief(written)!r}"
        )
    return "\n".join(said)


def _brief(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 80 else words[:79] + "…"


def _hello(hello: protocol.Hello) -> str:
    made = "A new model" if hello.fresh else f"{hello.model} at step {hello.step:,}"
    kept = " Nothing will be kept: this is a dry run." if hello.dry_run else ""
    machine = f"on {hello.device_name or hello.device} in {hello.precision}"
    return (
        f"{made}: {hello.parameters:,} parameters, {_count(hello.experts, 'expert')}, "
        f"a window of {hello.context} characters, {machine}.{kept}"
    )


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}" + ("" if number == 1 else "s")


def _figure(form: str, value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else form.format(value)
