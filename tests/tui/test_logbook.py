"""The whole log is on disk, however much of it the screen has forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import fake_run as fr
import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from minagi import protocol as p
from minagi.config import Ui
from tui.logbook import Logbook, Pages
from tui.reducers import reduce
from tui.reducers.log import say
from tui.screens.logs import LogLines, LogScreen
from tui.shell import MinagiApp
from tui.state import LOG_LIMIT, AppState, initial


def told(*texts: str, state: AppState | None = None) -> AppState:
    state = state or initial(0.0)
    for text in texts:
        state = say(state, 1e9, "pool", text)
    return state


def test_every_line_is_kept_once(tmp_path: Path) -> None:
    book = Logbook(tmp_path / "log" / "app.log")
    state = initial(0.0)
    for round in range(3):
        state = told(*[f"line {round} {n}" for n in range(LOG_LIMIT // 2)], state=state)
        book.keep(state.log)
        book.keep(state.log)
    book.close()
    lines = book.path.read_text().splitlines()
    assert len(lines) == 3 * (LOG_LIMIT // 2) > len(state.log)
    assert lines[0].endswith("info    pool       Line 0 0.")


def test_repetitions_are_counted_not_written(tmp_path: Path) -> None:
    book = Logbook(tmp_path / "app.log")
    state = initial(0.0)
    for _ in range(50):
        state = told("again", state=state)
        book.keep(state.log)
    state = told("another", state=state)
    book.keep(state.log)
    book.close()
    again, times, another = book.path.read_text().splitlines()
    assert "Again." in again and "Another." in another
    assert times.strip() == "the same, 50 times in a row"


def test_hostile_text_and_times_stay_one_line(tmp_path: Path) -> None:
    book = Logbook(tmp_path / "app.log")
    for at in (-1e300, 1e300, 0.0):
        state = reduce(initial(0.0), p.Log(at, "no level", "\x1b]0;x", "a\nb\x1b[2J\ud800"), 0.0)
        book = Logbook(tmp_path / "app.log")
        book.keep(state.log)
        book.close()
    lines = book.path.read_text().splitlines()
    assert len(lines) == 3
    assert not any("\x1b" in line for line in lines)


def test_a_disk_that_is_full_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Logbook(tmp_path / "app.log")
    assert book._file is not None

    def full(text: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        book, "_file", type("Full", (), {"write": staticmethod(full), "close": lambda _: None})()
    )
    monkeypatch.setattr(Logbook, "put_aside", False)
    book.keep(told("one", "two").log)
    assert book.kept == ""
    book.close()


def test_a_folder_that_is_closed_to_us_by_now_keeps_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(13, "permission denied", str(path))

    book = Logbook(tmp_path / "app.log")
    monkeypatch.setattr(Path, "is_file", closed)
    assert book.kept == ""
    book.close()


def test_a_log_that_another_app_put_aside_is_gone_on_with_under_its_name(tmp_path: Path) -> None:
    book, pages = Logbook(tmp_path / "app.log"), Pages(str(tmp_path / "app.log"))
    state = told("one")
    book.keep(state.log)
    assert len(pages.read_on()) == 1
    state = told("two", state=state)
    book.keep(state.log)
    book.path.replace(tmp_path / "app.log.1")
    (tmp_path / "app.log").write_text("of the other app\n")
    state = told("three", state=state)
    book.keep(state.log)
    two, other, three = pages.read_on()
    assert "Two." in two and other == "of the other app" and "Three." in three
    book.path.unlink()
    book.keep(told("four", state=state).log)
    assert "Four." in pages.read_on()[0] and book.kept
    book.close()


def test_a_place_that_cannot_be_written_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    book = Logbook(tmp_path / "file" / "app.log")
    book.keep(told("one").log)
    book.close()
    assert book.path != tmp_path / "file" / "app.log"


async def test_the_app_keeps_it_and_the_pane_says_where(tmp_path: Path) -> None:
    book = Logbook(tmp_path / "app.log")
    fake = fr.FakeSource([fr.hello(), p.Log(fr.START, "info", "pool", "Expert 26 was born.")])
    app = MinagiApp(fake, Ui(), clock=fr.Clock(), logbook=book)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("l", "f")
        fr.settle(app)
        assert str(book.path) in str(app._desk.deck.panes["log"].border_subtitle) or len(str(book.path)) > 90
        fake.over.set()
    await app.finish()
    assert "Expert 26 was born." in book.path.read_text()


# ----------------------------------------------------------------------------------- the whole of it


def shown(app: MinagiApp) -> str:
    lines = app.screen.query_one(LogLines)
    return "\n".join(strip.text for strip in lines.render_lines(lines.outer_size.region))


def place(app: MinagiApp) -> str:
    return str(app.screen.query_one("#log-place", Static).visual)


@asynccontextmanager
async def whole_log(path: Path) -> AsyncIterator[tuple[MinagiApp, Pilot]]:
    """The app with its log opened; the file has more than the app remembers."""
    path.write_text(
        "".join(f"line {n} of yesterday{' with a NEEDLE' * (n % 400 == 0)}\n" for n in range(2000))
    )
    fake = fr.FakeSource([fr.hello()])
    app = MinagiApp(fake, Ui(), clock=fr.Clock(), logbook=Logbook(path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        fr.settle(app)
        await pilot.press("L")
        fr.settle(app)
        yield app, pilot
        fake.over.set()


async def test_the_whole_log_opens_at_its_end_and_follows(tmp_path: Path) -> None:
    async with whole_log(tmp_path / "app.log") as (app, pilot):
        assert "A new model" in shown(app) and "line 1999 of yesterday" in shown(app)
        app.fold(p.Log(fr.START, "info", "pool", "Expert 26 was born."))
        for _ in range(2):
            fr.settle(app)
        assert "Expert 26 was born." in shown(app)
        await pilot.press("home")
        app.fold(p.Log(fr.START, "info", "pool", "Expert 27 was born."))
        for _ in range(2):
            fr.settle(app)
        lines = shown(app).splitlines()
        assert lines[0].strip() == "line 0 of yesterday with a NEEDLE", "it stays where it was put"
        assert lines[-1].strip() == f"line {len(lines) - 1} of yesterday", "and fills the screen"
        await pilot.press("down")
        assert shown(app).startswith("line 1 of")
        await pilot.press("pagedown", "pageup", "down", "end")
        assert "Expert 27" in shown(app)
        await pilot.press("q")
        assert not isinstance(app.screen, LogScreen) and app.is_running


async def test_the_whole_log_is_searched_from_its_end_back(tmp_path: Path) -> None:
    async with whole_log(tmp_path / "app.log") as (app, pilot):
        await pilot.press("slash", *"a needle", "enter")
        assert "line 1600 of" in shown(app) and "found in 5, this is 5" in place(app)
        await pilot.press("n")
        assert "line 1200 of" in shown(app)
        await pilot.press("n", "N", "N", "N")
        assert "line 0 of" in shown(app), "past the last it begins anew"
        await pilot.press("slash", "ctrl+u", *"(no such", "enter")
        assert "nothing found" in place(app)
        hints = app.screen.query_one("#log-hints", Static)
        await pilot.press("slash")
        assert "enter search" in str(hints.visual) and "older" not in str(hints.visual)
        await pilot.press("escape")
        assert isinstance(app.screen, LogScreen), "esc leaves the field first"
        assert "n older" in str(hints.visual)
        await pilot.press("escape")
        assert not isinstance(app.screen, LogScreen)
        await pilot.press("8", "slash", *"a needle", "enter")
        assert "line 1600 of" in shown(app), "in the pane the key searches too"
        await pilot.press("escape", "7", "slash")
        assert app.typing and app.chat_pane.input.text == "/", "elsewhere it begins a command"


async def test_without_a_file_what_is_known_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.logbook.open_log", lambda _: Path("/dev/null"))
    app = MinagiApp(
        fr.FakeSource([fr.hello(), p.Log(fr.START, "info", "pool", "It was born.")]),
        Ui(), clock=fr.Clock(), logbook=Logbook(Path("nowhere")),
    )  # fmt: skip
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("slash", *"log", "enter")
        fr.settle(app)
        await pilot.press("slash", *"BORN", "enter")
        assert "It was born." in shown(app) and "found in 1, this is 1" in place(app)
        assert "no file keeps it" in str(app.screen.query_one(".heading", Static).visual)
        app.source.over.set()  # type: ignore[attr-defined]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    pages = Pages(str(path))
    assert pages.read_on() == []
    path.write_bytes(b"one\nna\xc3")
    assert pages.read_on() == ["one"]
    with path.open("ab") as file:
        file.write(b"\xafve\x1b[2J\n\n")
    assert pages.read_on() == ["na\u00efve[2J", ""]
    assert pages.read_on() == []
