"""kill −9 at random moments of real training with a checkpoint every second.

The directory always opens, as one whole checkpoint, never older than the last one that was told of. By
default a few kills; `make soak` makes two hundred. MINAGI_SOAK says how many.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_workers import Live, started, whole

from minagi.protocol import Failure, Hello, Saved
from minagi.weights import Store, layout, snapshots

KILLS = int(os.environ.get("MINAGI_SOAK", "5"))
SEED = int(os.environ.get("MINAGI_SOAK_SEED", "0"))
PATIENCE = 120.0


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Live]:
    with started(tmp_path) as running:
        yield running


@pytest.mark.timeout(60 * KILLS + 120)
def test_a_killed_run_loses_at_most_what_came_after_its_last_checkpoint(soak: Live) -> None:
    rng = random.Random(SEED)
    step = 0  # of the directory
    for kill in range(KILLS):
        pid = soak.start()
        if kill % 3 == 0:
            soak.wait_for_commit(rng)
        else:  # while it starts and recovers, or any time later
            time.sleep(rng.uniform(0, 1.0 if kill % 3 == 1 else 4.0))
        soak.kill(pid)
        step = after(soak, step, f"kill {kill}, seed {SEED}")
    pid = soak.start()
    soak.wait_for_saved()
    soak.kill(pid, signal.SIGTERM)
    assert after(soak, step, "the end") > 0
    print(f"\n{KILLS} kills: {dict(soak.seen)}")


def after(soak: Live, before: int, what: str) -> int:
    """Look at what a dead worker left, and at what it told; the step its directory is at."""
    said = soak.heard()
    assert not [m for m in said if isinstance(m, Failure)], f"{what}: {said}"
    for hello in [m for m in said if isinstance(m, Hello)]:
        assert hello.step == before, f"{what}: went on from another step than the directory's"
        soak.seen["started"] += 1
    told = [m for m in said if isinstance(m, Saved)]
    soak.seen["checkpoints told"] += len(told)
    for name in ("incoming", "staged", "journal.json"):
        soak.seen[f"left {name}"] += (soak.private / name).exists()
    if not soak.weights.exists():
        return 0
    with Store.open(soak.weights, write=False) as reader:
        read = reader.manifest.get("step", 0)
    with Store.open(soak.weights, write=True) as store:
        if not store.exists:
            assert not told, what
            return 0
        step = store.manifest["step"]
        assert step == read, f"{what}: a reader sees another checkpoint than the next writer"
        assert step >= max((m.step for m in told), default=before), f"{what}: a complete checkpoint was lost"
        kept = [info for info in store.snapshots() if info.step == step]
        assert kept, f"{what}: the directory is no checkpoint"
        soak.seen["was the last told"] += bool(told) and step == told[-1].step
        soak.seen["was complete and not told yet"] += step > max((m.step for m in told), default=before)
        same_as(store, kept[0].id, what)
        whole(store, what)
    return step


def same_as(store: Store, snapshot: str, what: str) -> None:
    """The files in place are those of a snapshot, byte for byte, and none more."""
    folder = store.path / layout.PRIVATE / "snapshots" / snapshots.folder_name(int(snapshot))
    kept = snapshots.read(folder)
    snapshots.check(kept, Path("/nowhere"))  # against the checksums taken when it was made
    found = {
        str(path.relative_to(store.path))
        for path in store.path.rglob("*")
        if path.is_file() and path.relative_to(store.path).parts[0] != layout.PRIVATE
    }
    assert found == kept.files.keys(), what
    for name in found:
        assert (store.path / name).read_bytes() == (folder / name).read_bytes(), f"{what}: {name}"
