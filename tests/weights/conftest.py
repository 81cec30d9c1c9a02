"""Writing through to the disk is what saves users' models, and in tests only takes time."""

from __future__ import annotations

import pytest

from minagi.weights import files


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fsync", lambda fd: None)
    monkeypatch.setattr(files, "fsync_folder", lambda path: None)
