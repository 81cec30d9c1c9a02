"""Days of events in minutes: `python -m tui.endurance HOURS` prints what the app held, as one JSON object.

Events come at the rate of a busy run by a clock that is wound on, are folded by the app itself and drawn once
every two minutes of that clock, without a terminal. `minagi bench ui` runs this.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import psutil

from minagi import protocol as p
from minagi.config import Ui
from minagi.protocol import Command, Message
from tui.client import Deliver, Source
from tui.shell import MinagiApp
from tui.state import Asked

START = 1_760_000_000.0  # Unix time
METRICS_EVERY, FIGURES_EVERY = 0.1, 0.5  # seconds of the run, as the worker sends them at most
MEASURED_EVERY, SAVED_EVERY, REPLY_EVERY, DRAWN_EVERY = 60.0, 300.0, 600.0, 120.0
CHARS_A_STEP, EXPERTS = 512, 64
SUBJECTS = tuple(f"subject {number}" for number in range(12))


class Silent(Source):
    """A source that says nothing by itself."""

    live = True

    async def run(self, deliver: Deliver) -> None:
        await asyncio.Event().wait()

    def send(self, command: Command) -> bool:
        return True


@dataclass
class Clock:
    """Unix time that is wound on."""

    now: float = START

    def __call__(self) -> float:
        return self.now


def run(seconds: float) -> Iterator[tuple[float, Message]]:
    """Every event of a run of so many seconds, each with the time it comes."""
    noise = random.Random(0)
    yield START, p.Hello(at=START, model="endurance", fresh=True, parameters=2_000_000, experts=EXPERTS)
    yield START, p.CorpusFound(files=100, chars=10**9, subjects=[{"name": n} for n in SUBJECTS])
    for step in count(1):
        after = step * METRICS_EVERY
        if after > seconds:
            return
        at = START + after
        for message in _messages(step, at, noise):
            yield at, message


def _messages(step: int, at: float, noise: random.Random) -> Iterator[Message]:
    """What a step brings with it."""

    def due(every: float) -> bool:
        return step % round(every / METRICS_EVERY) == 0

    chars, nats = step * CHARS_A_STEP, 1.5 + noise.gauss(0, 0.1)
    name = noise.choice(SUBJECTS)
    yield p.Metrics(
        at=at, step=step, chars=chars, session_chars=chars, loss=nats, loss_smooth=nats, subject=name,
        chars_per_second=5_000 + noise.gauss(0, 50), rows=2.0, grad_norm=abs(nats), context=512,
    )  # fmt: skip
    if due(FIGURES_EVERY):
        yield from _figures(at, chars, noise)
    if due(MEASURED_EVERY):
        subjects: dict[str, dict[str, float | None]] = {
            n: {"nats": nats, "stderr": 0.02, "bytes": 10_000, "before": 2.0} for n in SUBJECTS
        }
        yield p.HeldOut(at, step, chars, nats, nats * 1.44, 0.01, noise.random() < 0.1, subjects, 1.0, 0.1)
        yield p.Rate(step, 1.0, 0.5, "Held-out falls: the rate stays.", noise.random() < 0.1)
        yield p.Window(step, chars, 512, 1024, nats / 100, 0.015, chars + 10_000, "It stays.")
        yield p.Log(at, "info", "files", f"The files changed: 1 new, {name}/{step}.txt first.")
    if due(SAVED_EVERY):
        uid = EXPERTS + step
        yield p.Saved(at, str(step), "", "auto", step, chars, nats, 0.2, 1 << 20)
        yield p.Growth(at, step, chars, [uid], [uid - 1], "There was room.", chars + 10**6)
    if due(REPLY_EVERY):
        yield Asked(p.Write(id=step, prompt="How is it going?"))
        yield p.ReplyStarted(step)
        yield from (p.ReplyChunk(step, letter, [2], 0) for letter in "It goes on. " * 30)
        yield p.ReplyEnded(step, "finished", 360, 3.0)


def _figures(at: float, chars: int, noise: random.Random) -> Iterator[Message]:
    """How the pool, memory and subjects stand."""
    first = chars // (CHARS_A_STEP * 3_000)
    uids = list(range(first, first + EXPERTS))  # experts die and are born: no list of them may grow
    share = [1 / EXPERTS] * EXPERTS
    yield p.Pool(
        at, uids, "R" * 16 + "M" * 24 + "D" * 24, "." * EXPERTS, share, share, [chars] * EXPERTS,
        noise.choices(range(40), k=EXPERTS), uids[:8], uids[:2], 1.5, 0.9, 0.01, {str(uids[-1]): uids[:4]},
    )  # fmt: skip
    yield p.Memory(at, "process", 400 << 20, 450 << 20, 4 << 30, 24, 9 << 20, 60 << 20)
    yield p.Subjects({n: {"chars": chars // len(SUBJECTS), "loss": 1.5} for n in SUBJECTS})


async def endure(hours: float) -> dict[str, object]:
    """Live through it. Sizes in bytes, of the whole process."""
    clock, process, events = Clock(), psutil.Process(), 0
    app = MinagiApp(Silent(), Ui(), clock=clock)
    app.animation_level = "none"
    held: list[int] = []
    drawn_at, hour = START, START + 3600.0
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        before = process.memory_info().rss
        for at, message in run(hours * 3600):
            clock.now = at
            app.fold(message)
            events += 1
            if at - drawn_at >= DRAWN_EVERY:
                drawn_at = at
                app.tick()
                await pilot.pause()
            if at >= hour:
                hour += 3600.0
                gc.collect()
                held.append(process.memory_info().rss)
    after = process.memory_info().rss
    return {
        "hours": hours,
        "events": events,
        "processor_seconds": round(time.process_time(), 1),
        "bytes_at_start": before,
        "bytes_after_an_hour": held[0] if held else after,
        "bytes_at_end": after,
        "bytes_every_twelve_hours": held[11::12],
        "growth_in_the_last_third": round(after / held[2 * len(held) // 3], 3) if held else 1.0,
        "torch_loaded": "torch" in sys.modules,
    }


def main() -> int:
    """Print the findings."""
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else 72.0
    sys.stdout.write(json.dumps(asyncio.run(endure(hours))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
