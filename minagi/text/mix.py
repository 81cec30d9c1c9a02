"""The order of reading packed corpora: one window at a time, from the next source by weight.

A window is drawn from (seed, windows opened so far) and nothing else, so that a run that resumes goes on as
the unbroken one would have. With replay, a share of windows reopen a place that was read before.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from minagi.errors import UsageError
from minagi.finite import count
from minagi.text.alphabet import Ids
from minagi.text.corpus import Corpus, Subject, TextSpan, shown_path
from minagi.text.packed import PackedCorpus, PackedText

REMEMBERED = 512  # places that replay draws from: every one read so far is as likely to be among them


class Source(NamedTuple):
    """One corpus of a mix."""

    name: str
    folder: Path
    weight: float  # chance to give the next window, in any unit


class Mix:
    """Corpora, open, by name; and their weights."""

    def __init__(self, sources: Sequence[Source]) -> None:
        """Raises UsageError for what is no corpus; nothing stays open then."""
        self.weights = {source.name: source.weight for source in sources}
        self.corpora: dict[str, PackedCorpus] = {}
        try:
            for source in sources:
                self.corpora[source.name] = PackedCorpus(source.folder)
        except UsageError:
            self.close()
            raise

    @property
    def train(self) -> dict[str, PackedText]:
        return {name: corpus.train for name, corpus in self.corpora.items()}

    @property
    def val(self) -> dict[str, PackedText]:
        return {name: corpus.val for name, corpus in self.corpora.items()}

    @property
    def corpus(self) -> Corpus:
        """The mix as other runs tell of what they read: a subject a corpus, spans in characters."""

        def subject(name: str, corpus: PackedCorpus) -> Subject:
            train, val = ((TextSpan(text.path, 0, len(text)),) for text in (corpus.train, corpus.val))
            return Subject(name, corpus.folder, train, val)

        return Corpus(tuple(subject(name, corpus) for name, corpus in self.corpora.items()))

    def check(self, window: int) -> None:
        """Raise UsageError where a text holds no window of so many characters, or nothing to measure."""
        for corpus in self.corpora.values():
            for text, least in ((corpus.train, window + 1), (corpus.val, 2)):
                if len(text) < least:
                    raise UsageError(
                        f"{shown_path(text.path)} holds {len(text):,} characters, and at least {least:,} are "
                        "needed. Pack more text, or lower --context."
                    )

    def close(self) -> None:
        """Give the files back."""
        for corpus in self.corpora.values():
            corpus.close()


class Place(NamedTuple):
    """Where a window begins."""

    source: str
    start: int


@dataclass(frozen=True)
class MixWindow:
    """A window's text. `ids[:-1]` are the inputs and `ids[1:]` what follows each of them."""

    number: int  # windows opened before it
    source: str
    ids: Ids  # (2 .. window + 1,)


class MixReader:
    """Gives windows for ever. `weights` are the sources' chances, in any unit; each text holds a window."""

    def __init__(
        self, sources: Mapping[str, PackedText], weights: Mapping[str, float], seed: int, replay: float = 0.0
    ) -> None:
        """`replay`: the share of windows that reopen a remembered place, 0 to 1."""
        self._sources, self._weights = dict(sources), dict(weights)
        self._seed, self._replay = seed, replay
        self._opened = 0  # windows
        self._met = 0  # places offered to memory
        self._places: list[Place] = []

    def open(self, window: int, burst: int) -> MixWindow:
        """The next window, of `window` inputs, or `burst` at most where a remembered place is reopened.

        Raises MinagiError when the text is not what it was.
        """
        rng = random.Random(f"{self._seed}/{self._opened}")
        if self._places and rng.random() < self._replay:
            place, length = rng.choice(self._places), min(window, burst)
        else:
            place, length = self._draw(window, rng), window
            self._remember(place, rng)
        text = self._sources[place.source]
        length = min(length, len(text) - 1 - place.start)  # the window may have grown since
        ids = text.ids(place.start, length + 1)
        self._opened += 1
        return MixWindow(self._opened - 1, place.source, ids)

    def _draw(self, window: int, rng: random.Random) -> Place:
        (source,) = rng.choices(list(self._weights), list(self._weights.values()))
        return Place(source, rng.randrange(len(self._sources[source]) - window))

    def _remember(self, place: Place, rng: random.Random) -> None:
        """A reservoir (Vitter 1985, algorithm R): each place met is kept with the same chance."""
        if not self._replay:
            return
        self._met += 1
        if len(self._places) < REMEMBERED:
            self._places.append(place)
        elif (index := rng.randrange(self._met)) < REMEMBERED:
            self._places[index] = place

    # ------------------------------------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Where reading stands, as JSON. A reader restored from it gives exactly what this one would."""
        return {"opened": self._opened, "met": self._met, "places": [list(place) for place in self._places]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken. What is not there any more, or makes no sense, is left out."""
        self._opened = count(state.get("opened"))
        found = state.get("places")
        known = [self._known(item) for item in found[:REMEMBERED]] if isinstance(found, list) else []
        self._places = [place for place in known if place is not None]
        self._met = max(count(state.get("met")), len(self._places))

    def _known(self, item: Any) -> Place | None:
        if not isinstance(item, (list, tuple)) or len(item) != 2:
            return None
        source, start = item
        if not isinstance(source, str) or source not in self._sources or type(start) is not int:
            return None
        return Place(source, start) if 0 <= start < len(self._sources[source]) - 1 else None
