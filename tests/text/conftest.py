"""Folders of text for the tests here."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest


def prose(chars: int, seed: int = 0) -> str:
    """Plain text of that many characters, another for every seed."""
    rng = random.Random(seed)
    words: list[str] = []
    length = 0
    while length < chars:
        words.append("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))))
        length += len(words[-1]) + 1
    return " ".join(words)[:chars].ljust(chars, ".")


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder from {relative path: characters of prose, or exact content}."""

    def make(files: dict[str, int | str | bytes], name: str = "notes") -> Path:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        for number, (relative, content) in enumerate(files.items()):
            path = root / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, int):
                content = prose(content, number)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return root

    return make
