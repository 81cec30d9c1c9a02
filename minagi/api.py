"""A model in a program or a notebook: `with minagi.open("my/model", read="~/notes") as model: …`.

The same session, reader and directory that the commands use, behind one object. docs/api.md shows it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from minagi.config import load_settings
from minagi.errors import UsageError
from minagi.hardware import prepare_environment
from minagi.protocol import Message, Reverted, Saved
from minagi.text.collect import check_paths
from minagi.training.request import SessionRequest, Written
from minagi.units import LN2

if TYPE_CHECKING:
    from minagi.training.session import Reader, Session
    from minagi.weights import SnapshotInfo

Place = str | os.PathLike[str]


@dataclass(frozen=True)
class Learnt:
    """What came of one `read`: how much was read, and how it went. Losses are bits a character."""

    steps: int
    chars: int
    seconds: float
    loss: float | None  # of the text as it was read, lately
    held_out: float | None  # of text that is never read, measured last


class Model:
    """A weights directory, open. Use as a context, or call `close`; made by `minagi.open`."""

    def __init__(self, reader: Reader, session: Session | None) -> None:
        self._reader, self._session = reader, session
        self._closed = False

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Save what was read since the last snapshot, and give the directory back. Twice does no harm."""
        if self._closed:
            return
        self._closed = True
        session = self._session
        if session is None:
            self._reader.close()
            return
        try:
            if not session.dry_run and session.unsaved_chars:
                deque(session.checkpoint(kind="final"), maxlen=0)
        finally:
            session.close()

    # ------------------------------------------------------------------------------------- learning

    def read(
        self, *, steps: int | None = None, chars: int | None = None, minutes: float | None = None
    ) -> Learnt:
        """Read and be trained, until the first of the limits is reached; at least one must be given.

        An interrupt (ctrl+c, a notebook's stop button) is heard after the step in flight.
        """
        session, began = self._trained(), time.monotonic()
        first_step, first_char = session.steps, session.chars
        deque(self.events(steps=steps, chars=chars, minutes=minutes), maxlen=0)
        loss, held_out = session.progress.loss.value, session.progress.val
        return Learnt(
            session.steps - first_step,
            session.chars - first_char,
            time.monotonic() - began,
            None if loss is None else loss / LN2,
            None if held_out is None else held_out / LN2,
        )

    def events(
        self, *, steps: int | None = None, chars: int | None = None, minutes: float | None = None
    ) -> Iterator[Message]:
        """The same, and every event as it happens: `Metrics` after a step, `HeldOut`, `Growth`, …"""
        session = self._trained()
        limits = {"steps": steps, "chars": chars, "minutes": minutes}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        if not given:
            raise UsageError("How long to read? Give steps, chars or minutes.")
        for name, limit in given.items():
            if not limit > 0:
                raise UsageError(f"{name} is {limit}: it must be more than 0.")
        begin = {"steps": session.steps, "chars": session.chars, "minutes": time.monotonic() / 60}

        def over() -> bool:
            now = {"steps": session.steps, "chars": session.chars, "minutes": time.monotonic() / 60}
            return any(now[name] - begin[name] >= limit for name, limit in given.items())

        while not over():
            with _whole_steps():
                said = list(session.step())
            yield from said

    def snapshot(self, name: str = "") -> str:
        """Save the model as it is now; the snapshot's id. A named one stays until it is deleted."""
        # The last of them: one that a step began is told first.
        *_, saved = [event for event in self._trained().checkpoint(name) if isinstance(event, Saved)]
        return saved.snapshot

    def revert(self, to: str = "") -> str:
        """Become a snapshot again, given by id or name; "" is the last checkpoint. The id to undo it with."""
        (reverted,) = [event for event in self._trained().revert(to) if isinstance(event, Reverted)]
        return reverted.undo

    # ---------------------------------------------------------------------------------- reading out

    def write(
        self, prompt: str | bytes, chars: int = 400, *, raw: bool = False, strength: float | None = None
    ) -> Written:
        """Write on after a prompt. `str()` of what comes back is the text, `.text` its bytes.

        `raw` writes without holding back recent characters, `strength` says how strongly they are.
        """
        _check("chars", chars, 1)
        data = prompt.encode() if isinstance(prompt, str) else bytes(prompt)
        return self._reading().write(data, chars, raw, strength)

    def evaluate(self, text: Place) -> dict[str, Any]:
        """Score every byte of a file or folder after the first: nats, bits_per_byte, bytes, stderr,
        subjects (the same by name), and context, the window it was read in."""
        path = Path(text).expanduser()
        if not path.exists():
            raise UsageError(f"There is no file or folder {path}.")
        return self._reading().evaluate(path)

    def snapshots(self) -> list[SnapshotInfo]:
        """Every kept checkpoint, newest first."""
        return self._reading().engine.store.snapshots()

    @property
    def step(self) -> int:
        """Optimiser steps of the model's life."""
        return self._session.steps if self._session else int(self._kept("step"))

    @property
    def chars(self) -> int:
        """Characters read in it."""
        return self._session.chars if self._session else int(self._kept("read_chars"))

    @property
    def parameters(self) -> int:
        """Numbers that are learnt, those of all experts included."""
        return self._reading().engine.parameters

    @property
    def experts(self) -> int:
        """Experts in the pool."""
        return self._reading().engine.pool.experts

    @property
    def window(self) -> int:
        """Characters it looks back on."""
        return self._reading().window

    # --------------------------------------------------------------------------------------- inside

    def _reading(self) -> Reader:
        """The model as it stands."""
        self._check_open()
        if self._session is not None:
            self._reader.window = self._session.window.context
        return self._reader

    def _trained(self) -> Session:
        """The session. UsageError where the model was opened without anything to read."""
        self._check_open()
        if self._session is None:
            raise UsageError(
                "This model was opened to be read out. To train, save or revert it, open it with what it is "
                "to read, as in: minagi.open(weights, read='~/notes')."
            )
        return self._session

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("This model was closed. Open it again with minagi.open.")

    def _kept(self, key: str) -> float:
        value = self._reading().engine.store.manifest.get(key)
        return value if isinstance(value, (int, float)) else 0


def open_model(
    weights: Place,
    read: Place | Sequence[Place] | None = None,
    *,
    save: bool = True,
    profile: str | None = None,
    config: Place | None = None,
    settings: Mapping[str, object] | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int | None = None,
) -> Model:
    """Open the model of a directory; `minagi.open` is this function.

    With `read`, a file, a folder or several, it can be trained on them, and a model is made where there is
    none; leaving the context saves what was read, unless `save` is False: then no byte of the directory
    changes. Without, it is read out only, beside a program that trains it if there is one. `settings` are
    those of `minagi config`, by name, as in {"training.lr": 1e-3}; None of the other arguments leaves the
    choice to the program, as without a flag. Raises MinagiError in words.
    """
    _check("threads", threads, 1)
    _check("seed", seed, 0)
    folder = Path(weights).expanduser()
    given = {**(settings or {}), "data.weights": folder.absolute()}
    loaded = load_settings(given, None if config is None else Path(config).expanduser(), profile)
    if "torch" not in sys.modules:
        prepare_environment(threads, loaded.settings.hardware)
    import torch

    from minagi.training import session

    if threads is not None:
        torch.set_num_threads(threads)
    if read is None:
        if not folder.is_dir():
            raise UsageError(f"There are no weights at {folder}. Name what to read to make a model there.")
        return Model(session.open_reader(folder, loaded, device), None)
    given_paths = [read] if isinstance(read, (str, os.PathLike)) else list(read)
    paths = tuple(Path(path).expanduser() for path in given_paths)
    check_paths(paths)
    opened = session.open_session(
        SessionRequest(paths, folder, loaded, dry_run=not save, device=device, seed=seed, threads=threads)
    )
    deque(opened.greet(), maxlen=0)
    return Model(session.Reader(opened.engine, opened.settings, opened.window.context), opened)


def _check(name: str, number: int | None, least: int) -> None:
    if number is not None and number < least:
        raise UsageError(f"{name} is {number}: it must be {least} or more.")


@contextmanager
def _whole_steps() -> Iterator[None]:
    """An interrupt that comes inside is raised at the end: a model is never left between two states."""
    if threading.current_thread() is not threading.main_thread():  # signals do not come here
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
