"""What the history file says of a model's life before this run: enough for curves, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from minagi import protocol
from minagi.finite import count, number
from minagi.training.history import History
from minagi.training.progress import Progress

TAIL_BYTES = 8 << 20  # of the file, which is read from there on
POINTS = 400  # of each curve
SUBJECTS = 500
Point = TypeVar("Point")


def past(history: History, model: str, progress: Progress) -> protocol.Past:
    """The rows of `model` up to where it stands, thinned; held-out readings of other text than it is measured
    on now are left out."""
    losses: list[tuple[float, float]] = []
    readings: list[tuple[float, float]] = []
    first: dict[str, dict[str, float | None]] = {}
    before = rows = 0
    for row in history.tail(TAIL_BYTES):
        at, chars = number(row.get("step")), count(row.get("chars"))
        if row.get("model") != model or at is None or not 0 <= at <= progress.step:
            continue
        if not before <= chars <= progress.chars:
            continue
        rows += 1
        losses += _course(row.get("course"), row.get("loss"), chars, before, chars)
        if at > progress.other_text_until:
            readings += _course(row.get("readings"), row.get("val"), _read_at(row, chars), before, chars)
            _first_of(row, first)
        before = chars
    points: list[tuple[float, float | None, float | None]] = [
        (x, y, None) for x, y in _thinned(_in_order(losses))
    ]
    points += [(x, None, y) for x, y in _thinned(_in_order(readings))]
    points.sort(key=lambda point: point[0])
    return protocol.Past([[x, y, held, x] for x, y, held in points], rows, first)


def _read_at(row: Mapping[str, Any], chars: int) -> float:
    """When a row's held-out reading was made; -1 for one of a session before, which that one's rows have."""
    read = number(row.get("val_chars", chars))
    return -1.0 if read is None else read


def _course(
    told: object, value: object, place: float, after: int, until: int
) -> Iterator[tuple[float, float]]:
    """What a row has of a curve between the row before it and itself. Its own figure is the last of it, and
    all there is in rows of older versions: `value` at `place`."""
    for point in told if isinstance(told, list) else ():
        x, y = map(number, point) if isinstance(point, list) and len(point) == 2 else (None, None)
        if x is not None and y is not None and after < x <= until:
            yield x, y
    last = number(value)
    if last is not None and 0 <= place <= until:
        yield place, last


def _in_order(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each of them once: several rows may tell of the same reading."""
    return sorted(dict(points).items())


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most `POINTS` of them, the ends among them."""
    if len(points) <= POINTS:
        return points
    return [points[n * (len(points) - 1) // (POINTS - 1)] for n in range(POINTS)]


def _first_of(row: Mapping[str, Any], first: dict[str, dict[str, float | None]]) -> None:
    """Each subject's first held-out reading."""
    subjects = row.get("subjects")
    for name, figures in subjects.items() if isinstance(subjects, dict) else ():
        nats = number(figures.get("val")) if isinstance(figures, dict) else None
        if nats is not None and name not in first and len(first) < SUBJECTS:
            first[name] = {"nats": nats, "stderr": number(figures.get("stderr"))}
