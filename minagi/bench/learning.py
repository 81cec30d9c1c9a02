"""`minagi bench learn`: bits a character after so many minutes of training, beside an n-gram table.

The real session trains, with everything a run has: halting, the pool and its paging, the rate that follows
held-out text. Its clock runs while steps are made, and stands while anything is measured.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minagi.bench import ngram
from minagi.bench.machine import products_beside
from minagi.bench.shapes import ran_on
from minagi.config import load_settings
from minagi.errors import UsageError
from minagi.protocol import Message, Metrics
from minagi.text import alphabet
from minagi.training.evaluate import Score
from minagi.training.request import SessionRequest
from minagi.training.session import Session, open_session
from minagi.units import LN2

TRAIN_SHARE = 0.9
BYTES_MIN, BYTES_MAX = 10_000, 1 << 28
POINTS = (1.0, 3.0)  # minutes at which the model is scored, beside the last


def learn(
    text: Path,
    minutes: float,
    profile: str = "cpu",
    seed: int = 0,
    device: str = "auto",
    changes: dict[str, object] | None = None,
    tell: Callable[[str], None] = lambda words: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Train a newborn on the first nine tenths of `text` and score every byte of the rest.

    It is scored at 1 and 3 minutes and at the end: windows as long as the one in training by then, each
    byte once, with at least half a window before it or all there is of the rest. `changes` are settings
    beside the profile's. `tell` hears how it goes. Raises MinagiError in words.
    """
    data = _read(text)
    split = int(len(data) * TRAIN_SHARE)
    points = sorted({*(point for point in POINTS if point < minutes), minutes})
    found: dict[str, Any] = {"text": text.name, "bytes": len(data), "scored_bytes": len(data) - split}
    found |= {"profile": profile, "seed": seed, "minutes": {}}
    with tempfile.TemporaryDirectory(prefix="minagi-bench-") as folder, products_beside(found):
        found["ngram"] = _floor(data[:split], data[split:], clock)
        floor = found["ngram"]
        tell(f"n-gram table of order {floor['order']}: {floor['bits_per_byte']:.3f} bits a character.")
        session = _opened(Path(folder), data[:split], profile, seed, device, changes or {})
        try:
            for point in _trained(session, points, clock):
                figures = _scored(session, data[split - 1 : split], data[split:], point)
                found["minutes"][f"{point['minutes']:g}"] = figures
                tell(f"{point['minutes']:g} minutes: {figures['bits_per_byte']:.3f} bits a character.")
            engine = session.engine
            found |= {
                "characters_per_second": round(session.chars / (points[-1] * 60), 1),
                "rows": figures["rows"],
                "experts": engine.pool.experts,
                **ran_on(engine),
            }
        finally:
            session.close()
    return found


def _read(text: Path) -> bytes:
    """The bytes of the text. UsageError where there is none, too little or too much."""
    if not text.is_file():
        raise UsageError(f"There is no file {text}. Name a text with --text.")
    size = text.stat().st_size
    if not BYTES_MIN <= size <= BYTES_MAX:
        raise UsageError(
            f"{text} has {size:,} bytes: a text of {BYTES_MIN:,} to {BYTES_MAX:,} bytes is needed, for every "
            "byte of its last tenth is scored."
        )
    return text.read_bytes()


def _floor(train: bytes, test: bytes, clock: Callable[[], float]) -> dict[str, Any]:
    """The n-gram tables' bits a character by order, and the best of them."""
    began = clock()
    bits = ngram.bits_per_byte(train, test)
    best = min(range(len(bits)), key=bits.__getitem__)
    return {
        "order": best + 1,
        "bits_per_byte": round(bits[best], 4),
        "by_order": {str(order): round(value, 4) for order, value in enumerate(bits, 1)},
        "seconds": round(clock() - began, 2),
    }


def _opened(
    folder: Path, train: bytes, profile: str, seed: int, device: str, changes: dict[str, object]
) -> Session:
    text = folder / "text" / "train.txt"
    text.parent.mkdir()
    text.write_bytes(train)
    values = {
        **changes,
        "data.weights": folder / "weights",
        "data.history": folder / "runs" / "history.jsonl",
    }
    loaded = load_settings(values, profile=profile, environ={}, cwd=folder, user_dir=folder)
    return open_session(
        SessionRequest((text,), folder / "weights", loaded, dry_run=True, device=device, seed=seed)
    )


def _trained(
    session: Session, points: Sequence[float], clock: Callable[[], float]
) -> Iterator[dict[str, Any]]:
    """Train on; at every point, in minutes of training, what stands then. Slices of held-out readings
    and of samples are no training."""
    seconds = 0.0
    rows: float | None = None
    deque(session.greet(), maxlen=0)
    for minutes in points:
        while seconds < minutes * 60:
            training, began = session.phase == "running", clock()
            said: list[Message] = list(session.step())
            if training:
                seconds += clock() - began
            rows = next((event.rows for event in said if isinstance(event, Metrics)), rows)
        yield {
            "minutes": minutes,
            "characters": session.chars,
            "steps": session.steps,
            "rows": rows if rows is None else round(rows, 3),
        }


def _scored(session: Session, lead: bytes, rest: bytes, point: dict[str, Any]) -> dict[str, Any]:
    """Bits a character of every byte of `rest`; `lead`, the last byte before it, is only read."""
    score, window = Score(), session.window.context
    ids = np.concatenate([alphabet.encode(lead), alphabet.encode(rest)])
    for nats, size in session.engine.evaluator.every_byte(ids, window):
        score.add(nats, size)
    assert score.nats is not None
    return {
        "bits_per_byte": round(score.nats / LN2, 4),
        "characters": point["characters"],
        "steps": point["steps"],
        "rows": point["rows"],
        "window": window,
    }
