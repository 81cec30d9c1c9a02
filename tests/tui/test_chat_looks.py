"""What the chat looks like: `pytest --snapshot-update` after a change that was meant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import fake_run as fr
import pytest
from textual import events
from textual.pilot import Pilot

from minagi import protocol as p
from minagi.config import Ui
from tui.shell import MinagiApp
from tui.state import Asked

SIZES = [(40, 12), (80, 24), (120, 40)]
SnapCompare = Callable[..., bool]
REPLY = "They were pruned at the end of winter, and the ground was öpen. 日記 [b] "
SAID = [
    fr.hello(), fr.corpus(), p.Phase("running"), p.Metrics(step=900, chars=460_800, context=256),
    p.Remembered(1.0, "What of the apple trees?", REPLY, "adapted", 2.5, "finished", 73, 219, 3, 1.8),
]  # fmt: skip


def app() -> MinagiApp:
    made = MinagiApp(fr.FakeSource(script=SAID), Ui(), clock=fr.Clock())
    made.animation_level = "none"
    return made


def after(
    *keys: str, paste: str = "", talk: tuple[p.Message, ...] = ()
) -> Callable[[Pilot], Awaitable[None]]:
    """With the chat maximised and its text field in use: what was said, a paste, keys."""

    async def act(pilot: Pilot) -> None:
        await pilot.pause()
        shown = pilot.app
        assert isinstance(shown, MinagiApp)
        fr.settle(shown)
        await pilot.press("7", "f")
        shown.action_chat()
        for message in talk:
            shown.fold(message)
        if paste:
            shown.chat_pane.input.post_message(events.Paste(paste))
        await pilot.pause()
        await pilot.press(*keys)
        fr.settle(shown)
        await pilot.pause()
        shown.chat_pane.conversation.scroll_end(animate=False, immediate=True)
        await pilot.pause()

    return act


def pair(ended: bool) -> tuple[p.Message, ...]:
    """One prompt answered twice, the second answer whole or not."""
    raw = (p.ReplyStarted(1, "raw"), p.ReplyChunk(1, "And the " * 9, [3] * 72, 5, "raw"))
    asked = Asked(p.Write(id=1, prompt="And then?", strength=2.5, both=True))
    over = (p.ReplyEnded(1, "length", 72, 2.0, "raw"),) if ended else ()
    adapted = (
        p.ReplyStarted(1, strength=2.5),
        p.ReplyChunk(1, "And then the rain of the day, " * 2, [3] * 60, 7),
    )
    return (asked, *adapted, p.ReplyEnded(1, "length", 60, 1.1), *raw, *over)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_two_answers(snap_compare: SnapCompare, width: int, height: int) -> None:
    assert snap_compare(app(), terminal_size=(width, height), run_before=after(talk=pair(ended=True)))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_second_answer_being_written(snap_compare: SnapCompare, width: int, height: int) -> None:
    assert snap_compare(app(), terminal_size=(width, height), run_before=after(talk=pair(ended=False)))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_command_being_typed(snap_compare: SnapCompare, width: int, height: int) -> None:
    assert snap_compare(app(), terminal_size=(width, height), run_before=after("slash"))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_long_paste(snap_compare: SnapCompare, width: int, height: int) -> None:
    asked = Asked(p.Write(id=1, prompt="many words " * 9_000, strength=2.5))
    talk = (asked, p.ReplyStarted(1, unread=98_747), p.ReplyEnded(1, "cancelled"))
    act = after("exclamation_mark", paste="words " * 20_000, talk=talk)
    assert snap_compare(app(), terminal_size=(width, height), run_before=act)
