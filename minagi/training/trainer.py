"""The trainer: a state machine that makes one step at a time and does, after each, whatever is due.

It is driven from outside (`minagi.worker.loop`): every method returns or yields events, nothing here
waits, sleeps or listens. Cadences are in characters; saving alone goes by the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

from minagi import protocol
from minagi.config import LoadedSettings
from minagi.errors import UsageError
from minagi.finite import number
from minagi.model.loss import Loss
from minagi.protocol import Message
from minagi.text.corpus import Corpus
from minagi.text.lanes import LaneReader, WindowOfText
from minagi.text.watch import CorpusWatcher
from minagi.training import report
from minagi.training.chat import Chat
from minagi.training.chat_records import ChatRecords
from minagi.training.checkpoints import Checkpoints
from minagi.training.engine import Engine
from minagi.training.guard import Guard, Rescue
from minagi.training.history import History
from minagi.training.measuring import Measuring
from minagi.training.ours import OURS, ours_of, texts
from minagi.training.past import past
from minagi.training.probe import probe
from minagi.training.progress import Progress
from minagi.training.rate import RateControl
from minagi.training.renewal import Renewal
from minagi.training.run import Run, note
from minagi.training.samples import Sampling, heading
from minagi.training.selection import Selection
from minagi.training.signal import GradSignal
from minagi.training.start import Start
from minagi.training.stepping import Stepper
from minagi.training.window import window_of

BEST_SECONDS = 60.0  # a best reading is worth a checkpoint of its own this long after the last one
SLICE_SECONDS = 0.1  # of a held-out reading, or of writing samples


class Trainer(Run):
    """Reads a corpus with an engine. See `minagi.worker.parties.TrainerLike` for how it is driven.

    Without a watcher the corpus stays what it is, whatever becomes of its files.
    """

    def __init__(
        self,
        engine: Engine,
        loaded: LoadedSettings,
        corpus: Corpus,
        reader: LaneReader,
        watcher: CorpusWatcher | None,
        start: Start,
        records: ChatRecords,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = loaded.settings
        self.engine, self.settings, self.start = engine, settings, start
        self.reader, self.watcher = reader, watcher
        self.corpus = corpus
        self._clock = clock
        self.dry_run = start.dry_run
        self.progress = Progress()
        self.rate = RateControl()
        self.window = window_of(settings.model)
        self.guard = Guard(start.revert_factor, start.max_reverts)
        self.stepper = Stepper(engine, settings.training, start)
        self.renewal = Renewal(engine.net.ngram, settings.training, self.progress)
        self._choice: dict[str, Any] = {}  # what was held out of subjects that may come back
        self._paths: list[str] = []  # what earlier runs were given to read
        self.checkpoints = Checkpoints(
            engine,
            self.progress,
            History(settings.data.history),
            self._manifest,
            lambda: report.life(self.progress, self.window.context, self.rate.factor, self._measuring.last),
            dry_run=start.dry_run,
            save_every=settings.training.save_every,
            clock=clock,
        )
        self.selection = Selection(
            engine, settings, start.seed, chunk=lambda: min(settings.training.chunk, self.window.context)
        )
        self.chat = Chat(engine, settings.decoding, records)
        self._pulse = protocol.Metrics()
        self._measuring = Measuring(
            engine, settings, self.progress, self.rate, self.guard, start.elsewhere, clock
        )
        self.sampling = Sampling(engine, settings, start, clock)
        if not start.fresh:
            self._restore(engine.store.manifest)
        if start.lr_reset:
            self.rate.reset()

    # --------------------------------------------------------------------------------- figures

    @property
    def admitted(self) -> list[int]:
        return self.stepper.admitted

    @property
    def phase(self) -> str:
        """What the coming step is: training, or a slice of a held-out reading or of writing samples."""
        return "evaluating" if self._measuring.open else "sampling" if self.sampling.open else "running"

    def _manifest(self) -> dict[str, Any]:
        """The manifest keys that are the trainer's."""
        return {
            **self.counters(self.window.context, self.corpus.measured),
            OURS: {
                "profile": self.start.profile,
                "progress": self.progress.state_dict(),
                "rate": self.rate.state_dict(),
                "window": self.window.state_dict(),
                "reader": self.reader.state(),
                "renewal": self.renewal.state_dict(),
                "best": self.guard.best,
                "growth": self.selection.last,
                "measured": self.corpus.measured,
                "held_out": {**self._choice, **self.corpus.choice},
                "paths": list(dict.fromkeys([*self._paths, *map(str, self.corpus.paths)])),
            },
        }

    def _restore(self, manifest: dict[str, Any], restarted: bool = True) -> None:
        """Take over everything a manifest says of a run; what it does not say starts at its beginning."""
        ours = ours_of(manifest)
        part = {key: value if isinstance(value, dict) else {} for key, value in ours.items()}
        self.progress.load(manifest, part.get("progress", {}))
        self.rate.load_state(part.get("rate"), restarted)
        self.window.load_state(part.get("window"), manifest.get("context_now"), self.progress.chars)
        self.reader.restore(part.get("reader", {}))
        self.renewal.load_state(part.get("renewal", {}))
        self._choice = part.get("held_out", {})
        self._paths = texts(ours.get("paths"))
        self.guard.best = number(ours.get("best"))
        if ours.get("measured") != self.corpus.measured:
            self._forget_readings()
        self.stepper.signal = GradSignal()
        self.selection.parents.clear()
        self.selection.remember(ours.get("growth"))
        self._measuring.forget()
        self.sampling.give_up()

    def _forget_readings(self) -> None:
        """Other text is measured than before: earlier readings say nothing of it."""
        self.guard.best = self.progress.val = None
        self.progress.forget_readings()
        self._measuring.forget()

    # ------------------------------------------------------------------------------------ greeting

    def greet(self) -> Iterator[Message]:
        """Who this is, what there is to read, and how things stand."""
        yield report.hello(
            self.engine, self.settings, self.progress, self.start, self.window, self.corpus.paths,
            self.guard.best,
        )  # fmt: skip
        yield from report.found(self.corpus)
        if not self.start.fresh:
            yield self._past()
        for sentence in self.start.notice.splitlines():
            yield note("run", sentence)
        yield report.window(self.progress, self.window)
        yield self.selection.waiting(self.progress)
        yield from self.figures()
        yield from self.chat.greet()
        if not self.start.fresh:
            yield from self.checkpoints.resumed()
            self._measuring.begin(self.corpus, self.window.context, everywhere=True)

    def _past(self) -> Message:
        return past(self.checkpoints.history, str(self.engine.store.path), self.progress)

    # ---------------------------------------------------------------------------------------- step

    def step(self) -> Iterator[Message]:
        """One training step and whatever is due after it, or a slice of what is in progress."""
        yield from self.checkpoints.told()
        if self._measuring.open:
            yield from self._go_on_reading()
            return
        if self.sampling.open:
            yield from self.sampling.go_on(SLICE_SECONDS, self._heading)
            return
        yield from self._watch()
        began = self._clock()
        text = self.reader.next_window(self.window.context, self.settings.training.chunk, self.chars)
        for sentence in self.reader.take_dropped():
            yield note("files", sentence, "warning")
        if anew := self.renewal.prepare(text, self.corpus):
            yield note("run", anew)
        again = self.renewal.share(text)
        lr = self.settings.training.lr * self.rate.factor * self.rate.warmup(self.steps)
        made = self.stepper.make(text, lr, self.steps, self.chars, again)
        if made.norm is None:
            what = "loss" if not math.isfinite(float(made.loss.ce)) else "gradient"
            rescue = self.guard.nonfinite_step(what)
            yield self._metrics(text, made.loss, math.nan, lr, again)
            yield from self._rescue(rescue)
            return
        self.guard.finite_step()
        self.progress.took(
            text.subject, text.new_chars, float(made.loss.ce), self._clock() - began, made.loads, made.dropped
        )
        yield self._metrics(text, made.loss, made.norm, lr, again)
        yield from self.figures_due()
        yield from self._after(made.loss)

    def _after(self, loss: Loss) -> Iterator[Message]:
        """What is due after a step."""
        moved = self.window.observe(loss.nats.cpu().numpy(), self.settings.training.chunk, self.chars)
        if moved is not None:
            yield report.window(self.progress, self.window, moved)
            if moved.grew and moved.context == self.window.ceiling:
                yield note("window", moved.sentence)
        if self._measuring.due:
            self._measuring.begin(self.corpus, self.window.context)
        if self.sampling.due:
            self.sampling.begin(self.corpus, self.window.context)
        if self.stepper.trace.full:
            yield from self.stepper.trace.finish()
        if self.selection.due(self.progress):
            yield from self._select()
        elif self.checkpoints.due():
            yield from self.checkpoints.begin("auto")

    def _select(self) -> Iterator[Message]:
        event = self.selection.decide(self.progress, self.progress.gap)
        yield event
        yield note("pool", event.sentence)
        yield from self.figures()
        if (event.born or event.pruned) and self.start.pool_checkpoint:
            yield from self.checkpoints.begin("auto")

    def _watch(self) -> Iterator[Message]:
        change = self.watcher.poll() if self.watcher else None
        if change is None:
            return
        self._choice |= self.corpus.choice
        other = change.corpus.measured != self.corpus.measured
        if other:
            self._forget_readings()
        self.corpus = change.corpus
        self.reader.replace_corpus(change.corpus, change.changed)
        yield protocol.CorpusFound(**change.corpus.summary())
        if other:
            yield self._past()
        yield note("files", report.change_sentence(change))

    # -------------------------------------------------------------------------------- going back

    def _go_back(self, rescue: Rescue) -> Iterator[Message]:
        factor, context = self.rate.factor, self.window.context
        yield from self.revert("" if rescue.to == "last" or self.dry_run else rescue.to, rescue.sentence)
        self.rate.factor = min(self.rate.factor, factor)
        self.rate.halve()
        if rescue.halve_window:
            self.window.context = min(self.window.context, context)
            self.window.halve()

    def revert(self, to: str = "", reason: str = "asked") -> Iterator[Message]:
        """Become snapshot `to` again ("" the last checkpoint), after keeping the present."""
        for event in self.checkpoints.revert(to, reason, lambda manifest: self._restore(manifest, False)):
            reverted = isinstance(event, protocol.Reverted)
            yield replace(event, **report.best_of(self.progress, self.guard.best)) if reverted else event
        yield report.window(self.progress, self.window)
        yield self.selection.waiting(self.progress)
        yield from self.figures()

    # -------------------------------------------------------------------------------- measuring

    def evaluate(self) -> Generator[Message, None, None]:
        """Measure held-out text now, slice by slice; closing the generator gives the reading up."""
        if not self.corpus.held_out_chars:
            raise UsageError("There is no held-out text to measure: too little text was given.")
        self._measuring.begin(self.corpus, self.window.context, everywhere=True)
        try:
            while self._measuring.open:
                yield from self._go_on_reading()
        finally:
            self._measuring.give_up()

    def _go_on_reading(self) -> Iterator[Message]:
        """Make a slice of the reading; go back or save where what was measured asks for it."""
        judged = yield from self._measuring.go_on(SLICE_SECONDS)
        if judged is not None and judged.rescue is not None:
            yield from self._rescue(judged.rescue)
        elif judged is not None and judged.best and self.checkpoints.age() >= BEST_SECONDS:
            yield from self.checkpoints.begin("best")

    # ---------------------------------------------------------------------------------- asked for

    def checkpoint(self, name: str = "", kind: str = "asked") -> Iterator[Message]:
        """Save now; a name keeps the snapshot until it is deleted."""
        yield from self.checkpoints.save(kind, name)

    def news(self) -> Iterator[Message]:
        """What came of a checkpoint that was written while training is paused."""
        return self.checkpoints.told(goes_on=False)

    def snapshots(self) -> protocol.Snapshots:
        return self.checkpoints.snapshots()

    def delete(self, snapshot: str) -> Iterator[Message]:
        """Remove a kept checkpoint, given by id or by name."""
        return self.checkpoints.delete(snapshot)

    def reply(self, command: protocol.Write | protocol.Continue) -> Generator[Message, None, None]:
        """Answer a prompt, one chunk a character."""
        return self.chat.reply(command, self.window.context)

    def new_chat(self) -> Message:
        return self.chat.forget()

    def probe(self, command: protocol.Probe) -> protocol.Probed:
        return probe(self.engine, self.settings.decoding, command, self.window.context)

    def set(self, key: str, value: float | bool | str | None) -> str:
        """Change a run-time value; returns what changed."""
        if key == "rate_reset":
            self.rate.reset()
            return "The learning rate is at its full value again."
        if key == "learn_from_chat":
            if not isinstance(value, bool):
                raise UsageError(f"learn_from_chat is true or false, not {value!r}.")
            return self.chat.learn(value)
        raise UsageError(f"{key} cannot be changed while running. What can: rate_reset, learn_from_chat.")

    def conclude(self) -> Iterator[Message]:
        """What is to be said at the end: what came of a checkpoint under way, and what reading gained and
        cost, by the last measurement."""
        yield from self.checkpoints.finish()
        if self._measuring.last is not None:
            yield from report.reckoning(self._measuring.last)
        yield from self.stepper.trace.finish()

    def close(self) -> None:
        """Give the weights directory back, once a checkpoint that was begun is written and counted."""
        try:  # what a run that could not conclude has left
            list(self.stepper.trace.finish())
            list(self.checkpoints.finish())
        finally:
            self.engine.store.close()

    # ------------------------------------------------------------------------------------ events

    def _metrics(self, text: WindowOfText, loss: Loss, norm: float, lr: float, again: float) -> Message:
        self._pulse = report.metrics(
            self.progress, loss, subject=text.subject, norm=norm, signal=self.stepper.signal.value, lr=lr,
            again=again, factor=self.rate.factor, context=self.window.context, corpus=self.corpus,
            skipped=self.guard.skipped,
        )  # fmt: skip
        return self._pulse

    def _heading(self) -> str:
        where, clip, read = str(self.engine.store.path), self.settings.training.clip, self._measuring
        window = report.window(self.progress, self.window)
        return heading(where, self._pulse, window, clip, read.last, read.move)
