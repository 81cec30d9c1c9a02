"""Makes the recording that `minagi-tui --demo` plays, from a real run on the folders that are named:

    python docs/make_demo.py FOLDER… [--minutes 8] [--out tui/demo.jsonl.gz]

A new model of the profile `cpu` reads them, decides about its size sooner than it usually would, and is
talked to, saved, named and taken back on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from minagi import protocol as p
from minagi.finite import finite
from tui.client import Worker
from tui.state import Asked, Closing, WorkerEnded, WorkerStarted

# when, as a share of the run, and what is asked
STORY: tuple[tuple[float, p.Command], ...] = (
    (0.06, p.Write(prompt="Hello. What are you reading?", chars=200)),
    (0.25, p.Checkpoint(name="before the long chat")),
    (0.30, p.Write(prompt="What is a coroutine?", chars=240)),
    (0.38, p.Pause()),
    (0.40, p.Resume()),
    (0.50, p.Write(prompt="def main(", chars=240)),
    (0.55, p.Write(prompt="def main(", chars=240, raw=True)),
    (0.60, p.Probe(text="async def read(self, n=-1):\n    return await self._wait_for_data('read')\n")),
    (0.66, p.ListSnapshots()),
    (0.68, p.Revert()),  # to the one with the name
    (0.80, p.Evaluate()),
    (0.88, p.Write(prompt="And now?", chars=300)),
    (0.95, p.Checkpoint()),
)
SOONER = ("--growth-every-chars=120000", "--survival-chars=600000", "--save-every=1")
LEAST_APART = {p.Metrics: 0.25, p.Pool: 1.0, p.Memory: 2.0, p.Subjects: 2.0}  # seconds between two of a kind
DIGITS = 5  # that figures keep


@dataclass
class Recorder:
    """Takes down what goes either way, thinned out, each line led by its time."""

    lines: list[bytes] = field(default_factory=list)
    snapshots: list[dict] = field(default_factory=list)
    _last: dict[type, float] = field(default_factory=dict)

    def take(self, message: p.Message) -> None:
        now = time.time()
        if isinstance(message, (WorkerStarted, WorkerEnded, Closing)):
            return
        if isinstance(message, Asked):
            message = message.command
        if isinstance(message, p.Snapshots):
            self.snapshots = message.items
        if now - self._last.get(type(message), 0.0) < LEAST_APART.get(type(message), 0.0):
            return
        self._last[type(message)] = now
        body = json.loads(p.encode(message))
        if isinstance(message, p.Hello):
            body |= {"pid": 0, "weights": "~/models/notes", "model": "notes", "log": ""}
        line = json.dumps(_rounded({"at": round(now, 2), **body}), ensure_ascii=False, separators=(",", ":"))
        self.lines.append(line.encode() + b"\n")


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return value if value > 1e8 else float(f"{finite(value):.{DIGITS}g}")
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    return value


async def record(folders: list[str], minutes: float) -> list[bytes]:
    """Run the story; the lines of the recording."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "minagi.worker", "--profile=cpu", "--seed=1", *SOONER]
        worker = Worker([*command, f"--weights={home}/notes", f"--log={home}/log", "--", *folders])
        running = asyncio.create_task(worker.run(recorder.take))
        while not recorder.lines:
            await asyncio.sleep(0.1)
        began = time.monotonic()
        for id, (share, asked) in enumerate(STORY, 1):
            await asyncio.sleep(max(0.0, began + share * minutes * 60 - time.monotonic()))
            fields = {**asked.__dict__, "id": id}
            if isinstance(asked, p.Revert):
                fields["to"] = next(item["id"] for item in recorder.snapshots if item["name"])
            command_given = type(asked)(**fields)
            recorder.take(command_given)
            worker.send(command_given)
        await asyncio.sleep(max(0.0, began + minutes * 60 - time.monotonic()))
        await worker.close(recorder.take)
        await running
        private = sorted({home, *(str(Path(folder).resolve().parent) for folder in folders)}, key=len)
        return [_anonymous(line, private) for line in recorder.lines]


def _anonymous(line: bytes, folders: list[str]) -> bytes:
    """Without the names of this machine's folders."""
    for folder in reversed(folders):
        line = line.replace(folder.encode(), b"~")
    return line


def main() -> None:
    flags = argparse.ArgumentParser(description="Make the recording that minagi-tui --demo plays.")
    flags.add_argument("folders", nargs="+")
    flags.add_argument("--minutes", type=float, default=8.0)
    flags.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tui" / "demo.jsonl.gz")
    given = flags.parse_args()
    lines = asyncio.run(record(given.folders, given.minutes))
    given.out.write_bytes(gzip.compress(b"".join(lines), mtime=0))
    sys.stderr.write(f"{len(lines)} lines, {given.out.stat().st_size} bytes in {given.out}\n")


if __name__ == "__main__":
    main()
