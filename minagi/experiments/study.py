"""Reading a new subject with a model that knows others, on a copy, and scoring all of them meanwhile.

The run is the trainer's own, dry: its reader, its steps, its rate that follows held-out text. Three ways:

- MASSED: the new subject alone, as `minagi read` would read it.
- INTERLEAVED: a share of the steps reads the known subjects again.
- PLAIN: massed, as one would fine-tune any network. Every parameter at the same constant rate (trunk at
  1.0×, the rate's factor held at 1), and no pool: every expert is on the card, open to every text, without
  a bound on what it may take.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from minagi.config import Settings, with_values
from minagi.errors import MinagiError, UsageError, WeightsError
from minagi.experiments.forgetting import ForgetRequest, Point, Scored
from minagi.protocol import Message, Phase
from minagi.text.collect import collect
from minagi.text.corpus import Corpus, Subject, shown_path
from minagi.text.lanes import LaneReader, WindowOfText
from minagi.training.elsewhere import recorded_paths
from minagi.training.ours import ours_of
from minagi.training.request import SessionRequest
from minagi.training.session import not_text, open_session
from minagi.weights import Store


class Study:
    """One measurement. `run` makes it, `points` are what was scored so far; `close` forgets the copy."""

    def __init__(self, request: ForgetRequest) -> None:
        """Opens the model and finds the text. Raises MinagiError in words."""
        self.request = request
        with Store.open(request.weights, write=False) as store:
            if not store.exists:
                raise WeightsError(f"{request.weights} holds no model yet, so there is nothing to forget.")
            experts = len(store.uids)
        # A study tells what is read with, and its text has no rounds.
        values = {
            "training.sample_every": 0.0,
            "training.ngram_renew": False,
            **(_plain(experts) if request.plain else {}),
        }
        loaded = with_values(request.loaded, values)
        # A run that went back to where it began would measure nothing: it goes on, or it ends in words.
        self.session = open_session(
            SessionRequest(
                (request.new,), request.weights, loaded, device=request.device, seed=request.seed,
                lr_reset=request.plain, revert_factor=math.inf, max_reverts=0,
            )
        )  # fmt: skip
        try:
            self._begin()
        except BaseException:
            self.session.close()
            raise

    def _begin(self) -> None:
        """Have the session read what this is about, and nothing else that may turn up."""
        request, session = self.request, self.session
        self.settings, self.seed = session.settings, session.start.seed
        ours = ours_of(session.engine.store.manifest)
        self.new = new_subject(request)
        old = known_text(request, self.settings, ours, self.new)
        self.known = tuple(subject for subject in old.subjects if subject.held_out)
        self.notice = _read_before(self.new, ours)
        read = (self.new, *old.subjects) if request.interleave else (self.new,)
        if request.plain:  # without held-out text nothing moves the rate
            read = tuple(replace(subject, held_out=()) for subject in read)
        self.reader = SharedReader(
            Corpus((self.new,)), old, request.interleave, self.settings.data.passage, self.seed
        )
        session.corpus, session.reader, session.watcher = Corpus(read), self.reader, None
        self.window = session.window.context  # of every score, however far it grows meanwhile
        self.points: list[Point] = []

    @property
    def chars(self) -> int:
        """Characters of the new subject read so far."""
        return self.reader.new_chars

    def describe(self) -> dict[str, Any]:
        """What is measured and how, as plain JSON."""
        request, training = self.request, self.settings.training
        return {
            "weights": str(self.request.weights),
            "new": self.new.name,
            "known": [subject.name for subject in self.known],
            "chars": request.chars,
            "interleave": request.interleave,
            "plain": request.plain,
            "lr": training.lr,
            "trunk_lr_mult": training.trunk_lr_mult,
            "resident": self.settings.pool.resident,
            "window": self.window,
            "seed": self.seed,
        }

    def run(self) -> Iterator[Message | Point]:
        """Read, and score at every point: the trainer's events, a Phase a window scored, and the points."""
        request = self.request
        for due in sorted({0, *request.points, request.chars}):
            while self.chars < due:
                yield from self.session.step()
            point = yield from self._score()
            self.points.append(point)
            yield point

    def _score(self) -> Generator[Message, None, Point]:
        model, data = self.settings.model, self.settings.data
        held_out = Corpus((self.new, *self.known))
        slices = self.session.engine.evaluator.held_out(
            held_out, data.eval_chars, model.context_end, self.window, self.settings.training.chunk
        )
        try:
            while True:
                next(slices)
                yield Phase(phase="evaluating")
        except StopIteration as end:
            scores = end.value.subjects
        scored = {}
        for name, score in scores.items():
            if score.nats is None or not math.isfinite(score.nats):
                raise MinagiError(f"The held-out text of {name} gave no finite score. Try a lower --lr.")
            scored[name] = Scored(score.nats, tuple(score.windows))
        read = self.reader.new_chars + self.reader.old_chars
        return Point(self.chars, read, scored.pop(self.new.name), scored)

    def close(self) -> None:
        """Give back files and memory; the directory is as it was."""
        self.session.close()


class SharedReader(LaneReader):
    """Reads a new corpus, and in a share of the characters an old one; each goes on where it stopped."""

    def __init__(self, new: Corpus, old: Corpus, share: float, passage: int, seed: int) -> None:
        super().__init__(new, passage, seed)
        self._old, self._share = LaneReader(old, passage, seed), share
        self.new_chars = 0
        self.old_chars = 0

    def next_window(self, window: int, chunk: int, chars_read: int) -> WindowOfText:
        """A window of whichever corpus is behind its share, the new one first."""
        if self.old_chars < self._share * (self.new_chars + self.old_chars):
            text = self._old.next_window(window, chunk, chars_read)
            self.old_chars += text.new_chars
        else:
            text = super().next_window(window, chunk, chars_read)
            self.new_chars += text.new_chars
        return text

    def take_dropped(self) -> list[str]:
        return super().take_dropped() + self._old.take_dropped()


def _plain(experts: int) -> dict[str, object]:
    return {
        "training.trunk_lr_mult": 1.0, "pool.resident": experts, "pool.capacity_factor": 0.0, "growth.k": 0,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ text


def new_subject(request: ForgetRequest) -> Subject:
    """Everything under `request.new` as one subject with a part held out. Raises UsageError."""
    found = collect((request.new,), exclude=(request.weights,))
    train = tuple(span for subject in found.subjects for span in subject.train)
    held_out = tuple(span for subject in found.subjects for span in subject.held_out)
    if not train or not held_out:
        raise UsageError(f"{shown_path(request.new)} is too short to keep text back for scoring.")
    root = request.new.resolve()
    return Subject(shown_path(root.name or str(root)), root, train, held_out)


def known_text(request: ForgetRequest, settings: Settings, ours: dict[str, Any], new: Subject) -> Corpus:
    """What the model has read, without what lies in the new text. Raises UsageError where none can be scored.

    What an earlier run held out stays held out.
    """
    paths = request.old or recorded_paths(ours)
    if not paths:
        raise UsageError(
            "Where the text lies that this model has read is not recorded with it, or it is gone. "
            "Name it: --old PATH."
        )
    held_out = settings.data.held_out if settings.data.held_out.is_dir() else None
    recorded = ours.get("held_out")
    recorded = recorded if isinstance(recorded, dict) else None
    found = collect(paths, held_out, recorded, not_text(paths, request.weights, settings))
    fresh = {span.path for span in (*new.train, *new.held_out)}
    known = []
    for subject in found.subjects:
        train = tuple(span for span in subject.train if span.path not in fresh)
        scored = tuple(span for span in subject.held_out if span.path not in fresh)
        name = f"{subject.name} (known)" if subject.name == new.name else subject.name
        known.append(Subject(name, subject.root, train, scored))
    corpus = Corpus(tuple(known))
    if not corpus.held_out_chars:
        raise UsageError(
            f"Nothing is left of the known text to be scored beside {shown_path(request.new)}. "
            "Name more of it with --old PATH."
        )
    if request.interleave and not corpus.chars:
        raise UsageError("Nothing is left of the known text to be read again: leave out --interleave.")
    return corpus


def _read_before(new: Subject, ours: dict[str, Any]) -> str:
    """A sentence when the new text lies in what earlier runs were given, or ""."""
    for path in recorded_paths(ours):
        if new.root.is_relative_to(path.resolve()):
            return (
                f"{new.name} lies in {shown_path(path)}, which this model was given to read: is it new to it?"
            )
    return ""
