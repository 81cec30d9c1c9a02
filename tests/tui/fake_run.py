"""A plausible run without a worker: the same story every time, as events with the times they came.

`python tests/tui/fake_run.py > run.jsonl` records it; `minagi-tui --replay run.jsonl` shows that.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from textual.pilot import Pilot

from minagi import protocol as p
from minagi.config import Ui
from tui.client import Deliver, Source
from tui.shell import MinagiApp
from tui.state import Closing, WorkerEnded, WorkerStarted

START = 1_760_000_000.0  # Unix time at which the story begins
STEP_CHARS = 512
STEP_SECONDS = 0.1
SUBJECTS = {"letters": 412_000, "garden notes": 188_400, "python": 1_204_113, "日記": 96_200}
EXPERTS, SLOTS, RAM = 24, 8, 12


def hello(**changes: object) -> p.Hello:
    given: dict = {
        "at": START, "pid": 4242, "model": "notes", "weights": "/home/ada/models/notes", "profile": "cpu",
        "log": "/nonexistent/worker.log", "fresh": True, "device": "cpu", "device_name": "AMD Ryzen 7 7840U",
        "precision": "bf16", "threads": 7, "parameters": 2_143_872, "d_model": 160, "experts": EXPERTS,
        "resident": SLOTS, "max_rows": 6, "context": 256, "context_start": 256, "context_end": 512,
        "clip": 1.0, "gain_min": 0.015, "memory_budget": 4 << 30,
        "notice": "No GPU was found, so the new model has the cpu profile.",
    }  # fmt: skip
    return p.Hello(**{**given, **changes})


def corpus() -> p.CorpusFound:
    subjects = [{"name": name, "files": 7, "chars": chars} for name, chars in SUBJECTS.items()]
    return p.CorpusFound(
        files=214, chars=sum(SUBJECTS.values()), held_out_chars=98_304, subjects=subjects,
        skipped={"binary": 31, "empty": 2},
    )  # fmt: skip


def true_loss(step: int) -> float:
    """Nats the story's model stands at."""
    return 1.42 + 4.1 * math.exp(-step / 260) + 0.55 * math.exp(-step / 2400)


def metrics(step: int, noise: random.Random, saved_at: int = 0) -> p.Metrics:
    chars = step * STEP_CHARS
    loss = true_loss(step)
    return p.Metrics(
        at=START + step * STEP_SECONDS, step=step, chars=chars, session_chars=chars,
        loss=loss + noise.gauss(0, 0.16), loss_smooth=loss + noise.gauss(0, 0.012),
        chars_per_second=5120 + noise.gauss(0, 90), subject=list(SUBJECTS)[step // 40 % 4],
        rows=2.4 + 1.3 * math.exp(-step / 900) + noise.gauss(0, 0.1), rows_run=6,
        grad_norm=abs(0.8 + noise.gauss(0, 0.25)), signal=0.18 + 0.3 * math.exp(-step / 700),
        rate_factor=1.0 if step < 1500 else 0.84, lr=1e-3, context=min(512, 256 + step // 20),
        unsaved_chars=(step - saved_at) * STEP_CHARS, corpus_share=chars / sum(SUBJECTS.values()),
    )  # fmt: skip


def pool(step: int, noise: random.Random, experts: int = EXPERTS) -> p.Pool:
    uids = [uid if uid < 20 else uid + 3 for uid in range(experts)]
    order = list(range(experts))
    noise.shuffle(order)
    tier = ["D"] * experts
    for place in order[:SLOTS]:
        tier[place] = "R"
    for place in order[SLOTS : SLOTS + RAM]:
        tier[place] = "M"
    use = [abs(noise.gauss(1, 0.5)) for _ in uids]
    admitted = [uids[place] for place in order[:6]]
    return p.Pool(
        at=START + step * STEP_SECONDS, uids=uids, tier="".join(tier),
        life="".join("n" if uid >= 26 else "d" if uid == 11 else "." for uid in uids),
        use=[value / sum(use) for value in use], gate=[0.4 + 0.03 * uid for uid in uids],
        age_chars=[step * STEP_CHARS] * experts, unseen_texts=[noise.randrange(40) for _ in uids],
        admitted=admitted, arrived=admitted[:2], loads_per_step=1.7, ram_hit_rate=0.94, dropped_share=0.004,
        parents={"26": [3, 7, 12, 19]},
    )  # fmt: skip


def held_out(step: int, best: bool = True) -> p.HeldOut:
    nats = true_loss(step) + 0.06
    names = list(SUBJECTS)
    return p.HeldOut(
        at=START + step * STEP_SECONDS, step=step, chars=step * STEP_CHARS, nats=nats,
        bits_per_byte=nats / math.log(2), stderr=0.012, best=best, seconds=1.4, gap=0.06,
        subjects={
            name: {"nats": nats + 0.1 * place, "stderr": 0.02, "bytes": 24_576, "before": 5.5 + 0.1 * place}
            for place, name in enumerate(names)
        },
    )  # fmt: skip


def story(steps: int = 1600, seed: int = 7) -> Iterator[p.Message]:
    """The events of a run of `steps` steps, in order."""
    noise = random.Random(seed)
    yield hello()
    yield corpus()
    yield p.Phase("running")
    saved_at = 0
    for step in range(1, steps + 1):
        at, chars = START + step * STEP_SECONDS, step * STEP_CHARS
        yield metrics(step, noise, saved_at)
        if step % 5 == 0:
            used = (380 << 20) + int(60e6 * (1 - math.exp(-step / 200)) + noise.gauss(0, 2e6))
            yield p.Memory(at, "process", used, 470 << 20, 4 << 30, RAM, 6_300_000, 41 << 20)
            yield pool(step, noise)
        if step % 10 == 0:
            yield p.Subjects(
                {n: {"chars": chars // 4, "loss": true_loss(step) + 0.1 * i} for i, n in enumerate(SUBJECTS)}
            )
        if step % 100 == 0:
            yield held_out(step)
            yield p.Rate(
                step,
                1.0 if step < 1500 else 0.84,
                1.1,
                "Held-out still falls clearly: the rate stays.",
                step == 1500,
            )
            gain = 0.009 + 0.00001 * step
            yield p.Window(
                step, chars, min(512, 256 + step // 20), 512, gain, 0.015, chars + 34_000,
                "Reading further back pays: the window grows." if gain > 0.015 else "",
            )  # fmt: skip
        if step == 700:
            yield p.Growth(
                at, step, chars, [26], [], "there was room and every expert was used", chars + 200_000
            )
            yield p.Log(at, "info", "pool", "Expert 26 was born: there was room and every expert was used.")
        if step == 1200:
            yield p.Growth(
                at, step, chars, [], [], "No growth: 2 experts are in their trial, 2 at most at a time.",
                chars + 400_000,
            )  # fmt: skip
        if step % 500 == 0:
            saved_at = step
            nats = true_loss(step)
            yield p.Saved(at, f"s{step}", "", "auto", step, chars, nats, 0.21, 8_600_000)


def reply(id: int, text: str) -> Iterator[p.Message]:
    """A reply to command `id`, a few bytes at a time."""
    yield p.ReplyStarted(id, strength=2.5)
    data = text.encode()
    for place in range(0, len(data), 7):
        part = data[place : place + 7]
        yield p.ReplyChunk(id, part.decode("latin-1"), [3] * len(part), 1 if place % 5 == 0 else 0)
    yield p.ReplyEnded(id, "finished", len(data), len(data) / 40)


@dataclass
class FakeSource(Source):
    """Delivers what a test says and keeps what the app sends."""

    script: list[p.Message] = field(default_factory=list)
    sent: list[p.Command] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    hurried: int = 0
    starts: int = 0
    live: bool = False
    slow_close: bool = False
    deliver: Deliver | None = None

    def __post_init__(self) -> None:
        self.over = asyncio.Event()

    async def run(self, deliver: Deliver) -> None:
        self.deliver, self.live = deliver, True
        self.starts += 1
        deliver(WorkerStarted())
        for event in self.script:
            deliver(event)
        self.over.clear()
        await self.over.wait()

    def die(self, status: int, *tail: str) -> None:
        assert self.deliver is not None
        self.live = False
        self.deliver(WorkerEnded(status, tail, False))
        self.over.set()

    def send(self, command: p.Command) -> bool:
        self.sent.append(command)
        return self.live

    async def close(self, deliver: Deliver, save: bool = True) -> None:
        if not self.live:
            return
        self.closed.append(save)
        deliver(Closing("stop"))
        while self.slow_close and not self.hurried:
            await asyncio.sleep(0.01)
        self.live = False
        deliver(WorkerEnded(0, (), True))
        self.over.set()

    def hurry(self) -> None:
        self.hurried += 1


@dataclass
class Clock:
    """Unix time that moves only when a test says so."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(
    source: FakeSource,
    size: tuple[int, int] = (120, 40),
    ui: Ui | None = None,
    now: float = START,
    first_run: bool = False,
) -> AsyncIterator[tuple[MinagiApp, Pilot]]:
    """The app over a scripted source, its clock standing still, no animation and no blinking."""
    app = MinagiApp(source, ui or Ui(), clock=Clock(now), recent_span=1e8, first_run=first_run)
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        settle(app)
        await pilot.pause()
        yield app, pilot
        source.over.set()


def settle(app: MinagiApp) -> None:
    """Let the clock pass every refresh interval, and draw."""
    assert isinstance(app.clock, Clock)
    app.clock.now += 1.0
    app.tick()


if __name__ == "__main__":
    for event in story():
        sys.stdout.buffer.write(p.encode(event))
