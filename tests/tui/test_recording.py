"""A recorded run is played, paused, hastened and wound; a broken one plays what it can."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path

import fake_run as fr
import pytest
from textual.geometry import Size

from minagi import protocol as p
from minagi.config import Ui
from minagi.errors import UsageError
from tui.app import DEMO
from tui.keymap import table
from tui.panes.footer import Footer
from tui.recording import FASTEST, SLOWEST, STEP_SECONDS, Recording
from tui.reducers import reduce
from tui.shell import MinagiApp
from tui.state import Asked, Ending, Noted, NotUnderstood, Rewound, WorkerEnded, WorkerStarted, initial


def recorded(tmp_path: Path, *messages: p.Message, end: bytes = b"") -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(p.encode(message) for message in messages) + end)
    return path


class Waits(list[float]):
    """Sleeps that take no time, and what was done during each."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: dict[int, Callable[[], object]] = {}

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        act = self.meanwhile.get(len(self))
        if act is not None:
            act()


async def test_it_plays_at_its_pace(tmp_path: Path) -> None:
    path = recorded(
        tmp_path, p.Hello(at=100.0), p.Phase("running"), p.Metrics(at=100.5), p.Metrics(at=101.5),
        p.Metrics(at=900.0), p.Metrics(at=1.0), end=b'{"type": "metrics"}',
    )  # fmt: skip
    heard: list[p.Message] = []
    waits = Waits()
    source = Recording(path, speed=2.0, sleep=waits)
    await source.run(heard.append)
    assert sum(waits) == pytest.approx(0.25 + 0.5 + 2.0), "the last gap is shortened"
    assert max(waits) <= STEP_SECONDS
    assert sum(isinstance(message, p.Metrics) for message in heard) == 5
    assert (heard[0], heard[-1]) == (WorkerStarted(), WorkerEnded(0, (), True))
    assert source.playing[:3] == (800.0, 800.0, 2.0)


async def test_all_at_once(tmp_path: Path) -> None:
    heard: list[p.Message] = []
    waits = Waits()
    await Recording(recorded(tmp_path, *fr.story(50)), speed=0, sleep=waits).run(heard.append)
    assert waits == []
    assert len(heard) == len(list(fr.story(50))) + 2


async def test_it_stands_still_while_paused_and_refuses_what_changes_a_model(tmp_path: Path) -> None:
    heard: list[p.Message] = []
    waits = Waits()
    source = Recording(recorded(tmp_path, p.Hello(at=1.0), p.Metrics(at=1.1)), sleep=waits)
    waits.meanwhile = {
        1: lambda: source.send(p.Pause(1)),
        2: lambda: source.send(p.Checkpoint(2)),
        40: lambda: source.send(p.Resume(3)),
    }
    await source.run(heard.append)
    assert sum(waits) == pytest.approx(0.1 + 39 * STEP_SECONDS)
    assert [ack.ok for ack in heard if isinstance(ack, p.Ack)] == [True, False, True]


async def test_the_pace_changes_while_it_waits(tmp_path: Path) -> None:
    waits = Waits()
    source = Recording(recorded(tmp_path, p.Hello(at=1.0), p.Metrics(at=2.0)), sleep=waits)
    waits.meanwhile = {10: lambda: source.hasten(2)}
    await source.run(lambda _: None)
    assert source.speed == 4.0
    assert sum(waits) == pytest.approx(0.5 + 0.5 / 4)
    source.hasten(99)
    assert source.speed == FASTEST
    source.hasten(-99)
    assert source.speed == SLOWEST


async def test_it_is_wound_on_and_back(tmp_path: Path) -> None:
    seconds = [p.Metrics(at=100.0 + n, step=n) for n in range(60)]
    heard: list[p.Message] = []
    waits = Waits()
    source = Recording(recorded(tmp_path, *seconds), sleep=waits)
    waits.meanwhile = {30: lambda: source.seek(40.0), 40: lambda: source.seek(-20.0)}
    await source.run(heard.append)
    steps = [message.step for message in heard if isinstance(message, p.Metrics)]
    again = heard.index(Rewound())
    assert [m.step for m in heard[1:again]] == list(range(len(heard[1:again])))
    assert steps[again - 1 :] == list(range(60)), "from the beginning, so that the state is what it was"
    assert sum(waits) < 1.5 + 0.5 + 60 - 21 + 0.1


async def test_what_is_over_begins_again_where_it_is_wound_to(tmp_path: Path) -> None:
    heard: list[p.Message] = []
    waits = Waits()
    source = Recording(recorded(tmp_path, *[p.Metrics(at=100.0 + n) for n in range(10)]), sleep=waits)
    await source.run(heard.append)
    assert not source.live
    waits.clear()
    source.seek(-3.0)
    await source.run(heard.append)
    assert sum(waits) == pytest.approx(3.0)
    waits.clear()
    source.seek(float("-inf"))
    await source.run(heard.append)
    assert sum(waits) == pytest.approx(9.0)
    assert heard.count(Rewound()) == 2


async def test_commands_that_were_kept_are_shown_as_asked(tmp_path: Path) -> None:
    path = recorded(tmp_path, p.Hello(at=1.0), p.Write(3, "hello"), *fr.reply(3, "world"))
    heard: list[p.Message] = []
    await Recording(path, speed=0).run(heard.append)
    assert Asked(p.Write(3, "hello")) in heard


async def test_a_line_may_be_led_by_its_time(tmp_path: Path) -> None:
    waits = Waits()
    lines = b'{"at":5.0,"type":"phase","phase":"running"}\n{"at":5.5,"type":"phase","phase":"paused"}\n'
    lines += b'{"at":99999999999999999999,"type":"phase"}\n{"type":"metrics","at":NaN}\n'
    source = Recording(recorded(tmp_path, end=lines), sleep=waits)
    await source.run(lambda _: None)
    assert sum(waits) == pytest.approx(0.5)


async def test_garbage_is_passed_over(tmp_path: Path) -> None:
    path = recorded(tmp_path, p.Hello(), end=b"\xff\xfe\n{}\n" + p.encode(p.Phase("paused")))
    heard: list[p.Message] = []
    await Recording(path, speed=0).run(heard.append)
    assert sum(isinstance(message, NotUnderstood) for message in heard) == 2
    assert p.Phase("paused") in heard


@pytest.mark.parametrize("broken", ["cut", "flipped", "empty"])
async def test_a_broken_archive_is_told_in_words(broken: str, tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(p.encode(message) for message in fr.story(40)))
    middle = len(whole) // 2
    data = {
        "cut": whole[:middle],
        "flipped": whole[:middle] + b"\0" * 40 + whole[middle + 40 :],
        "empty": b"",
    }
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(data[broken])
    heard: list[p.Message] = []
    await Recording(path, speed=0).run(heard.append)
    assert heard[-1] == WorkerEnded(0, (), True)
    assert broken == "empty" or any(
        isinstance(message, Noted) and "cannot be played on" in message.text for message in heard
    )


def test_one_that_is_not_there_is_told_before_the_screen_is_taken(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no recording"):
        Recording(tmp_path / "none.jsonl")


async def test_the_demo_tells_a_whole_story_and_nothing_of_where_it_was_made() -> None:
    data = gzip.decompress(DEMO.read_bytes())
    assert DEMO.stat().st_size < 300_000
    assert not any(place in data for place in (b"/root", b"/home", b"/tmp", b"/work", b"/usr"))
    state = initial(0.0)
    saved: list[str] = []

    def deliver(message: p.Message) -> None:
        nonlocal state
        assert not isinstance(message, (NotUnderstood, Noted))
        state = reduce(state, message, 0.0)
        if isinstance(message, p.Saved):
            saved.append(message.name)

    await Recording(DEMO, speed=0).run(deliver)
    assert state.births and state.growth is not None
    assert state.reverted is not None and any(saved)
    replies = [reply for exchange in state.chat for reply in exchange.replies]
    assert {reply.variant for reply in replies} == {"adapted", "raw"}
    assert all(reply.text and not reply.open for reply in replies)
    assert state.ending == Ending(0, (), True)


async def test_keys_of_a_recording(tmp_path: Path) -> None:
    source = Recording(recorded(tmp_path, *fr.story(400)), speed=1.0)
    app = MinagiApp(source, Ui())
    app.animation_level = "none"
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        assert source.speed == 2.0
        await pilot.press("space")
        assert app.frame.paused
        await pilot.press("full_stop")
        while app.state.metrics.step < 200:  # twenty recorded seconds on
            await asyncio.sleep(0.01)
        step = app.state.metrics.step
        app.tick()
        header = "\n".join(line.plain for line in app._desk.header.draw(app.frame, app._desk.header.size))
        await pilot.press("i", "p", "S", "r", "7")  # which ask a worker: told, and nothing opens
        app.tick()
        assert len(app.screen_stack) == 1 and not app.chat_pane.input.display
        assert "it can be looked at" in list(app._notifications)[-1].message
        offered = [command.title for command in app.get_system_commands(app.screen)]
        assert "A recording at half its pace" in offered and "Measure the held-out text now" not in offered
        footer = app._desk.footer.draw(app.frame, app._desk.footer.size)[0].plain
        assert "< slower" in footer and not {"i chat", "p inspect", "s save"} & set(footer.split("  "))
        assert "‖ paused" in header and "recording 0:" in header and "of 0:40, 2×" in header
        assert app.source.at is not None and app.now == app.source.at
        await pilot.press("comma")
        while not 0 < app.state.metrics.step <= step - 150:
            await asyncio.sleep(0.01)
        source.seek(float("inf"))
        await pilot.press("space")
        while source.live:
            await asyncio.sleep(0.01)
        footer, header = (
            "\n".join(line.plain for line in bar.draw(app.frame, bar.size))
            for bar in (app._desk.footer, app._desk.header)
        )
        assert footer.startswith(" R begin again") and "pause" not in footer and "left" not in header
        assert ", back" in footer and not {"< slower", "> faster", ". on"} & set(footer.split("  "))
        remapped = Footer(table({"restart": "B"})).draw(app.frame, Size(80, 1))[0].plain
        assert remapped.startswith(" B begin again")
        await pilot.press("q")
    await app.finish()
