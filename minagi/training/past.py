"""What the history file says of a model's life before this run: enough for curves, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minagi import protocol
from minagi.finite import count, number
from minagi.training.history import History

TAIL_BYTES = 8 << 20  # of the file, which is read from there on
POINTS = 400
SUBJECTS = 500


def past(history: History, model: str, step: int, other_text_until: int) -> protocol.Past:
    """The rows of `model` up to `step`, thinned; held-out readings of other text, up to step
    `other_text_until`, are left out."""
    points: list[list[float | None]] = []
    first: dict[str, dict[str, float | None]] = {}
    before = 0
    for row in history.tail(TAIL_BYTES):
        at, chars = number(row.get("step")), count(row.get("chars"))
        if row.get("model") != model or at is None or not 0 <= at <= step or chars < before:
            continue
        before = chars
        comparable = at > other_text_until
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
