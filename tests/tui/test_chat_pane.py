"""Talking: the text field, the commands, the conversation on the screen."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import fake_run as fr
import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Static

from minagi import protocol as p
from tui.panes.chat_input import PASTE_WHOLE, ChatInput
from tui.panes.typed import SENT_MAX
from tui.screens.delete import DeleteScreen
from tui.screens.help import HelpScreen
from tui.screens.revert import RevertScreen
from tui.shell import MinagiApp

RUNNING = [fr.hello(), fr.corpus(), p.Phase("running"), p.Metrics(step=1, chars=512, context=256)]


def source(*more: p.Message) -> fr.FakeSource:
    return fr.FakeSource(script=[*RUNNING, *more])


opened = partial(fr.opened, size=(80, 24))


def typed(text: str) -> list[str]:
    """The keys of a line."""
    return ["enter" if c == "\n" else c for c in text]


async def say(pilot: Pilot, text: str) -> None:
    """Type a line into the chat and send it."""
    app = pilot.app
    assert isinstance(app, MinagiApp)
    app.action_chat()
    await pilot.press(*typed(text), "enter")
    await pilot.pause()


async def paste(pilot: Pilot, text: str) -> None:
    app = pilot.app
    assert isinstance(app, MinagiApp)
    app.chat_pane.input.post_message(events.Paste(text))
    await pilot.pause()


def hear(app: MinagiApp, *messages: p.Message) -> None:
    for message in messages:
        app.fold(message)
    fr.settle(app)


def shown(app: MinagiApp) -> list[str]:
    """The texts of the conversation, from the top."""
    return [str(view.visual) for view in app.query(".prompt, .reply").results(Static)]


def status(app: MinagiApp) -> str:
    widget = app.query_one("#chat-status")
    return "\n".join(strip.text for strip in widget.render_lines(widget.size.region)).strip()


def told(app: MinagiApp) -> str:
    """The newest notification."""
    return list(app._notifications)[-1].message


# ---------------------------------------------------------------------------------------- saying


async def test_talking() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await pilot.press("i")
        assert isinstance(app.focused, ChatInput)
        await pilot.press(*"hi q s", "ctrl+j", *"3", "enter")
        assert fake.sent == [p.Write(1, "hi q s\n3", 400, False, 2.5)]
        assert app.chat_pane.input.text == ""
        hear(app, *fr.reply(1, "hello [b]you[/b]"))
        await pilot.pause()
        prompt, reply = shown(app)
        assert prompt == "› hi q s\n3"
        assert "hello [b]you[/b]" in reply
        await pilot.press("escape")
        assert app.focused is app.chat_pane


async def test_a_second_message_waits_until_the_first_is_answered() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await say(pilot, "one")
        await say(pilot, "two")
        assert len(fake.sent) == 1
        assert "still writing" in told(app)
        assert app.chat_pane.input.text == "two"
        await pilot.press("escape")
        assert fake.sent[-1] == p.Cancel(2)
        await pilot.press("ctrl+x")
        assert fake.sent[-1] == p.Cancel(3)
        app.tick()
        assert "still writing" in str(app._desk.notice.visual)
        hear(app, p.ReplyStarted(1), p.ReplyEnded(1, "cancelled"))
        app.tick()  # it writes no longer, and that it does is said no longer
        assert "still writing" not in str(app._desk.notice.visual)


async def test_what_is_typed_behind_enter_is_another_text() -> None:
    """However slow the app is to send the first."""
    fake = source()
    async with opened(fake) as (app, pilot):
        await pilot.press("i")
        for key in (*"one", "enter", *"twx", "backspace", *"o"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        await pilot.pause()
        assert fake.sent == [p.Write(1, "one", 400, False, 2.5)]
        assert app.chat_pane.input.text == "two"


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter"])
async def test_a_new_line_is_no_end(key: str) -> None:
    fake = source()
    async with opened(fake) as (_, pilot):
        await pilot.press("i", *"a", key, *"b", "enter")
        assert fake.sent == [p.Write(1, "a\nb", 400, False, 2.5)]


@pytest.mark.parametrize("text", ["日本語 ñ", "שלום עולם", "नमस्ते", "می‌خواهم", "👩‍👩‍👧"])
async def test_any_writing_is_sent_as_it_was_pasted(text: str) -> None:
    fake = source()
    async with opened(fake) as (_, pilot):
        await pilot.press("i")
        await paste(pilot, text)
        await pilot.press("enter")
        assert [command.prompt for command in fake.sent] == [text]


async def test_a_paste_cannot_drive_the_terminal() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await pilot.press("i")
        await paste(pilot, "a\x1b[31m\x07b\r\nc\rd\te\x9b")
        assert app.chat_pane.input.text == "a[31mb\nc\nd\te"


async def test_an_empty_message_is_not_sent() -> None:
    fake = source()
    async with opened(fake) as (_, pilot):
        await pilot.press("i", "space", "ctrl+j", "enter")
        assert fake.sent == []


# --------------------------------------------------------------------------------- long pastes


async def test_a_long_paste_stands_as_one_word_and_is_sent_whole() -> None:
    fake = source()
    huge = "A paste of many words. " * 4400
    async with opened(fake) as (app, pilot):
        await pilot.press("i", *"see: ")
        await paste(pilot, huge)
        await pilot.press(*"!")
        assert app.chat_pane.input.text == f"see: [paste 1: {len(huge):,} characters]!"
        fr.settle(app)
        assert f"{len(huge) + 6:,} characters; the last 253 fit" in status(app)
        await pilot.press("enter")
        assert [command.prompt for command in fake.sent] == [f"see: {huge}!"]
        hear(app, p.ReplyStarted(1, unread=len(huge) + 6 - 253))
        await pilot.pause()
        prompt = shown(app)[0]
        assert len(prompt) < 1_000
        assert "characters in all" in prompt
        assert "The window held its last 253 characters." in prompt


async def test_two_pastes_keep_apart_and_one_that_is_erased_is_not_sent() -> None:
    fake = source()
    one, two = "[paste 2: 2,500 characters]".ljust(2_500, "1"), "2" * 2_500
    async with opened(fake) as (app, pilot):
        await pilot.press("i")
        await paste(pilot, one)
        await paste(pilot, two)
        assert app.chat_pane.input.said == one + two
        await pilot.press("backspace", "enter")
        assert [c.prompt for c in fake.sent] == [one + "[paste 2: 2,500 characters"]


async def test_a_paste_of_no_great_length_is_text() -> None:
    async with opened(source()) as (app, pilot):
        await pilot.press("i")
        await paste(pilot, "x" * PASTE_WHOLE)
        assert app.chat_pane.input.text == "x" * PASTE_WHOLE


async def test_more_than_can_be_sent_stays_where_it_is() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await pilot.press("i")
        await paste(pilot, "x" * (SENT_MAX + 1))
        await pilot.press("enter")
        await pilot.pause()
        assert fake.sent == []
        assert "1,000,000 can be sent at once" in told(app)
        assert app.chat_pane.input.said == "x" * (SENT_MAX + 1)


# ------------------------------------------------------------------------------ bringing back


async def test_arrows_bring_back_what_was_said() -> None:
    fake = source(p.Remembered(prompt="long ago", over=True))
    async with opened(fake) as (app, pilot):
        field = app.chat_pane.input
        await say(pilot, "one")
        hear(app, *fr.reply(1, "."))
        await pilot.press(*"draft", "up")
        assert field.text == "one"
        await pilot.press("up")
        assert field.text == "long ago"
        await pilot.press("up")
        assert field.text == "long ago"
        await pilot.press("down", "down")
        assert field.text == "draft"
        await pilot.press("down")
        assert field.text == "draft"
        await pilot.press("up", "enter")
        assert fake.sent[-1] == p.Write(2, "one", 400, False, 2.5)


async def test_arrows_move_inside_a_text_of_several_lines() -> None:
    async with opened(source(p.Remembered(prompt="before"))) as (app, pilot):
        field = app.chat_pane.input
        await pilot.press("i", *"ab", "ctrl+j", *"cd", "up", *"x")
        assert field.text == "abx\ncd"
        await pilot.press("down", *"y")
        assert field.text == "abx\ncdy"
        await pilot.press("up", "up")
        assert field.text == "before"


async def test_a_long_text_is_brought_back_as_one_word() -> None:
    async with opened(source()) as (app, pilot):
        await pilot.press("i")
        await paste(pilot, "x" * 5_000)
        await pilot.press("enter")
        hear(app, *fr.reply(1, "."))
        await pilot.press("up")
        assert app.chat_pane.input.text == "[paste 1: 5,000 characters]"
        assert app.chat_pane.input.said == "x" * 5_000


# ------------------------------------------------------------------------------------ commands


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/save", p.Checkpoint(1)),
        ("/save tea time", p.Checkpoint(1, "tea time")),
        ("/pause", p.Pause(1)),
        ("/resume", p.Resume(1)),
        ("/new", p.NewChat(1)),
        ("/measure", p.Evaluate(1)),
        ("/learn", p.Set(1, "learn_from_chat", True)),
        ("/learn on", p.Set(1, "learn_from_chat", True)),
        ("/learn off", p.Set(1, "learn_from_chat", False)),
        ("//save", p.Write(1, "/save", 400, False, 2.5)),
        (" /save", p.Write(1, " /save", 400, False, 2.5)),
    ],
)
async def test_commands_are_obeyed(text: str, command: p.Command) -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await say(pilot, text)
        assert fake.sent == [command]
        assert app.chat_pane.input.text == ""
        assert app.typing


async def test_the_manner_of_replies() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        for text, line in (
            ("/raw", "raw (a): free to repeat itself"), ("/adapt 4", "adapted 4 (a): repeats itself less"),
            ("/both", "adapted 4 and raw (a): one beside the other"),
            ("/adapt", "adapted 4 (a): repeats itself less"),
        ):  # fmt: skip
            await say(pilot, text)
            fr.settle(app)
            assert status(app).startswith(f"{line} ·"), text
        await pilot.press("escape")
        for manner in ("raw", "both", "adapted"):
            await pilot.press("a")
            assert app.view.manner == manner
        await pilot.press("a")
        await say(pilot, "x")
        hear(app, p.ReplyStarted(1, "raw"), p.ReplyEnded(1, variant="raw"))
        await say(pilot, "/both")
        await say(pilot, "y")
        assert fake.sent == [p.Write(1, "x", 400, True, None), p.Write(2, "y", 400, False, 4.0, both=True)]
        hear(app, p.ReplyStarted(2), p.ReplyEnded(2, "length"), p.ReplyStarted(2, "raw"))
        hear(app, p.ReplyEnded(2, "length", variant="raw"))
        await pilot.pause()
        assert "cut at the length set (/length) · ^g goes on" in "\n".join(shown(app))
        await say(pilot, "/length 1200")
        await say(pilot, "/length")
        assert app.view.reply_chars == 1200
        await pilot.press("ctrl+g")
        assert fake.sent[-1] == p.Continue(3, 1200)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/sav", "The nearest is /save"),
        ("/adapt eleven", "from 0 to 10, not 'eleven'"),
        ("/adapt 11", "from 0 to 10"),
        ("/adapt nan", "from 0 to 10"),
        ("/learn maybe", "on or off"),
        ("/length 0", "1 to 1,000,000, not '0'"),
        ("/length -4", "number of characters"),
        ("/length ٣", "number of characters"),
        ("/pause it", "takes nothing"),
    ],
)
async def test_a_command_that_cannot_be_obeyed_makes_room_and_can_be_brought_back_to_be_mended(
    text: str, words: str
) -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await say(pilot, text)
        assert fake.sent == []
        assert words in told(app)
        assert app.chat_pane.input.text == "", "the next slash begins a command"
        await pilot.press("up")
        assert app.chat_pane.input.text == text


def told_by(app: MinagiApp) -> str:
    return str(app.screen.query_one("#deletion", Static).visual)


async def test_commands_open_screens() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await say(pilot, "/help")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        await say(pilot, "/revert")
        assert isinstance(app.screen, RevertScreen)
        await pilot.press("escape")
        await say(pilot, "/delete milk")
        assert isinstance(app.screen, DeleteScreen)
        app.fold(p.Snapshots([{"id": "3", "name": "milk", "kind": "named", "bytes_freed": 120_000_000}]))
        app.tick()
        assert "“milk”, step 0" in told_by(app) and "gives back 120 MB" in told_by(app)
        await pilot.press("right", "enter")
        assert fake.sent[-1] == p.Delete(3, "3")
        await say(pilot, "/delete milk")
        app.fold(p.Snapshots([{"id": "3", "name": "milk", "kind": "named"}], present="3"))
        app.tick()
        assert "once another one is saved" in told_by(app)
        await pilot.press("right", "enter")
        assert isinstance(app.screen, DeleteScreen) and fake.sent[-1] == p.ListSnapshots(4)


async def test_a_command_typed_outside_the_field_is_one() -> None:
    """The slash opens the field and stands in it, however fast the rest is typed behind it."""
    fake = source()
    async with opened(fake) as (app, pilot):
        for key in ("slash", *"learn off", "enter"):
            app.post_message(events.Key(key, "/" if key == "slash" else key if len(key) == 1 else None))
        await pilot.pause()
        await pilot.pause()
        assert fake.sent == [p.Set(1, "learn_from_chat", False)]
        assert app.chat_pane.input.text == ""


async def test_a_slash_pressed_on_a_draft_joins_it() -> None:
    async with opened(source()) as (app, pilot):
        await pilot.press("i", *"a b", "escape", "slash", *"c")
        assert app.chat_pane.input.text == "a b/c"


async def test_commands_are_suggested_and_completed() -> None:
    async with opened(source()) as (app, pilot):
        commands, field = app.query_one("#chat-commands", Static), app.chat_pane.input
        await pilot.press("slash")
        assert all(name in str(commands.visual) for name in ("/save", "/learn", "/quit"))
        await pilot.press(*"sa")
        assert "Save a checkpoint now" in str(commands.visual)
        assert field.suggestion == "ve"
        await pilot.press("tab")
        assert field.text == "/save " and not commands.display
        assert app.typing
        await pilot.press("ctrl+u", *"/ne", "right")
        assert field.text == "/new"
        await pilot.press("ctrl+u", "tab")
        assert not app.typing, "without a command, tab is the next pane"


async def test_the_palette_has_the_commands() -> None:
    async with opened(source()) as (app, _):
        told = {command.title: command.help for command in app.get_system_commands(app.screen)}
    assert told["Save a checkpoint now"] == "s, ^s, /save"
    assert told["Pause training"] == "/pause"
    assert "^g" in told["Go on with the last reply"] and "/continue" in told["Go on with the last reply"]


# ------------------------------------------------------------------------------------- going on


@pytest.mark.parametrize("how", [["escape", "g"], ["ctrl+g"], typed("/continue\n")])
async def test_a_reply_goes_on(how: list[str]) -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await say(pilot, "one")
        hear(app, *list(fr.reply(1, "a reply"))[:2], p.ReplyEnded(1, "cancelled"))
        await pilot.pause()
        assert "cancelled · ^g goes on" in shown(app)[1]
        await pilot.press(*how)
        await pilot.pause()
        assert fake.sent[-1] == p.Continue(2, 400)
        hear(app, p.ReplyStarted(2, goes_on=True), p.ReplyChunk(2, "!", [1]), p.ReplyEnded(2))
        await pilot.pause()
        assert "a reply!" in shown(app)[1]
        assert "goes on" not in shown(app)[1]


async def test_the_key_that_quits_does_not_overtake_what_was_typed_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        app.action_chat()
        order: list[int] = []
        monkeypatch.setattr(app, "push_screen", lambda *_: order.append(len(fake.sent)))
        await pilot.pause()
        for key in ("h", "i", "enter", "ctrl+q"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        await pilot.pause()
        assert order == [1] and fake.sent[0].type == "write", "it was asked after the text was sent"


async def test_there_must_be_something_to_go_on_with() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await pilot.press("g")
        assert "no reply to go on with yet" in told(app)
        await say(pilot, "one")
        await pilot.press("ctrl+g")
        assert "still writing" in told(app)
        hear(app, *fr.reply(1, "whole"))
        await pilot.press("ctrl+g")
        assert "came to its own end" in told(app)
        assert [type(command) for command in fake.sent] == [p.Write]
        await say(pilot, "two")
        fake.die(-9)
        hear(app)
        await pilot.pause()
        await pilot.press("escape", "ctrl+g")
        assert "never came" in told(app)


# ------------------------------------------------------------------------------- on the screen


def regions(app: MinagiApp) -> list[tuple[int, int]]:
    return [(view.region.x, view.region.y) for view in app.query(".reply")]


@pytest.mark.parametrize(("width", "beside"), [(120, True), (80, False), (200, True)])
async def test_two_answers_stand_side_by_side_where_there_is_room(width: int, beside: bool) -> None:
    async with opened(source(), size=(width, 40)) as (app, pilot):
        await say(pilot, "/both")
        await say(pilot, "one")
        chunk = p.ReplyChunk(1, "that", [1] * 4, variant="raw")
        hear(app, *fr.reply(1, "this"), p.ReplyStarted(1, "raw"), chunk, p.ReplyEnded(1, variant="raw"))
        await pilot.pause()
        (x, y), (other_x, other_y) = regions(app)
        assert (other_x > x and other_y == y) if beside else (other_x == x and other_y > y)
        assert "adapted 2.5\nthis" in shown(app)[1] and "raw\nthat" in shown(app)[2]


async def test_breaking_off_a_pair_takes_the_second_place_away() -> None:
    async with opened(source()) as (app, pilot):
        await say(pilot, "/both")
        await say(pilot, "one")
        fr.settle(app)
        await pilot.pause()
        assert len(regions(app)) == 2
        hear(app, p.ReplyStarted(1), p.ReplyEnded(1, "cancelled"))
        await pilot.pause()
        assert len(regions(app)) == 1


async def test_rows_and_loads_are_told_while_it_writes() -> None:
    async with opened(source()) as (app, pilot):
        await say(pilot, "one")
        fr.settle(app)
        assert "begins after the step in flight" in status(app)
        hear(app, p.ReplyStarted(1), p.ReplyChunk(1, "abc", [2, 2, 5], 7))
        assert status(app) == "✎ 3 characters · 5 rows of thought · 7 expert loads · esc stops it"


async def test_earlier_sessions_are_on_the_screen_and_it_scrolls() -> None:
    said = [p.Remembered(1.0, f"prompt {n}", "words " * 40) for n in range(60)]
    async with opened(source(*said)) as (app, pilot):
        await pilot.press("7")
        await pilot.pause()
        conversation = app.chat_pane.conversation
        assert shown(app)[-2] == "› prompt 59"
        bottom = conversation.scroll_y
        assert bottom == conversation.max_scroll_y > 100
        await pilot.press("up", "pageup")
        assert conversation.scroll_y == bottom - 11
        await pilot.press("i", "pageup")
        assert conversation.scroll_y < bottom - 11
        assert app.typing


async def test_a_new_chat_forgets_the_old_once_the_worker_has() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await say(pilot, "x")
        hear(app, *fr.reply(1, "y"))
        await pilot.press("escape", "n")
        assert len(app.state.chat) == 1
        hear(app, p.ConversationBegan(), p.Ack(2, "new_chat"))
        await pilot.pause()
        assert shown(app) == []
        assert app.query_one("#chat-intro").display


async def test_learning_is_a_toggle_one_can_see() -> None:
    fake = source()
    async with opened(fake) as (app, pilot):
        await pilot.press("7", "t")
        assert fake.sent == [p.Set(1, "learn_from_chat", True)]
        assert "learns nothing" in status(app)
        hear(app, p.Ack(1, "set", True, "Read from now on."))
        assert "learns from this" in status(app)
        await pilot.press("t")
        assert fake.sent[-1] == p.Set(2, "learn_from_chat", False)


async def test_copy_and_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fake = source(*[event for event in fr.story(30) if isinstance(event, p.Metrics)])
    async with opened(fake) as (app, pilot):
        await pilot.press("c")
        assert "no reply yet" in told(app)
        await say(pilot, "x")
        hear(app, *fr.reply(1, "words"))
        await pilot.press("escape", "c")
        assert app.clipboard == "words"
        await pilot.press("ctrl+e")
    chat, losses = sorted(tmp_path.iterdir())
    assert chat.read_text() == "**you**\n\nx\n\n**adapted**\n\nwords\n\n"
    assert losses.read_text().startswith("curve,characters")
