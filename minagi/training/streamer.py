"""The streamer: packed corpora read for a number of steps, by a schedule.

Driven from outside, as the trainer is: `step` reads one chunk, or measures for a moment, and does what is due
after it. A checkpoint ends the window that is being read, so that a run that resumes from it goes on exactly
as the one that was not interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from minagi import protocol
from minagi.config import Settings
from minagi.finite import count, number
from minagi.protocol import Message
from minagi.text.mix import Mix, MixReader
from minagi.training import report
from minagi.training.checkpoints import Checkpoints
from minagi.training.chunks import ChunkStep, ChunkStepper
from minagi.training.engine import Engine
from minagi.training.guard import Guard, Rescue
from minagi.training.ours import OURS, ours_of, part_of
from minagi.training.packed_reading import PackedReading
from minagi.training.progress import Progress
from minagi.training.run import Run, note
from minagi.training.schedule import Schedule
from minagi.training.selection import Selection
from minagi.training.start import Start
from minagi.training.stream_history import StreamHistory
from minagi.training.stream_request import STREAM, StreamRequest

READING_SECONDS = 0.2  # a slice of a held-out reading


class Streamer(Run):
    """Reads a mix of corpora with an engine, by a schedule. See `minagi.training.run.Run`."""

    dry_run = False

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        mix: Mix,
        request: StreamRequest,
        start: Start,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises UsageError where lengths contradict each other."""
        lengths = request.lengths(settings)
        self.engine, self.settings, self.mix = engine, settings, mix
        self.request, self.start, self._clock = request, start, clock
        self.chunk = lengths.chunk
        self.progress = Progress()
        self.schedule = Schedule(request.steps, request.warmup_steps, lengths.start, lengths.context)
        self.guard = Guard(request.revert_factor, request.max_reverts)
        self.reader = MixReader(mix.train, mix.weights, start.seed, request.replay)
        self.reading = PackedReading(
            mix.val, mix.weights, request.eval_chunks * lengths.chunk, lengths.context, clock
        )
        self.stepper = ChunkStepper(engine, self.reader, settings.training, request.accum, start.seed, clock)
        self.selection = Selection(
            engine, request.in_steps(settings), start.seed, self._chars_a_step, request.pool_max
        )
        self.history = StreamHistory(engine.store.path, self.progress, lambda: self.done)
        self.checkpoints = Checkpoints(
            engine,
            self.progress,
            self.history,
            self._manifest,
            lambda: {
                **report.row(self.progress, self.context, self.schedule.factor, self._last),
                "done": self.done,  # by the time it is written there may be more
            },
            dry_run=False,
            save_every=settings.training.save_every,
            clock=clock,
        )
        self.done = 0  # steps of the stream
        self._measured_at = 0  # of those, when held-out was read last
        self._last: protocol.HeldOut | None = None  # reading
        if not start.fresh:
            self._restore(engine.store.manifest)
        if request.restart:
            self.done = self._measured_at = 0
            self.schedule.load_state({})

    # --------------------------------------------------------------------------------- figures

    @property
    def admitted(self) -> list[int]:
        return self.stepper.admitted

    @property
    def concluded(self) -> bool:
        """Every step was made, and measured."""
        return self.done >= self.request.steps and self._measured_at == self.done

    @property
    def context(self) -> int:
        """Characters in a window that opens now."""
        return self.schedule.window(self.done)

    @property
    def _chunk_now(self) -> int:
        return min(self.chunk, self.context)

    def _chars_a_step(self) -> int:
        return self.request.accum * self._chunk_now

    def _manifest(self) -> dict[str, Any]:
        """The manifest keys that are a run's. What a trainer kept among our own stays, but for its window."""
        ours = {key: value for key, value in ours_of(self.engine.store.manifest).items() if key != "window"}
        return {
            **self.counters(self.context, self.reading.identity),
            OURS: {
                **ours,
                "profile": self.start.profile,
                "progress": self.progress.state_dict(),
                "growth": self.selection.last,
                STREAM: {
                    "done": self.done,
                    "measured_at": self._measured_at,
                    "best": self.guard.best,
                    "measured": self.reading.identity,
                    "schedule": self.schedule.state_dict(),
                    "reader": self.reader.state(),
                },
            },
        }

    def _restore(self, manifest: Mapping[str, Any]) -> None:
        """Take over what a manifest says of a stream; what it does not say starts at its beginning."""
        ours = ours_of(manifest)
        stream = part_of(ours, STREAM)
        self.progress.load(dict(manifest), part_of(ours, "progress"))
        self.done = min(count(stream.get("done")), self.progress.step)
        self._measured_at = min(count(stream.get("measured_at")), self.done)
        known = stream.get("measured") == self.reading.identity
        self.guard.best = number(stream.get("best")) if known else None
        if not known:
            self.progress.val = None
        self.schedule.load_state(part_of(stream, "schedule"))
        self.reader.restore(part_of(stream, "reader"))
        self._last = None
        self.selection.parents.clear()
        self.selection.remember(ours.get("growth"))
        self.reading.give_up()
        self.history.forget()
        self.stepper.leave()

    # ------------------------------------------------------------------------------------ greeting

    def greet(self) -> Iterator[Message]:
        """Who this is and what there is to read. What is new is saved first: there is always a way back."""
        start, window = self.start, self.schedule.told(self.done)
        yield report.hello(self.engine, self.settings, self.progress, start, window)
        yield protocol.CorpusFound(**self.mix.corpus.summary())
        for sentence in start.notice.splitlines():
            yield note("run", sentence)
        if not start.fresh:
            yield from self.checkpoints.resumed()
        if start.fresh or self.request.restart:
            yield from self.checkpoints.save("auto")
        if not self.concluded:
            yield from self.history.tell("start", **self._beginning())
        yield from self.figures()

    def _beginning(self) -> dict[str, Any]:
        """What a row of kind `start` says."""
        hardware = self.engine.hardware
        return {
            "flags": {**self.request.told(self.settings), "seed": self.start.seed},
            "parameters": self.engine.parameters, "experts": self.engine.pool.experts,
            "context": self.context, "device": hardware.device, "precision": hardware.precision,
        }  # fmt: skip

    # ---------------------------------------------------------------------------------------- step

    def step(self) -> Iterator[Message]:
        """Read one chunk, and make a step where it is the last of one; or measure for a moment."""
        yield from self.checkpoints.told()
        if not self.reading.open and self._reading_due():
            self.reading.begin(self.engine.evaluator, self.context, self._chunk_now)
        if self.reading.open:
            yield protocol.Phase(phase="evaluating")
            reading = self.reading.go_on(READING_SECONDS, self.progress)
            if reading is not None:
                yield from self._judge(reading)
            return
        yield protocol.Phase(phase="running")
        lr = self.settings.training.lr * self.schedule.rate(self.done)
        burst = self.request.replay_burst * self._chunk_now
        made = self.stepper.read(self.context, self._chunk_now, burst, lr, self.chars)
        if made is None:
            return
        if made.fault:
            yield self._metrics(made, lr)
            yield from self._rescue(self.guard.nonfinite_step(made.fault))
        else:
            yield from self._stepped(made, lr)

    def _reading_due(self) -> bool:
        since = self.done - self._measured_at
        due = since >= self.request.eval_every or self.done >= self.request.steps
        return self.stepper.whole and since > 0 and due

    def _stepped(self, made: ChunkStep, lr: float) -> Iterator[Message]:
        """Count a step that was made, tell of it, and do what is due."""
        self.guard.finite_step()
        for chunk in made.chunks:
            self.progress.read(chunk.source, chunk.chars, chunk.nats)
        self.progress.stepped(made.chars, made.seconds, made.loads, made.dropped)
        self.history.add(made)
        before = self.context
        self.done += 1
        metrics = self._metrics(made, lr)
        yield metrics
        if self.context != before:
            yield self._window_event()
        if self.done % self.request.log_every == 0:
            yield from self.history.tell_steps(metrics, self.engine.pool.experts)
        yield from self.figures_due()
        if self.checkpoints.due() and not self._reading_due():
            yield from self._save("auto")

    # ----------------------------------------------------------------------------------- measuring

    def _judge(self, reading: protocol.HeldOut) -> Iterator[Message]:
        """Guard against divergence; save what is better than all before; prune and grow."""
        progress = self.progress
        nats = math.nan if reading.nats is None else reading.nats
        before = self.guard.best
        rescue = self.guard.held_out(nats)
        best = rescue is None and (before is None or nats < before)
        progress.evaluated_chars, progress.evaluated_step = progress.chars, progress.step
        self._measured_at = self.done
        self._last = replace(reading, best=best)
        yield self._last
        yield from self.history.tell(
            "val", val=nats, stderr=reading.stderr, best=best, context=self.context, gap=reading.gap,
            subjects=reading.subjects,
        )  # fmt: skip
        if rescue is not None:
            yield from self._rescue(rescue)
            return
        if best or self.concluded:
            yield from self._save("best" if best else "final")
        if self.concluded:
            yield from self._conclude()
        else:
            yield from self._select()

    def _select(self) -> Iterator[Message]:
        """Prune what went unused, grow if nothing speaks against it; save at once what came of it."""
        event = self.selection.decide(self.progress, self.progress.gap)
        yield replace(event, next_at_chars=self.chars + self.request.eval_every * self._chars_a_step())
        yield note("pool", event.sentence)
        experts = self.engine.pool.experts
        if event.pruned:
            yield from self.history.tell("pruned", uids=event.pruned, experts=experts, why=event.sentence)
        if event.born:
            parents = {str(uid): self.selection.parents[uid] for uid in event.born}
            yield from self.history.tell("grew", uids=event.born, parents=parents, experts=experts)
        else:
            yield from self.history.tell("held", experts=experts, why=event.sentence)
        if event.born or event.pruned:
            yield from self._save("auto")

    def _conclude(self) -> Iterator[Message]:
        if self.unsaved_chars:
            return  # whoever drives this tries again, and tells why it fails
        yield from self.history.tell(
            "done", val=self.progress.val, best=self.guard.best, loss=self.progress.loss.value,
            experts=self.engine.pool.experts, reverts=self.guard.reverts, skipped=self.guard.skipped,
        )  # fmt: skip

    # --------------------------------------------------------------------------- saving, going back

    def checkpoint(self, name: str = "", kind: str = "asked") -> Iterator[Message]:
        """Save now. A step that is only half read is given up."""
        self.stepper.leave()
        yield from self.checkpoints.save(kind, name)

    def _save(self, kind: str) -> Iterator[Message]:
        """A checkpoint nobody asked for, written while reading goes on if there is more to read. A step that
        is only half read is given up."""
        self.stepper.leave()
        if self.concluded:
            yield from self.checkpoints.attempt(kind, goes_on=False)
        else:
            yield from self.checkpoints.begin(kind)

    def _go_back(self, rescue: Rescue) -> Iterator[Message]:
        schedule, left, val = self.schedule, self.done, self.progress.val
        factor, window_factor = schedule.factor, schedule.window_factor
        back = self._best() if rescue.to == "best" else ""
        self.stepper.leave()
        yield from self.checkpoints.revert(back, rescue.sentence, self._restore)
        schedule.factor = min(schedule.factor, factor)
        schedule.window_factor = min(schedule.window_factor, window_factor)
        schedule.halve(rescue.halve_window)
        yield self._window_event()
        yield from self.history.tell(
            "reverted", left_at=left, left_val=val, factor=schedule.factor, context=self.context,
            why=rescue.sentence,
        )  # fmt: skip

    def _best(self) -> str:
        """The snapshot with the lowest reading of this stream; "" (the last checkpoint) if none is kept."""
        return self.checkpoints.best(self.steps - self.done - 1)

    def conclude(self) -> Iterator[Message]:
        """What is to be said at the end: what came of a checkpoint under way."""
        return self.checkpoints.finish()

    def close(self) -> None:
        """Give files and the weights directory back, once a checkpoint that was begun is written."""
        try:  # what a run that could not conclude has left
            list(self.conclude())
        finally:
            self.mix.close()
            self.engine.store.close()

    # ------------------------------------------------------------------------------------ events

    def _metrics(self, made: ChunkStep, lr: float) -> protocol.Metrics:
        return report.metrics(
            self.progress,
            made.loss,
            subject=made.chunks[-1].source,
            norm=made.norm,
            signal=None,
            factor=self.schedule.factor,
            lr=lr,
            context=self.context,
            skipped=self.guard.skipped,
            corpus=self.mix.corpus,
        )

    def _window_event(self) -> protocol.Window:
        return protocol.Window(
            step=self.steps, chars=self.chars, context=self.context, ceiling=self.schedule.ceiling
        )
