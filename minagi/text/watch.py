"""Noticing new, changed and deleted files while a run goes on.

The folders are walked again every few seconds: sizes and times are compared and nothing is opened,
which takes milliseconds for thousands of files and works on every file system, network mounts too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from minagi.errors import UsageError
from minagi.text.collect import Skipped, collect, find_transcript, walk
from minagi.text.corpus import Corpus

EVERY = 3.0  # seconds between two walks
RESTRAINT = 50.0  # a walk that took t seconds is followed by at least 50 t without


@dataclass(frozen=True)
class CorpusChange:
    """What a walk found to be different, and the corpus as it is now."""

    corpus: Corpus
    changed: tuple[Path, ...]  # new, or with another size or time; text or not
    removed: tuple[Path, ...]


class CorpusWatcher:
    """Polled between steps. `corpus` is what `collect` gave for the same paths just before."""

    def __init__(
        self,
        paths: Sequence[Path],
        corpus: Corpus,
        held_out: Path | None = None,
        exclude: Sequence[Path] = (),
        follow_symlinks: bool = False,
        transcript: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths, self._held_out, self._exclude = tuple(paths), held_out, tuple(exclude)
        self._follow, self._transcript, self._clock = follow_symlinks, transcript, clock
        self._choice = corpus.choice
        self._seen = self._look()
        self._next = clock() + EVERY

    def poll(self) -> CorpusChange | None:
        """What changed since the last poll that found anything; None when it is too soon, or nothing did.

        Text held out stays held out, new text of known subjects is read. While nothing at all is
        left to read (an unmounted disk) the old corpus stands.
        """
        start = self._clock()
        if start < self._next:
            return None
        seen = self._look()
        change = None if seen == self._seen else self._compare(seen)
        end = self._clock()
        self._next = end + max(EVERY, RESTRAINT * (end - start))
        return change

    def _compare(self, seen: dict[Path, tuple[int, int]]) -> CorpusChange | None:
        try:
            corpus = collect(
                self._paths, self._held_out, self._choice, self._exclude, self._follow,
                transcript=self._transcript,
            )  # fmt: skip
        except UsageError:
            return None
        changed = tuple(path for path, state in seen.items() if self._seen.get(path) != state)
        removed = tuple(path for path in self._seen if path not in seen)
        self._seen, self._choice = seen, {**self._choice, **corpus.choice}  # a subject may come back
        return CorpusChange(corpus, changed, removed)

    def _look(self) -> dict[Path, tuple[int, int]]:
        files = [*walk(self._paths, Skipped(), self._exclude, self._follow)]
        if self._transcript is not None and (spoken := find_transcript(self._transcript)):
            files.append(spoken)
        return {file.path: (file.size, file.mtime_ns) for file in files}
