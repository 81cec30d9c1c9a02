"""The inspector: bytes become characters, every one of them told of, and nothing can harm the screen."""

from __future__ import annotations

import fake_run as fr
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual import events
from textual.widgets import Static

from minagi import protocol as p
from tui.panes.typed import SENT_MAX
from tui.reducers import reduce
from tui.reducers.inspect import characters, visible
from tui.screens.inspect import InspectScreen, ProbeField, Reading, broken, digit, shade
from tui.shell import MinagiApp
from tui.state import AppState, initial


def probed(text: str | bytes, id: int = 1, rows: int = 2, **more: object) -> p.Probed:
    data = text if isinstance(text, bytes) else text.encode()
    count = len(data)
    given: dict = {
        "rows": [rows + place % 2 for place in range(count)], "nats": [None] + [0.5] * (count - 1),
        "experts": [[7, 3]] * count, "weights": [[0.75, 0.25]] * count, "raw": ["e"] * count,
        "adapted": [" "] * count,
    }  # fmt: skip
    return p.Probed(id, data.decode("latin-1"), **{**given, **more})


def seen(event: p.Probed) -> AppState:
    return reduce(initial(0.0), event, 1.0)


def test_bytes_become_characters_with_what_is_told_of_them() -> None:
    found = seen(probed("aé\n")).inspected
    assert found is not None and found.bytes == 4
    first, second, third = found.signs
    assert (first.text, first.rows, first.nats, first.experts) == ("a", 2, None, ((7, 0.75), (3, 0.25)))
    assert (second.text, second.bytes, second.rows, second.nats) == ("é", 2, 3, 1.0)
    assert (third.text, third.breaks) == ("⏎", True)
    assert (second.raw, second.adapted) == ("e", "space")


@pytest.mark.parametrize(
    ("choice", "shown"),
    [("\n", "⏎"), ("\xe3", "byte e3"), ("\xc3\xa9", "é"), ("</bot>", "</bot>"), ("\x1b", "␛"), ("", "")],
)
def test_choices_in_words(choice: str, shown: str) -> None:
    found = seen(probed("a", raw=[choice])).inspected
    assert found is not None and found.signs[0].raw == shown


@pytest.mark.parametrize(
    ("data", "spans"),
    [
        (b"\xed\xa0\x00", [("\ufffd", 0, 1), ("\ufffd", 1, 2), ("\0", 2, 3)]),
        (b"\xe3\x81a", [("\ufffd", 0, 2), ("a", 2, 3)]),
        (b"\xe3\x81\xc3\xa9", [("\ufffd", 0, 2), ("é", 2, 4)]),
    ],
)
def test_bytes_that_broke_off_take_none_of_their_neighbours(
    data: bytes, spans: list[tuple[str, int, int]]
) -> None:
    assert list(characters(data)) == spans


@given(st.binary(max_size=300))
def test_every_byte_belongs_to_one_character(data: bytes) -> None:
    spans = list(characters(data))
    assert [start for _, start, _ in spans] == [0, *[end for _, _, end in spans[:-1]]][: len(spans)]
    assert (spans[-1][2] if spans else 0) == len(data)
    assert all(cell_len(visible(text)) in (1, 2) for text, _, _ in spans)


def test_text_that_is_whole_comes_back_as_it_was() -> None:
    text = "naïve 日本語 🌱 e\u0301"
    assert "".join(sign for sign, _, _ in characters(text.encode())) == text


@given(st.binary(max_size=200), st.integers(1, 60))
def test_lines_hold_every_character_once_and_fit(data: bytes, width: int) -> None:
    found = seen(probed(data)).inspected
    assert found is not None
    lines = broken(found.signs, width)
    assert [place for start, end in lines for place in range(start, end)] == list(range(len(found.signs)))
    for start, end in lines:
        cells = sum(cell_len(sign.text) for sign in found.signs[start:end])
        assert cells <= width or end - start == 1


HOSTILE = [
    p.Probed(1, "abc"),
    p.Probed(1, "abc", [10**40, -5], ["x", float("nan")], [7, "no", [["deep"]]], [None, [float("inf")]]),  # type: ignore[list-item]
    p.Probed(1, "\u0436" * 9, rows=[1], raw=[4, None, []], adapted=["\x00" * 99]),  # type: ignore[list-item]
    p.Probed(1, "x" * 100_000, rows=[3] * 100_000),
    p.Probed(1, ""),
]


@pytest.mark.parametrize("event", HOSTILE, ids=range(len(HOSTILE)))
async def test_whatever_a_worker_answers_is_drawn(event: p.Probed) -> None:
    async with fr.opened(fr.FakeSource([fr.hello()])) as (app, pilot):
        await pilot.press("p")
        app.fold(event)
        fr.settle(app)
        await pilot.press("tab", "right", "down", "end", "pagedown", "home")
        assert app.state.inspected is not None and len(app.state.inspected.signs) <= 8192
        assert isinstance(app.screen, InspectScreen)


def drawn(app: MinagiApp) -> str:
    return "\n".join(
        strip.text
        for name in ("#reading", "#chosen-sign")
        for strip in app.screen.query_one(name).render_lines(app.screen.query_one(name).outer_size.region)
    )


async def test_a_text_is_asked_for_and_its_reading_shown() -> None:
    fake = fr.FakeSource([fr.hello(), p.Phase("running")])
    async with fr.opened(fake, size=(80, 24)) as (app, pilot):
        await pilot.press("p")
        assert isinstance(app.focused, ProbeField)
        await pilot.press(*"hi q", "ctrl+j", *"s", "enter")
        assert fake.sent == [p.Probe(1, "hi q\ns", 2.5)]
        fr.settle(app)
        assert "after the step in flight" in drawn(app)
        app.fold(probed("hi q\ns"))
        app.fold(p.Ack(1, "probe"))
        fr.settle(app)
        shown = drawn(app)
        assert "hi q⏎" in shown and "23232" in shown
        assert "‘h’ 2 of 6 rows" in shown
        assert "experts  7 75%  3 25%" in shown
        assert "raw would write ‘e’ · adapted ‘space’ · the text has ‘i’" in shown
        assert "all 6 bytes: 2.50 rows" in shown
        hints = app.screen.query_one("#probe-hints", Static)
        assert "tab reading" in str(hints.visual) and "choose" not in str(hints.visual)
        await pilot.press("tab", "right")
        fr.settle(app)
        assert "choose  tab the text" in str(hints.visual)
        assert "‘i’ 3 of 6 rows · surprise 0.72 bits" in drawn(app)
        reading = app.screen.query_one(Reading)
        await pilot.press("down", "down")
        assert reading.place == 5
        await pilot.press("up", "end")
        assert reading.place == 5
        await pilot.press("home", "enter")
        assert len(fake.sent) == 2, "enter reads it again from there too"
        await pilot.press("escape")
        assert not isinstance(app.screen, InspectScreen)


async def test_what_was_left_out_of_a_long_text_is_told() -> None:
    fake = fr.FakeSource([fr.hello(), p.Phase("running")])
    async with fr.opened(fake, size=(80, 24)) as (app, pilot):
        await pilot.press("p")
        app.screen.query_one(ProbeField).put("y" * 20_000)
        await pilot.press("enter")
        assert fake.sent == [p.Probe(1, "y" * 20_000, 2.5)], "how much is read is the worker's to say"
        app.fold(probed("y" * 256, unread=19_744))
        app.fold(p.Ack(1, "probe"))
        fr.settle(app)
        assert "only 256 of 20,000 bytes were read" in drawn(app)


async def test_what_is_too_long_to_be_sent_is_not() -> None:
    fake = fr.FakeSource([fr.hello()])
    async with fr.opened(fake) as (app, pilot):
        await pilot.press("p")
        app.screen.query_one(ProbeField).post_message(ProbeField.Given("y" * (SENT_MAX + 1)))
        await pilot.pause()
        assert fake.sent == []
        assert "can be sent at once" in list(app._notifications)[-1].message


async def test_keys_typed_ahead_keep_their_order() -> None:
    fake = fr.FakeSource([fr.hello()])
    async with fr.opened(fake) as (app, pilot):
        for key in (*"ptwx", "backspace", *"o", "enter", *"3"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        await pilot.pause()
        assert fake.sent == [p.Probe(1, "two", 2.5)]
        assert app.screen.query_one(ProbeField).text == "two3"


async def test_in_the_chat_the_key_is_a_letter() -> None:
    fake = fr.FakeSource([fr.hello()])
    async with fr.opened(fake) as (app, pilot):
        await pilot.press("i", *"pip")
        assert app.chat_pane.input.text == "pip" and len(app.screen_stack) == 1


async def test_nothing_is_asked_for_when_nothing_was_typed() -> None:
    fake = fr.FakeSource([fr.hello()])
    async with fr.opened(fake) as (_, pilot):
        await pilot.press("p", "enter")
        assert fake.sent == []


async def test_a_refusal_leaves_the_reading_before() -> None:
    fake = fr.FakeSource([fr.hello(), probed("before")])
    async with fr.opened(fake, size=(40, 12)) as (app, pilot):
        await pilot.press("p", "x", "enter")
        app.fold(p.Ack(1, "probe", False, "There is nothing to inspect: the text is empty."))
        fr.settle(app)
        await pilot.pause()
        assert "before" in drawn(app)
        hints = app.screen.query_one("#probe-hints", Static)  # on the smallest screen too
        assert hints.region.height == 1 and "enter read  tab reading  esc close" in str(hints.visual)


def test_digits_and_shades() -> None:
    assert [digit(rows) for rows in (1, 9, 10, 35, 36, 10**9)] == ["1", "9", "a", "z", "+", "+"]
    assert shade(1, 1) == shade(1, 48) == "on $primary 10%"
    assert shade(48, 48) == shade(99, 48) == "on $primary 50%"
