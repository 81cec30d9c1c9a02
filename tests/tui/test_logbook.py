"""The whole log is on disk, however much of it the screen has forgotten."""

from __future__ import annotations

from pathlib import Path

import fake_run as fr
import pytest

from minagi import protocol as p
from minagi.config import Ui
from tui.logbook import Logbook
from tui.reducers import reduce
from tui.reducers.log import say
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
    book.keep(told("one", "two").log)
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
