"""The first screen of a new model: what was found, what it costs, one key."""

from __future__ import annotations

import random
from dataclasses import replace

import fake_run as fr
import pytest
from textual.widgets import Static

from minagi import protocol as p
from tui.screens.quit import QuitScreen
from tui.screens.welcome import PACE_STEPS, WelcomeScreen, overview
from tui.shell import MinagiApp
from tui.shell.running import REHEARSAL_MOST, REHEARSAL_SECONDS
from tui.state import initial

PACE = fr.metrics(PACE_STEPS, random.Random(1))
FIRST = fr.metrics(2, random.Random(1))


def told(app: MinagiApp) -> str:
    assert isinstance(app.screen, WelcomeScreen)
    return "\n".join(str(fact.visual) for fact in app.screen.query(Static))


async def test_it_fills_up_as_things_become_known() -> None:
    fake = fr.FakeSource()
    async with fr.opened(fake, first_run=True) as (app, _):
        assert "looking through the folder" in told(app) and "being made" in told(app)
        app.fold(fr.hello(notice="There is no GPU here, so it is small."))
        app.fold(fr.corpus())
        fr.settle(app)
        shown = told(app)
        assert "214 files, 1.90M characters, 4 subjects" in shown
        assert "python 1.20M, letters 412k, garden notes 188k, 1 more" in shown
        assert "98.3k characters are held out" in shown
        assert "31 binary, 2 empty" in shown
        assert "2.14M parameters, 24 experts, profile cpu" in shown
        assert "There is no GPU here" in shown
        assert "/home/ada/models/notes" in shown
        assert "to read it all" not in shown
        app.fold(replace(FIRST, chars_per_second=1.0))
        fr.settle(app)
        assert "in a moment" in told(app), "the first steps tell little"
        app.fold(replace(PACE, chars_per_second=1000.0))
        fr.settle(app)
        assert "1.00k characters a second: about 32 min to read it all" in told(app)
        assert fake.sent == []


@pytest.mark.parametrize("key", ["enter", "space"])
async def test_it_reads_a_little_then_waits_and_one_key_goes_on(key: str) -> None:
    fake = fr.FakeSource(script=[fr.hello(), fr.corpus(), p.Phase("running"), PACE])
    async with fr.opened(fake, first_run=True) as (app, pilot):
        app.clock.now += REHEARSAL_SECONDS
        app.tick()
        fr.settle(app)
        assert fake.sent == [p.Pause(1)]
        await pilot.press(key)
        assert not isinstance(app.screen, WelcomeScreen)
        assert fake.sent == [p.Pause(1), p.Resume(2)]


async def test_a_slow_model_rests_after_few_steps_and_tells_what_they_say() -> None:
    fake = fr.FakeSource(script=[fr.hello(), fr.corpus(), p.Phase("running"), FIRST])
    async with fr.opened(fake, first_run=True) as (app, _):
        app.clock.now += REHEARSAL_SECONDS
        fr.settle(app)
        assert fake.sent == []
        app.clock.now += REHEARSAL_MOST
        fr.settle(app)
        assert fake.sent == [p.Pause(1)]
        app.fold(p.Phase("paused"))
        fr.settle(app)
        assert "to read it all" in told(app)


async def test_what_can_be_read_later_does_not_cover_it() -> None:
    whole = replace(PACE, corpus_share=1.2)
    fake = fr.FakeSource([fr.hello(), fr.corpus(), FIRST, whole])
    async with fr.opened(fake, first_run=True) as (app, pilot):
        assert not app._notifications and "Pass 1" in app.state.log[-1].text
        app.fold(p.Ack(9, "pause", False, "It cannot."))
        app.tick()
        await pilot.pause()
        assert len(app._notifications) == 1, "what went wrong is told"


async def test_who_does_not_wait_is_not_made_to() -> None:
    fake = fr.FakeSource()
    async with fr.opened(fake, first_run=True) as (app, pilot):
        await pilot.press("enter")
        for event in (fr.hello(), fr.corpus(), p.Phase("running"), PACE):
            app.fold(event)
        app.clock.now += REHEARSAL_SECONDS
        fr.settle(app)
        fr.settle(app)
        assert fake.sent == [], "nothing was paused, so nothing is resumed"


@pytest.mark.parametrize("keys", [("q",), ("ctrl+q",), ("escape",), ("right", "enter")])
async def test_leaving_asks_nothing_and_keeps_nothing(keys: tuple[str, ...]) -> None:
    fake = fr.FakeSource(script=[fr.hello(), fr.corpus(), PACE])
    async with fr.opened(fake, first_run=True) as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
        assert not isinstance(app.screen, QuitScreen)
        assert fake.closed == [False]


async def test_a_model_that_was_there_after_all_goes_on_at_once() -> None:
    fake = fr.FakeSource(script=[fr.hello(fresh=False), fr.corpus(), PACE])
    async with fr.opened(fake, first_run=True) as (app, _):
        fr.settle(app)
        assert not isinstance(app.screen, WelcomeScreen)
        assert fake.sent == []


def test_what_there_may_be_none_of() -> None:
    state = replace(
        initial(0.0), hello=fr.hello(dry_run=True, profile="", device_name=""),
        corpus=p.CorpusFound(files=1, chars=900, skipped={"x" * 90: 10**40}),
    )  # fmt: skip
    shown = "\n".join(overview(state).values())
    assert "too little to hold any out" in shown
    assert "this is a dry run" in shown
    assert "on cpu, bf16" in shown


@pytest.mark.parametrize("size", [(40, 12), (20, 6), (200, 60)])
async def test_the_button_is_on_every_screen(size: tuple[int, int]) -> None:
    async with fr.opened(fr.FakeSource(list(fr.story(3))), size=size, first_run=True) as (app, _):
        button = app.screen.query_one("#start")
        assert app.screen.region.contains_region(button.region)
        assert button.has_focus
