"""A model's first half hour, told by its own events: three sittings, a snapshot gone back to in between.

    python bench/story.py FOLDER… [--minutes 30] [--weights DIR]

Prints, as Markdown, what was said, the held-out readings, and the memory taken over time. Births, deaths and
the growing window are decided sooner than the profile would, so that half an hour sees them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOONER = (
    "--growth-every-chars=250000", "--survival-chars=150000", "--context-every-chars=32768",
    "--context-grow-every-chars=16384", "--save-every=1",
)  # fmt: skip
SITTINGS = 3
TOPICS = {"pool", "window", "rate", "run", "checkpoint"}


class Story:
    """What is worth telling of an event stream."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.readings: list[tuple[int, float]] = []
        self.memory: list[tuple[float, int]] = []
        self.facts: dict[str, Any] = {"born": [], "pruned": [], "windows": []}
        self._began: float | None = None

    def hear(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "memory":
            self._began = self._began or event["at"]
            self.memory.append((event["at"] - self._began, event["used"]))
        elif kind == "held_out" and event["bits_per_byte"] is not None:
            self.readings.append((event["chars"], event["bits_per_byte"]))
        elif kind == "growth":
            self.facts["born"] += event["born"]
            self.facts["pruned"] += event["pruned"]
        elif kind == "window":
            self.facts["windows"].append(event["context"])
            self.facts["window"] = event["sentence"] or self.facts.get("window")
        elif kind in {"saved", "reverted"}:
            self.facts[kind] = self.facts.get(kind, 0) + 1
        elif kind == "hello":
            self.facts["opened"] = "a new model" if event["fresh"] else f"step {event['step']:,}"
        elif kind == "log" and event["topic"] in TOPICS:
            self.sentences.append(event["text"])


def sitting(command: list[str]) -> Iterator[dict[str, Any]]:
    """The events of one run of minagi."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            yield json.loads(line)
    if program.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {program.returncode}")


def minagi(*words: str) -> list[str]:
    return [sys.executable, "-m", "minagi", *words]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--weights", type=Path, help="where the model goes (default: a scratch folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        weights = arguments.weights or Path(scratch) / "model"
        read = minagi(
            "read", *arguments.folders, f"--weights={weights}", f"--history={weights}.history",
            "--save", "--json", "--profile=cpu", f"--minutes={arguments.minutes / SITTINGS}", *SOONER,
        )  # fmt: skip
        for number in range(1, SITTINGS + 1):
            story = Story()
            for event in sitting(read):
                story.hear(event)
            tell(f"Sitting {number}", story)
            if number == SITTINGS - 1:
                kept = subprocess.run(
                    minagi("snapshots", str(weights), "--json"), capture_output=True, text=True, check=True
                )
                snapshots = json.loads(kept.stdout)
                snapshots = snapshots["snapshots"] if isinstance(snapshots, dict) else snapshots
                back = snapshots[len(snapshots) // 2]["id"]
                gone = subprocess.run(
                    minagi("revert", str(weights), "--to", back), capture_output=True, text=True, check=True
                )
                print(f"\n## Going back\n\n{gone.stdout}{gone.stderr}")


def tell(title: str, story: Story) -> None:
    facts, memory = story.facts, story.memory
    print(f"\n## {title}\n")
    windows = f"{facts['windows'][0]} to {facts['windows'][-1]}"
    print(f"Opened at {facts.get('opened')}; {facts.get('saved', 0)} checkpoints; window {windows}.")
    print(f"Born: {facts['born']}. Deleted: {facts['pruned']}.")
    print(f"Of the window: {facts.get('window')}\n")
    for chars, bits in story.readings:
        print(f"- {chars:,} characters: {bits:.3f} bits a character")
    print(
        "\nmemory, MB: "
        + ", ".join(f"{used / 1e6:.0f}" for _, used in memory[:: max(1, len(memory) // 10)])
        + "\n"
    )
    for sentence in story.sentences:
        print(f"> {sentence}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
