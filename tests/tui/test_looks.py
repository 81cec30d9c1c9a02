"""What the app looks like, pixel for pixel: `pytest --snapshot-update` after a change that was meant."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import fake_run as fr
import pytest
from textual.pilot import Pilot

from minagi import protocol as p
from minagi.config import Ui
from tui.shell import MinagiApp
from tui.state import Asked

STEPS = 1300
NOW = fr.START + STEPS * fr.STEP_SECONDS + 20
SnapCompare = Callable[..., bool]


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log shows local times."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def app(theme: str = "textual-dark") -> MinagiApp:
    made = MinagiApp(
        fr.FakeSource(script=list(fr.story(STEPS))), Ui(theme=theme), clock=fr.Clock(NOW), recent_span=1e8
    )
    made.animation_level = "none"
    return made


def after(*keys: str, talk: bool = False) -> Callable[[Pilot], Awaitable[None]]:
    """Press keys, once the story is told and drawn."""

    async def act(pilot: Pilot) -> None:
        await pilot.pause()
        shown = pilot.app
        assert isinstance(shown, MinagiApp)
        if talk:
            shown.fold(Asked(p.Write(id=90, prompt="What did I write about the apple trees?")))
            for event in fr.reply(
                90, "They were pruned at the end of winter, and the ground was then öpen. [b]"
            ):
                shown.fold(event)
            shown.fold(Asked(p.Write(id=91, prompt="And then?")))
            for event in list(fr.reply(91, "And then the rain of the day, and of the night"))[:5]:
                shown.fold(event)
        fr.settle(shown)
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
        fr.settle(shown)
        await pilot.pause()

    return act


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (120, 40), (200, 60)])
def test_the_main_screen(snap_compare: SnapCompare, width: int, height: int) -> None:
    assert snap_compare(app(), terminal_size=(width, height), run_before=after(talk=True))


@pytest.mark.parametrize("theme", ["textual-light", "ansi-dark"])
def test_other_themes(snap_compare: SnapCompare, theme: str) -> None:
    assert snap_compare(app(theme), terminal_size=(120, 40), run_before=after(talk=True))


def test_the_pool_at_80x24(snap_compare: SnapCompare) -> None:
    assert snap_compare(app(), terminal_size=(80, 24), run_before=after("3", "right", "right", "right"))


def test_quitting(snap_compare: SnapCompare) -> None:
    assert snap_compare(app(), terminal_size=(80, 24), run_before=after("q"))
