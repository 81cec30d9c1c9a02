"""Commits of a weights directory that do not come through at once, or not at all."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from minagi.weights import commit


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[threading.Event]:
    """Commits wait until the event is set; at the end at the latest. A wait over `seconds` fails."""
    go, real = threading.Event(), commit.commit

    def slow(*args: object) -> None:
        assert go.wait(seconds)
        real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "commit", slow)
        try:
            yield go
        finally:
            go.set()


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> Iterator[None]:
    """The function `name` of `module` finds no room on the disk."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(module, name, refuse)
        yield
