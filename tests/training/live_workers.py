"""Real workers that train, save every second and are killed: what the soak and its like share."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml
from test_checkpoints import AVERAGED
from tiny_runs import TINY, notes

from minagi.protocol import Message, decode_event
from minagi.weights import Store, layout

PATIENCE = 120.0  # seconds


@dataclass
class Live:
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

    def wait_for_saved(self) -> None:
        """Until the worker has told of a complete checkpoint."""
        end = time.monotonic() + PATIENCE
        while not (self.events.exists() and b'{"type":"saved"' in self.events.read_bytes()):
            assert time.monotonic() < end, "nothing was saved"
            time.sleep(0.05)

    def wait_for_commit(self, rng: random.Random) -> None:
        """Until a checkpoint is being made, or recovered from, and then for a moment of it."""
        end = time.monotonic() + rng.uniform(2, 6)
        while time.monotonic() < end:
            if any((self.private / name).exists() for name in ("incoming", "staged", "journal.json")):
                time.sleep(rng.uniform(0, 0.03))
                return
            time.sleep(0.0005)


@contextmanager
def started(tmp_path: Path) -> Iterator[Live]:
    """The program that starts workers: a small model with averages, births and deaths, saved every second."""
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
    yield Live(tmp_path, program)
    assert program.stdin and program.stdout
    program.stdin.close()
    program.wait(PATIENCE)
    program.stdout.close()


def whole(store: Store, what: str) -> None:
    """Every number loads, and trunk, moments, experts and telemetry are of one step."""
    assert all(np.isfinite(array).all() for array in store.read_core().values()), what
    assert store.read_optim()["ln_f.weight"][2] == store.manifest["step"], what
    routers = store.read_routers()
    assert len(routers["pool.gate"]) == len(store.uids) == len(store.manifest["telemetry"]["uid"]), what
    for uid in store.uids:
        store.read_expert(uid)
