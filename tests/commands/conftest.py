from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(
    0, str(Path(__file__).parent.parent / "worker")
)  # the fake trainer lives with the worker's tests


@pytest.fixture(autouse=True)
def nobody_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and no settings, logs or data of whoever runs the tests."""
    for name in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home" / name.lower()))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "text.txt").write_text("some text to read\n" * 500)
    return here
