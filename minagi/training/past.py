"""What the history file says of a model's life before this run: enough for curves, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minagi import protocol
from minagi.finite import count, number
from minagi.training.history import History
from minagi.training.progress import Progress

TAIL_BYTES = 8 << 20  # of the file, which is read from there on
POINTS = 400
SUBJECTS = 500


def past(history: History, model: str, progress: Progress) -> protocol.Past:
    """The rows of `model` up to where it stands, thinned; held-out readings of other text than it is measured
    on now are left out."""
    points: list[list[float | None]] = []
    first: dict[str, dict[str, float | None]] = {}
    before = 0
    for row in history.tail(TAIL_BYTES):
        at, chars = number(row.get("step")), count(row.get("chars"))
        if row.get("model") != model or at is None or not 0 <= at <= progress.step:
            continue
        if not before <= chars <= progress.chars:
            continue
        before = chars
        comparable = at > progress.other_text_until
        val = number(row.get("val")) if comparable else None
        read = number(row.get("val_chars"))
        points.append([float(chars), number(row.get("loss")), val, float(chars) if read is None else read])
        if comparable:
            _first_of(row, first)
    every = -(-len(points) // POINTS) or 1
    return protocol.Past(points=points[::-1][::every][::-1], subjects=first)


def _first_of(row: Mapping[str, Any], first: dict[str, dict[str, float | None]]) -> None:
    """Each subject's first held-out reading."""
    subjects = row.get("subjects")
    for name, figures in subjects.items() if isinstance(subjects, dict) else ():
        nats = number(figures.get("val")) if isinstance(figures, dict) else None
        if nats is not None and name not in first and len(first) < SUBJECTS:
            first[name] = {"nats": nats, "stderr": number(figures.get("stderr"))}
