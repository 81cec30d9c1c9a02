"""kill −9 at random moments of real training with a checkpoint every second.

The directory always opens, as one whole checkpoint, never older than the last one that was told of. By
default a few kills; `make soak` makes two hundred. MINAGI_SOAK says how many.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import yaml
from test_checkpoints import AVERAGED
from tiny_runs import TINY, notes

from minagi.protocol import Failure, Hello, Message, Saved, decode_event
from minagi.weights import Store, layout, snapshots

KILLS = int(os.environ.get("MINAGI_SOAK", "5"))
SEED = int(os.environ.get("MINAGI_SOAK_SEED", "0"))
PATIENCE = 120.0


@dataclass
class Soak:
    """A weights directory, the program that starts workers on it, and what was seen."""

    root: Path
    program: subprocess.Popen[str]
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def weights(self) -> Path:
        return self.root / "weights"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def private(self) -> Path:
        return self.weights / layout.PRIVATE

    def start(self) -> int:
        assert self.program.stdin and self.program.stdout
        self.program.stdin.write("go\n")
        self.program.stdin.flush()
        return int(self.program.stdout.readline())

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a worker and wait for its end."""
        assert self.program.stdout
        with suppress(ProcessLookupError):  # it ended by itself: then its events say why
            os.kill(pid, number)
        assert self.program.stdout.readline() == "gone\n"

    def heard(self) -> list[Message]:
        """What the last worker told; the kill may have torn its last line."""
        if not self.events.exists():
            return []
        *lines, _ = self.events.read_bytes().split(b"\n")
        self.events.unlink()
        return [message for message in map(decode_event, lines) if message is not None]

    def wait_for_commit(self, rng: random.Random) -> None:
        """Until a checkpoint is being made, or recovered from, and then for a moment of it."""
        end = time.monotonic() + rng.uniform(2, 6)
        while time.monotonic() < end:
            if any((self.private / name).exists() for name in ("incoming", "staged", "journal.json")):
                time.sleep(rng.uniform(0, 0.03))
                return
            time.sleep(0.0005)


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Soak]:
    wanted: dict[str, dict[str, object]] = {}
    for key, value in {**TINY, **AVERAGED, "training.save_every": 1 / 60}.items():
        section, name = key.split(".")
        wanted.setdefault(section, {})[name] = value
    wanted["data"]["history"] = str(tmp_path / "runs" / "history.jsonl")
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(wanted))
    flags = [
        str(notes(tmp_path / "text")), "--weights", str(tmp_path / "weights"), "--config", str(config),
        "--device", "cpu", "--log", str(tmp_path / "worker.log"),
    ]  # fmt: skip
    starter = str(Path(__file__).with_name("soak_worker.py"))
    program = subprocess.Popen(
        [sys.executable, starter, str(tmp_path / "events.jsonl"), *flags],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    yield Soak(tmp_path, program)
    assert program.stdin and program.stdout
    program.stdin.close()
    program.wait(PATIENCE)
    program.stdout.close()


@pytest.mark.timeout(60 * KILLS + 120)
def test_a_killed_run_loses_at_most_what_came_after_its_last_checkpoint(soak: Soak) -> None:
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
    time.sleep(3)
    soak.kill(pid, signal.SIGTERM)
    assert after(soak, step, "the end") > 0
    print(f"\n{KILLS} kills: {dict(soak.seen)}")


def after(soak: Soak, before: int, what: str) -> int:
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


def whole(store: Store, what: str) -> None:
    """Every number loads, and trunk, moments, experts and telemetry are of one step."""
    assert all(np.isfinite(array).all() for array in store.read_core().values()), what
    assert store.read_optim()["ln_f.weight"][2] == store.manifest["step"], what
    routers = store.read_routers()
    assert len(routers["pool.gate"]) == len(store.uids) == len(store.manifest["telemetry"]["uid"]), what
    for uid in store.uids:
        store.read_expert(uid)
