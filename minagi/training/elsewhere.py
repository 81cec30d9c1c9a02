"""Held-out text of what a model knows and is not reading now: where reading may cost ground unseen."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from minagi.errors import UsageError
from minagi.text.collect import collect
from minagi.text.corpus import Corpus
from minagi.training.ours import texts

NOTHING = Corpus(())


def recorded_paths(ours: Mapping[str, Any]) -> tuple[Path, ...]:
    """The paths that earlier runs were given, as far as they are still there."""
    there = []
    for path in map(Path, texts(ours.get("paths"))):
        with contextlib.suppress(OSError, ValueError):
            path.stat()
            there.append(path)
    return tuple(there)


def elsewhere(
    ours: Mapping[str, Any], reading: Corpus, exclude: Sequence[Path] = (), follow_symlinks: bool = False
) -> Corpus:
    """What earlier runs held out of text that `reading` does not hold; nothing else of that text.

    ours: what the model's manifest says. Text whose held-out part is not exactly the one recorded is left
    out: some of it was trained on.
    """
    recorded = ours.get("held_out")
    paths = [path for path in recorded_paths(ours) if path not in reading.paths]
    if not paths or not isinstance(recorded, dict):
        return NOTHING
    try:
        found = collect(paths, None, recorded, exclude, follow_symlinks)
    except UsageError:  # there is no text any more
        return NOTHING
    here = {span.path for subject in reading.subjects for span in (*subject.train, *subject.held_out)}
    taken = {subject.name for subject in reading.subjects}
    subjects = []
    for subject in found.subjects:
        chosen = {key: span for key, span in found.choice.items() if key.startswith(f"{subject.name}/")}
        spans = tuple(span for span in subject.held_out if span.path not in here)
        if not spans or any(recorded.get(key) != span for key, span in chosen.items()):
            continue
        name = f"{subject.name} (elsewhere)" if subject.name in taken else subject.name
        subjects.append(replace(subject, name=name, train=(), held_out=spans))
    return Corpus(tuple(subjects))
