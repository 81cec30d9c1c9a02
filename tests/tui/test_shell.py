"""Every key does what the table says, over a scripted source."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import cast

import fake_run as fr
import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Button, OptionList, Static

from minagi import protocol as p
from minagi.config import Ui
from tui import private
from tui.client import Deliver
from tui.keymap import PANES
from tui.logbook import Logbook
from tui.panes.memory import MemoryPane
from tui.panes.notice import Notice, heed_in_palette
from tui.panes.pool import PoolPane
from tui.screens.delete import DeleteScreen
from tui.screens.help import HelpScreen
from tui.screens.name import NameScreen
from tui.screens.quit import LeavingScreen, QuitScreen
from tui.screens.revert import RevertScreen
from tui.shell import MinagiApp

RUNNING = [fr.hello(), fr.corpus(), p.Phase("running")]


def source(*more: p.Message) -> fr.FakeSource:
    return fr.FakeSource(script=[*RUNNING, *more])


async def press(pilot: Pilot, *keys: str) -> None:
    await pilot.press(*keys)


def texts(app: MinagiApp, pane: str) -> str:
    """What a pane shows, as plain text."""
    widget = app._desk.deck.panes[pane]
    return "\n".join(strip.text for strip in widget.render_lines(widget.outer_size.region))


async def test_the_first_frame_does_not_wait_for_the_source() -> None:
    async with fr.opened(fr.FakeSource()) as (app, _):
        assert app.state.link == "starting"
        assert "waiting for the first step" in texts(app, "loss")


async def test_every_pane_draws_the_story() -> None:
    async with fr.opened(fr.FakeSource(script=list(fr.story(1300))), now=fr.START + 130) as (app, _):
        shown = {name: texts(app, name) for name in PANES if name != "chat"}
    assert "train" in shown["loss"] and "◆" in shown["loss"] and "★" in shown["loss"]
    assert "this process" in shown["memory"]
    assert "8 resident" in shown["pool"] and "✶" in shown["pool"]
    assert "of 512" in shown["window"] and "▲ above" in shown["window"]
    assert "rows" in shown["depth"] and "×1.000" in shown["depth"]
    assert "garden notes" in shown["subjects"]
    assert "Held-out" in shown["log"]


async def test_without_charts_the_figures_are_shown_alone() -> None:
    async with fr.opened(fr.FakeSource(script=list(fr.story(300)))) as (app, _):
        drawn = texts(app, "loss")
        app.look(charts=False)
        fr.settle(app)
        bare = texts(app, "loss")
    assert "train" in drawn and "train" in bare
    assert len(set(bare)) < len(set(drawn)), "no braille"


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("space", p.Pause(1)),
        ("s", p.Checkpoint(1)),
        ("ctrl+s", p.Checkpoint(1)),
        ("e", p.Evaluate(1)),
        ("n", p.NewChat(1)),
        ("r", p.ListSnapshots(1)),
    ],
)
async def test_keys_that_ask_the_worker(key: str, command: p.Command) -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, key)
        assert fake.sent == [command]
        assert app.state.pending[0].command == command


async def test_space_resumes_what_is_paused() -> None:
    fake = source(p.Phase("paused"))
    async with fr.opened(fake) as (_, pilot):
        await press(pilot, "space")
        assert fake.sent == [p.Resume(1)]


async def test_space_twice_before_the_acknowledgement_pauses_and_resumes() -> None:
    fake = source()
    async with fr.opened(fake) as (_, pilot):
        await press(pilot, "space", "space")
        assert [type(command) for command in fake.sent] == [p.Pause, p.Resume]


async def test_panes_by_number_and_by_tab() -> None:
    async with fr.opened(source(), size=(80, 24)) as (app, pilot):
        for number, name in enumerate(PANES, 1):
            await press(pilot, str(number))
            assert app._desk.deck.chosen == name
            assert app._desk.deck.panes[name].display
            assert app.focused is app._desk.deck.panes[name]
        await press(pilot, "tab")
        assert app._desk.deck.chosen == PANES[0]
        await press(pilot, "shift+tab")
        assert app._desk.deck.chosen == PANES[-1]
        await press(pilot, "1", "l")
        assert app._desk.deck.chosen == "log"


@pytest.mark.parametrize("key", ["enter", "f"])
async def test_a_pane_takes_the_whole_screen_and_gives_it_back(key: str) -> None:
    async with fr.opened(source()) as (app, pilot):
        await press(pilot, "3", key)
        assert [name for name, pane in app._desk.deck.panes.items() if pane.display] == ["pool"]
        await press(pilot, "4")
        assert [name for name, pane in app._desk.deck.panes.items() if pane.display] == ["window"]
        await press(pilot, "escape")
        assert all(pane.display for pane in app._desk.deck.panes.values())


async def test_the_ways_of_looking() -> None:
    async with fr.opened(fr.FakeSource(script=list(fr.story(120)))) as (app, pilot):
        await press(pilot, "y")
        assert app.view.axes == "log"
        await press(pilot, "y", "y", "z", "a")
        assert (app.view.axes, app.view.recent, app.view.manner) == ("plain", True, "raw")
        await press(pilot, "u")
        fr.settle(app)
        assert not app.view.bits
        assert "nats" in str(app._desk.deck.panes["loss"].border_subtitle)
        await press(pilot, "right_square_bracket", "right_square_bracket", "left_square_bracket")
        assert app.view.strength == 3.0
        await press(pilot, *["left_square_bracket"] * 9)
        assert app.view.strength == 0.0


async def test_the_words_in_a_panes_lower_edge_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "as many as there is room for"
    monkeypatch.setattr(MemoryPane, "subtitle", lambda self, frame, size: told.rjust(size.width, "x"))
    async with fr.opened(source()) as (app, _):
        edge = texts(app, "memory").splitlines()[-1]
    assert "xxx" in edge and told in edge, edge


async def test_the_log_filters_and_scrolls() -> None:
    lines = [p.Log(fr.START, "info", "files", f"file {n}") for n in range(90)]
    warning = p.Log(fr.START, "warning", "pool", "something odd [/b]")
    async with fr.opened(source(*lines, warning)) as (app, pilot):
        await press(pilot, "8")
        assert "Something odd [/b]" in texts(app, "log")
        await press(pilot, "pageup", "up")
        assert "Something odd" not in texts(app, "log")
        assert "11 newer below" in str(app._desk.deck.panes["log"].border_subtitle)
        await press(pilot, "pagedown", "down", "v")
        fr.settle(app)
        assert app.view.log_filter == "warnings"
        assert "File 89" not in texts(app, "log")


async def test_an_expert_is_told_of_when_it_is_selected() -> None:
    async with fr.opened(fr.FakeSource(script=list(fr.story(50)))) as (app, pilot):
        await press(pilot, "3", "right", "right", "down", "left")
        pane = app._desk.deck.panes["pool"]
        assert isinstance(pane, PoolPane) and pane.selected is not None
        assert f"expert {pane.selected.uid}" in texts(app, "pool")
        await press(pilot, *["down"] * 20)
        assert pane.selected.uid == 26
        assert "parents 3 7 12 19" in texts(app, "pool")


async def test_arrow_keys_of_one_pane_do_nothing_in_another() -> None:
    async with fr.opened(fr.FakeSource(script=list(fr.story(50)))) as (app, pilot):
        await press(pilot, "1", "right", "down", "v")
        pane = app._desk.deck.panes["pool"]
        assert isinstance(pane, PoolPane) and pane.selected is None
        assert app.view.log_filter == "all"


# --------------------------------------------------------------------------------------- leaving


async def test_quitting_asks_and_saves() -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "q")
        assert isinstance(app.screen, QuitScreen)
        hints = app.screen.query_one(".hints", Static)
        assert "esc stay" in str(hints.visual) and hints.region.bottom == app.size.height
        await press(pilot, "escape")
        assert not isinstance(app.screen, QuitScreen)
        await press(pilot, "ctrl+q", "enter")
        assert fake.closed == [True]
    assert app.return_code == 0


async def test_the_question_of_what_to_keep_counts_on_while_it_stands() -> None:
    async with fr.opened(source(p.Metrics(step=8, unsaved_chars=800))) as (app, pilot):
        await press(pilot, "q")
        app.fold(p.Metrics(step=9, unsaved_chars=900))
        fr.settle(app)
        assert "900 characters" in str(app.screen.query_one("#unsaved").visual)


async def test_quitting_without_saving() -> None:
    fake = source(fr.metrics(900, random.Random(0)))
    async with fr.opened(fake) as (_, pilot):
        await press(pilot, "q", "right", "enter")
        assert fake.closed == [False]


async def test_staying() -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "q", "left", "enter")
        assert fake.closed == []
        assert app.is_running


async def test_when_everything_is_saved_there_is_nothing_to_choose() -> None:
    """What is read while the question stands is saved all the same."""
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "q")
        assert [str(button.label) for button in app.screen.query("Button").results(Button)] == [
            "Quit",
            "Stay",
        ]
        await press(pilot, "enter")
        assert fake.closed == [True]


async def test_before_the_model_is_open_nothing_is_said_to_be_saved() -> None:
    async with fr.opened(fr.FakeSource()) as (app, pilot):
        await press(pilot, "q")
        told = "\n".join(str(text.visual) for text in app.screen.query("Static").results(Static))
        assert "still being opened" in told and "saved" not in told


async def test_a_dry_run_has_nothing_to_save() -> None:
    fake = fr.FakeSource(script=[fr.hello(dry_run=True)])
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "q")
        assert [button.id for button in app.screen.query("Button")] == ["discard", "stay"]
        await press(pilot, "enter")
        assert fake.closed == [False]


async def test_control_c_hints_once_and_saves_twice() -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "ctrl+c")
        assert fake.closed == []
        app.clock.now += 5
        await press(pilot, "ctrl+c")
        assert fake.closed == []
        app.clock.now -= 3600  # the clock is set back: neither the hint nor what it waits for lasts an hour
        app.tick()
        assert not app._desk.notice.display
        await press(pilot, "ctrl+c")
        assert fake.closed == []
        await press(pilot, "ctrl+c")
        assert fake.closed == [True]


async def test_control_c_leaves_from_inside_the_text_field_too() -> None:
    fake = source()
    async with fr.opened(fake) as (_, pilot):
        await press(pilot, "i", "ctrl+c", "ctrl+c")
        assert fake.closed == [True]


async def test_impatience_while_it_saves() -> None:
    fake = source()
    fake.slow_close = True
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "q", "enter")
        assert isinstance(app.screen, LeavingScreen)
        await press(pilot, "escape")
        assert isinstance(app.screen, LeavingScreen)
        await press(pilot, "ctrl+q")
        assert fake.hurried == 1


async def test_no_press_of_a_button_is_lost_because_another_came_just_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, pressed = source(), []
    fake.slow_close = True
    monkeypatch.setattr(fake, "hurry", lambda: pressed.append(1))
    async with fr.opened(fake) as (_, pilot):
        await press(pilot, "q", "enter")
        await press(pilot, "enter", "enter")
        assert len(pressed) == 2
        fake.hurried = 1


async def test_what_the_worker_does_while_it_is_left_is_told() -> None:
    fake = source()
    fake.slow_close = True
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "q", "enter")
        rung = app.screen.query_one("#rung")
        told = []
        for event in (p.Phase("running"), p.Phase("stopping"), p.Phase("saving"), p.Goodbye(saved=True)):
            app.fold(event)
            fr.settle(app)
            told.append(str(rung.visual))
        for shown, wanted in zip(told, ("step in flight", "checkpoint", "Saving", "closing"), strict=True):
            assert wanted in shown
        await press(pilot, "ctrl+q")


async def test_a_signal_leaves_at_once_and_the_worker_saves_after() -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        app.signalled(15)
        await pilot.pause()
        assert fake.closed == []
    assert app.return_code == 143
    await app.finish()
    assert fake.closed == [True]


@pytest.mark.parametrize("where", ["a handler", "the source"])
async def test_a_defect_is_a_sentence_that_names_the_log(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a widget\x1b[2J broke")

    async def run(deliver: Deliver) -> None:
        fake.live = True
        broken()

    fake = source()
    if where == "a handler":
        monkeypatch.setattr(MinagiApp, "action_units", broken)
    else:
        monkeypatch.setattr(fake, "run", run)
    app = MinagiApp(fake, Ui(), clock=fr.Clock(), logbook=Logbook(tmp_path / "app.log"))
    with pytest.raises(ValueError, match="broke"):
        async with app.run_test() as pilot:
            await pilot.pause()
            await press(pilot, "u")
    await app.finish()
    assert app.return_code == 1
    assert fake.closed == [True], "the worker saves"
    assert "\x1b" not in app.defect and "app.log" in app.defect and "\n" not in app.defect
    log = (tmp_path / "app.log").read_text()
    assert "Traceback" in log and "ValueError: a widget" in log


def test_what_textual_calls_private_was_tried_with_the_version_in_use() -> None:
    """A newer one may have renamed it: look at `tui.private` before its version is written down there."""
    assert version("textual") == private.TEXTUAL


async def test_a_recording_is_left_without_a_question() -> None:
    fake = source()
    fake.recorded = True
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "q")
        assert not app.is_running or app._exit


# ---------------------------------------------------------------------------------------- screens


async def test_help_opens_and_closes() -> None:
    async with fr.opened(source()) as (app, pilot):
        for key in ("question_mark", "f1"):
            await press(pilot, key)
            assert isinstance(app.screen, HelpScreen)
            await press(pilot, "down", "pagedown", "escape")
            assert not isinstance(app.screen, HelpScreen)


async def test_help_scrolls_to_its_ends() -> None:
    async with fr.opened(source(), size=(80, 24)) as (app, pilot):
        await press(pilot, "question_mark", "end")
        assert isinstance(app.screen, HelpScreen)
        box = app.screen._box
        assert box.scroll_y == box.max_scroll_y > 0
        await press(pilot, "home")
        assert box.scroll_y == 0
        await press(pilot, "slash", *"HELD-out  text", "enter")
        heading = app.screen.query_one(".heading", Static)
        total = int(str(heading.visual).rpartition(" of ")[2])
        assert "“HELD-out  text”: 1 of" in str(heading.visual) and total >= 2
        first = box.scroll_y
        await press(pilot, "n")
        assert f": 2 of {total}" in str(heading.visual) and box.scroll_y > first
        await press(pilot, "N", "N")  # past the first is the last
        assert f": {total} of {total}" in str(heading.visual)
        await press(pilot, "slash", *"qqq")  # letters are the field's
        hints = app.screen.query_one(".hints", Static)
        assert "enter search" in str(hints.visual) and "scroll" not in str(hints.visual)
        await press(pilot, "escape")  # it is left first
        assert isinstance(app.screen, HelpScreen) and "scroll" in str(hints.visual)
        await press(pilot, "slash", *"zz", "enter")
        assert "not found" in str(heading.visual)
        await press(pilot, "n", "escape")
        assert not isinstance(app.screen, HelpScreen)


async def test_a_checkpoint_gets_its_name() -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "S", "enter")
        assert isinstance(app.screen, NameScreen)  # a name, please
        await press(pilot, *"tea q", "enter")
        assert fake.sent == [p.Checkpoint(1, "tea q")]
        await press(pilot, "S", "escape")
        assert len(fake.sent) == 1


def snapshots() -> p.Snapshots:
    items = [
        {"id": f"s{n}", "name": "tea [b]" if n == 2 else "", "kind": "auto", "at": fr.START - 60 * n,
         "step": 900 - 100 * n, "chars": 51_200 * (9 - n), "held_out": 2.0 + n / 10, "experts": 24,
         "bytes_freed": 8_400_000}
        for n in range(1, 4)
    ]  # fmt: skip
    return p.Snapshots([*items, {"id": 7}, "junk", {}])


async def test_the_revert_picker_cancels_first_and_tells_what_is_lost() -> None:
    fake = source(fr.metrics(900, random.Random(0)))
    async with fr.opened(fake) as (app, pilot):
        await press(pilot, "r")
        assert isinstance(app.screen, RevertScreen)
        app.fold(p.Ack(1, "snapshots?"))
        app.fold(snapshots())
        fr.settle(app)
        await press(pilot, "enter")  # Cancel comes first
        assert fake.sent == [p.ListSnapshots(1)]
        await press(pilot, "r")
        app.fold(snapshots())
        fr.settle(app)
        await press(pilot, "down", "down")
        told = str(app.screen.query_one("#preview").visual)
        assert "Loses 200 steps" in told and "can be undone" in told
        app.fold(fr.metrics(1100, random.Random(0)))  # it is read on while the question stands
        fr.settle(app)
        assert "Loses 400 steps" in str(app.screen.query_one("#preview").visual)
        assert "gives back 8.40 MB" in str(app.screen.query_one("#preview").visual)
        await press(pilot, "d", "enter")  # Cancel comes first here too
        assert isinstance(app.screen, RevertScreen) and p.Delete not in map(type, fake.sent)
        await press(pilot, "d", "right", "enter")
        assert isinstance(app.screen, RevertScreen) and fake.sent[-1] == p.Delete(3, "s2")
        app.fold(replace(snapshots(), present="s1"))  # the one that is needed is not asked about
        fr.settle(app)
        await press(pilot, "up", "d")  # the choice stays with the checkpoint, whatever list comes
        assert isinstance(app.screen, RevertScreen)
        assert "once another one is saved" in str(app.screen.query_one("#preview").visual)
        await press(pilot, "down", "enter")
        assert fake.sent[-1] == p.Revert(4, "s2")
        await press(pilot, "r")
        app.fold(snapshots())
        fr.settle(app)
        await press(pilot, "down", "down", "d")
        asked = sum(isinstance(command, p.ListSnapshots) for command in fake.sent)
        app.fold(p.Saved(at=fr.START, snapshot="s9", step=1200, chars=9999))  # both stand open meanwhile
        fr.settle(app)
        fr.settle(app)
        assert isinstance(app.screen, DeleteScreen) and "step 700" in str(app.screen._text.visual)
        assert sum(isinstance(command, p.ListSnapshots) for command in fake.sent) == asked + 1
        app.fold(p.Snapshots(snapshots().items[:1]))
        fr.settle(app)
        assert "There is no checkpoint" in str(app.screen._text.visual), "it went in between"
        await press(pilot, "enter", "escape")
        many = snapshots().items[:1] * 20
        await press(pilot, "r")
        app.fold(p.Snapshots([{**item, "id": f"n{n}"} for n, item in enumerate(many)]))
        fr.settle(app)
        await pilot.resize_terminal(80, 24)
        await press(pilot, "down", "down")
        await pilot.pause()
        shown = [strip.text for strip in app.screen._compositor.render_strips()]
        assert any("d deletes it, which gives back 8.40 MB." in text for text in shown)
        chosen = app.screen.query_one(OptionList).highlighted
        assert not any("9 min ago" in text for text in shown)
        app.clock.now = fr.START + 60 * 8 + 1  # a minute after it was made is where the story begins
        app.tick()
        await pilot.pause()
        shown = [strip.text for strip in app.screen._compositor.render_strips()]
        assert any("9 min ago" in text for text in shown), "time goes by while the list is open"
        assert app.screen.query_one(OptionList).highlighted == chosen


async def test_the_revert_picker_uses_the_room_it_is_given() -> None:
    fake = source(fr.metrics(900, random.Random(0)))
    async with fr.opened(fake, size=(40, 12)) as (app, pilot):
        await press(pilot, "r")
        app.fold(snapshots())
        fr.settle(app)
        await press(pilot, "down", "down")
        options = app.screen.query_one("#snapshots", OptionList)
        assert "step" not in str(options.get_option_at_index(2).prompt)
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "step" in str(options.get_option_at_index(2).prompt)
        assert options.highlighted == 2


async def test_a_dead_worker_is_shown_with_its_last_words_and_starts_again() -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        fake.die(-9, "Out of memory [/b]", "last line")
        fr.settle(app)
        await pilot.pause()
        assert "Out of memory [/b]\nlast line" in str(app.screen.query_one("#tail").visual)
        await press(pilot, "escape")
        await press(pilot, "space")  # nobody there to pause
        assert fake.sent == []
        await press(pilot, "R")
        await pilot.pause()
        assert fake.starts == 2
        assert app.state.link == "live"


async def test_a_worker_that_takes_its_time_to_start_is_started_once() -> None:
    """And its predecessor is not mourned a second time meanwhile."""
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        fake.die(-9, "last line")
        fr.settle(app)
        await pilot.pause()
        begin, run, starts = asyncio.Event(), fake.run, 0

        async def slow(deliver: Deliver) -> None:
            nonlocal starts
            starts += 1
            await begin.wait()
            await run(deliver)

        fake.run = slow  # type: ignore[method-assign]
        await press(pilot, "R")
        fr.settle(app)
        await pilot.pause()
        assert len(app.screen_stack) == 1
        await press(pilot, "R", "R")
        begin.set()
        await pilot.pause()
        assert (starts, app.state.link) == (1, "live")


async def test_quitting_after_a_death_asks_nothing() -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        fake.die(1)
        fr.settle(app)
        await press(pilot, "escape", "q")
        assert app._exit


async def test_the_palette_reaches_every_action() -> None:
    fake = source()
    async with fr.opened(fake) as (app, pilot):
        titles = [command.title for command in app.get_system_commands(app.screen)]
        assert len(titles) == sum(key.where != "replay" for key in app.table) + 1
        await press(pilot, "ctrl+p")
        footer = app._desk.footer
        assert "esc close" in footer.draw(app.frame, footer.size)[0].plain
        await press(pilot, *"measure")
        await asyncio.sleep(0.1)
        await press(pilot, "down", "enter")
        await pilot.pause()
        assert fake.sent == [p.Evaluate(1)]
        assert "esc close" not in footer.draw(app.frame, footer.size)[0].plain


async def test_keys_can_be_remapped() -> None:
    from tui.keymap import table

    fake = source()
    app = MinagiApp(fake, Ui(), table({"pause": "w", "evaluate": "space"}), clock=fr.Clock())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await press(pilot, "w", "space")
        assert [type(command) for command in fake.sent] == [p.Pause, p.Evaluate]
        fake.over.set()


# ------------------------------------------------------------------------------------------ drawing


async def test_drawing_is_coalesced() -> None:
    async with fr.opened(source()) as (app, _):
        pane = app._desk.deck.panes["loss"]
        drawn = 0
        noise = random.Random(0)

        def count() -> None:
            nonlocal drawn
            drawn += 1

        pane.changed = count  # type: ignore[method-assign]
        for step in range(1, 401):
            app.fold(fr.metrics(step, noise))
            app.clock.now += 0.01
            app.tick()
        assert 8 <= drawn <= 14  # four seconds at three charts a second


async def test_an_idle_app_draws_nothing() -> None:
    async with fr.opened(fr.FakeSource(script=list(fr.story(30)))) as (app, pilot):
        await pilot.pause()
        refreshed: list[str] = []
        for widget in app._desk.query("*"):
            widget.refresh = lambda *_, who=widget, **__: refreshed.append(str(who.id)) or who  # type: ignore
        for _ in range(10):
            app.tick()
        assert refreshed == []


async def test_a_hidden_pane_costs_nothing() -> None:
    async with fr.opened(source(), size=(40, 12)) as (app, pilot):
        await press(pilot, "2")
        app.fold(fr.metrics(1, random.Random(0)))
        fr.settle(app)
        frame = app._desk.deck.panes["loss"].frame
        assert frame is None or frame.state is not app.state


async def test_a_resize_storm_ends_in_a_sound_screen() -> None:
    async with fr.opened(fr.FakeSource(script=list(fr.story(60)))) as (app, pilot):
        for width, height in [(200, 60), (40, 12), (1, 1), (80, 24), (7, 3), (120, 40)] * 2:
            await pilot.resize_terminal(width, height)
            fr.settle(app)
        assert all(pane.display for pane in app._desk.deck.panes.values())


async def test_diverged_and_stalled_are_told_in_words() -> None:
    noise = random.Random(0)
    lost = replace(fr.metrics(2, noise), loss=float("nan"))
    async with fr.opened(source(fr.metrics(1, noise), lost)) as (app, _):
        assert "✖ diverged" in texts(app, "loss")
        app.clock.now += 100
        app.tick()
        header = app._desk.header
        assert "stalled" in "\n".join(strip.text for strip in header.render_lines(header.size.region))


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_what_is_said_at_once_covers_nothing_and_goes_by_itself(size: tuple[int, int]) -> None:
    """Over the panes it has lines of its own; Textual's own toasts would lie on what is read or typed."""
    said = "Held-out got worse: give it more text, or go back to the best checkpoint, and then look again."
    async with fr.opened(source(), size=size) as (app, pilot):
        await press(pilot, "i", *"a word")
        app.notify(said, severity="warning")
        for _ in range(2):
            app.tick()
            await pilot.pause()
        field, notice = app.chat_pane.input, app._desk.notice
        shown = [strip.text.strip(" ▲") for strip in app.screen._compositor.render_strips()]
        assert said in " ".join(shown) and "a word" in shown[field.region.y].strip(" │┃")
        assert not notice.region.overlaps(app._desk.deck.region)
        assert all(toast.size.height == 0 for toast in app.screen.query("ToastRack"))
        app.clock.now += 60
        for _ in range(2):
            app.tick()
            await pilot.pause()
        assert not notice.display and app._desk.header.region.height == (2 if size[1] == 24 else 1)


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_what_is_said_at_once_covers_nothing_of_a_question(size: tuple[int, int]) -> None:
    long = "The model goes on from this checkpoint: save another one before it is deleted. " * 4
    async with fr.opened(source(), size=size) as (app, pilot):
        await press(pilot, "r")
        app.fold(p.Ack(1, "snapshots?"))
        app.fold(snapshots())
        app.notify(long, severity="warning")
        for _ in range(2):
            app.tick()
            await pilot.pause()
        screen = app.screen
        assert isinstance(screen, RevertScreen) and screen.notice.region.height == 3
        box, hints = screen.query_one(".dialog").region, screen.query_one(".hints").region
        assert screen.notice.region == app._desk.notice.region  # it does not stand there twice
        assert not screen.notice.region.overlaps(box) and not box.overlaps(hints)
        assert all(toast.size.height == 0 for toast in screen.query("ToastRack"))
        await press(pilot, "escape")
        assert app._desk.notice.region.height == 3 and app._desk.header.region.height == 1
        for key in ("p", "L", "ctrl+p"):  # nor of these, that are more than a question
            await press(pilot, key)
            while key == "ctrl+p" and not app.screen.has_class("-ready"):
                await pilot.pause()
            for _ in range(2):
                app.tick()
                await pilot.pause()
            over = app.screen.query_one(Notice)
            below = app.screen.query_one("#inspector, #whole-log, #--input").region
            assert over.region.height == 3 and below.y >= over.region.bottom and below.height > 2, key
            assert all(toast.size.height == 0 for toast in app.screen.query("ToastRack"))
            await press(pilot, "escape")


async def test_a_palette_that_is_not_composed_yet_is_left_alone() -> None:
    async with fr.opened(source()) as (app, _):
        bare = cast(CommandPalette, app.screen)  # on the screen, without anything of a palette's
        heed_in_palette(bare, app.frame, Notice())
        heed_in_palette(CommandPalette(), app.frame, Notice())
        assert app.is_running


async def test_bells_ring_only_out_of_sight() -> None:
    async with fr.opened(source()) as (app, _):
        rung = 0

        def ring() -> None:
            nonlocal rung
            rung += 1

        app.bell = ring  # type: ignore[method-assign]
        app.fold(fr.held_out(100))
        app.tick()
        assert rung == 0
        app.app_focus = False
        app.fold(fr.held_out(200))
        app.tick()
        app.tick()
        assert rung == 1
