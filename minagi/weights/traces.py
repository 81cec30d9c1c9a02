"""What opening a directory leaves behind, and taking it away again where no model came of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from minagi.weights.layout import Places
from minagi.weights.lock import Lock


def missing(places: Places) -> list[Path]:
    """The folders that opening for writing will have to make, innermost first."""
    return [path for path in (places.private, places.root, *places.root.parents) if not path.exists()]


def remove(places: Places, made: list[Path], lock: Lock) -> None:
    """Let go of the lock. Where nothing but it lies in a private folder that was `made`, that goes as well,
    and so do the other folders that were made, as far as they are empty."""
    for folder in (places.snapshots, places.spill):
        with suppress(OSError):
            folder.rmdir()
    if places.private not in made or not _alone(places.lock):
        lock.release()
        return
    lock.remove()
    with suppress(OSError):  # the first that is not empty ends it
        for folder in made:
            folder.rmdir()


def _alone(path: Path) -> bool:
    """Whether nothing else lies beside `path`; False also where somebody took the folder away."""
    try:
        return [*path.parent.iterdir()] == [path]
    except OSError:
        return False
