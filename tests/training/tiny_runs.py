"""Real sessions over small folders of text, with a model small enough to step in milliseconds."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tiny import live

from minagi import protocol
from minagi.config import LoadedSettings, load_settings
from minagi.protocol import Message
from minagi.training.request import SessionRequest
from minagi.training.session import Session, open_session

NEVER = 10**12  # characters
CHUNK = 24
TINY: dict[str, object] = {
    "model.d_model": 16, "model.n_head": 2, "model.d_ff": 24, "model.n_prelude": 1, "model.max_steps": 3,
    "model.ngram": 3, "model.ngram_rows": 40, "model.word_rows": 30,
    "model.bptt_window": 3, "model.train_steps_mean": 1.2, "model.context_start": CHUNK,
    "model.context_end": 64, "model.context_every_chars": NEVER, "model.context_grow_every_chars": NEVER,
    "pool.experts": 7, "pool.width": 8, "pool.top_k": 3, "pool.resident": 4, "pool.ram_cache": 2,
    "training.chunk": CHUNK, "training.precision": "fp32", "training.lr": 0.01,
    "training.eval_every_chars": NEVER, "training.save_every": 10_000, "growth.every_chars": NEVER,
    "data.passage": 256, "data.eval_chars": 512,
}  # fmt: skip


def prose(words: int, seed: int) -> str:
    """Text with something to learn: few words, in sentences."""
    rng = random.Random(seed)
    known = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 6))) for _ in range(30)]
    sentences = []
    while words > 0:
        count = rng.randint(3, 9)
        sentences.append(" ".join(rng.choices(known, k=count)).capitalize() + ".")
        words -= count
    return " ".join(sentences) + "\n"


def notes(folder: Path) -> Path:
    """Two subjects of a few files each."""
    for number, name in enumerate(("letters", "logbook")):
        for part in range(4):
            file = folder / name / f"{part}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(prose(300, 10 * number + part))
    return folder


class Home:
    """A folder with text, a weights directory and a history, all of a test's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.text = notes(root / "text")
        self.weights = root / "weights"
        self.history = root / "runs" / "history.jsonl"

    def loaded(self, changes: dict[str, object] | None = None) -> LoadedSettings:
        given = {**TINY, "data.history": str(self.history), "data.held_out": str(self.root / "none")}
        return load_settings(
            {**given, **(changes or {})}, environ={}, cwd=self.root, user_dir=self.root / "user"
        )

    def open(self, changes: dict[str, object] | None = None, **request: Any) -> Session:
        """A session that saves, unless told otherwise."""
        asked: dict[str, Any] = {"paths": (self.text,), "weights": self.weights, "dry_run": False, **request}
        return open_session(SessionRequest(loaded=self.loaded(changes), device="cpu", **asked))

    def made(self, steps: int = 3, changes: dict[str, object] | None = None) -> None:
        """A model trained for a few steps and saved."""
        session = self.open(changes)
        drive(session, steps)
        list(session.checkpoint())
        session.close()


def drive(session: Session, steps: int, between: Callable[[int], object] | None = None) -> list[Message]:
    """Make `steps` optimiser steps; everything that was said."""
    said: list[Message] = []
    end = session.steps + steps
    while session.steps < end:
        before = session.steps
        said += session.step()
        if between is not None and session.steps > before:
            between(session.steps)
    return said


def of(kind: type, messages: Iterable[Message]) -> list[Any]:
    return [message for message in messages if isinstance(message, kind)]


def losses(messages: Iterable[Message]) -> list[float]:
    return [message.loss for message in of(protocol.Metrics, messages)]


def everything(session: Session) -> dict[str, np.ndarray]:
    """Every number of a model: weights, averages, moments, counters, wherever they are."""
    engine = session.engine
    if engine.averages is not None:
        engine.averages.newest()
    found = {name: p.detach().numpy().copy() for name, p in engine.net.stored().items()}
    for name, state in engine.optimiser.state.items():
        found |= {f"{name}|m": state.m.numpy().copy(), f"{name}|v": state.v.numpy().copy()}
        found[f"{name}|t"] = state.step.numpy().copy()
        if engine.averages is not None:
            found[f"{name}|a"] = engine.averages.of(name).numpy().copy()
    found["expert steps"] = np.array(engine.optimiser.expert_steps)
    for uid in engine.pool.telemetry.uid:
        record = live(engine.pool, uid)
        found |= {f"{uid} {name}": array.copy() for name, array in record.weights.items()}
        found |= {f"{uid} {name}|a": array.copy() for name, array in (record.average or {}).items()}
        found |= {
            f"{uid} {name}": array.copy() for name, array in (record.moments or {}).items() if array.any()
        }
    for name, values in engine.pool.telemetry.to_manifest([]).items():
        found[f"telemetry {name}"] = np.array(values)
    return found


def same_numbers(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], name)


def tree(folder: Path) -> str:
    """A hash of every name, byte and time of change under a folder."""
    seen = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        seen.update(f"{path.relative_to(folder)} {status.st_mode} {status.st_mtime_ns}".encode())
        if path.is_file():
            seen.update(path.read_bytes())
    return seen.hexdigest()
