"""What the app looks like: `pytest --snapshot-update` after a change that was meant.

Pictures hold the colours: the whole screen at every size in three themes and twice without colour; every
pane and screen at every size, and at one size in the other themes. Texts hold what stands where, to be read.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable

import fake_run as fr
import pytest
from pytest_textual_snapshot import SVGImageExtension
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.color import Color
from textual.pilot import Pilot

from minagi import protocol as p
from minagi.config import Ui
from tui.keymap import PANES
from tui.reducers import reduce
from tui.screens.welcome import PACE_STEPS
from tui.shell import MinagiApp
from tui.state import AppState, Asked, initial
from tui.styles import LEAST_CONTRAST, contrast

STEPS = 1300
NOW = fr.START + STEPS * fr.STEP_SECONDS + 20
SIZES = ((40, 12), (80, 24), (120, 40), (200, 60))
THEMES = ("textual-dark", "textual-light", "ansi-dark")
SCREENS = ("welcome", "quit", "leaving", "name", "revert", "help", "died", "inspect", "palette", "whole_log")
_KEYS: dict[str, tuple[str, ...]] = {
    "quit": ("q",), "leaving": ("q", "enter"), "name": ("S",), "revert": ("r",), "help": ("question_mark",),
    "inspect": ("p",), "palette": ("ctrl+p",),
    "whole_log": ("L", "slash", *"held-out", "enter"),
}  # fmt: skip
LEAST_OF_MARKS = 2.7  # contrast of what is no text; what the light theme's own warnings have on a panel
Compare = Callable[..., bool]


class TextFile(SingleFileSnapshotExtension):
    """A snapshot that can be read."""

    _write_mode = WriteMode.TEXT
    _file_extension = "txt"


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log shows local times."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def conversation() -> list[p.Message]:
    """One answer that is whole, and one that is being written."""
    whole = fr.reply(90, "They were pruned at the end of winter, and the ground was then öpen. [b]")
    begun = list(fr.reply(91, "And then the rain of the day, and of the night"))[:5]
    first = Asked(p.Write(id=90, prompt="What did I write about the apple trees?"))
    return [first, *whole, Asked(p.Write(id=91, prompt="And then?")), *begun]


def snapshots() -> p.Snapshots:
    kinds = ("auto", "best", "final", "before-revert")
    items = [
        {"id": f"s{n}", "name": "before the [b] tea 日記" if n == 2 else "", "kind": kinds[n % 4],
         "at": NOW - 7000 * n, "step": STEPS - 100 * n, "chars": (STEPS - 100 * n) * fr.STEP_CHARS,
         "held_out": 1.8 + n / 10, "experts": 23}
        for n in range(1, 7)
    ]  # fmt: skip
    return p.Snapshots(items)


def probed() -> p.Probed:
    text = "The trees, naïve and 古い,\nstood in the rain.".encode()
    count = len(text)
    return p.Probed(
        5, text.decode("latin-1"), [1 + (place * 7) % 6 for place in range(count)],
        [None, *[0.3 + place % 5 for place in range(count - 1)]], [[3, 26, 7]] * count,
        [[0.5, 0.3, 0.2]] * count, ["e"] * count, [" "] * count,
    )  # fmt: skip


@functools.cache
def told() -> AppState:
    """The story, once for all."""
    state = initial(fr.START, 1e8)
    for event in fr.story(STEPS):
        state = reduce(state, event, NOW)
    return state


def app(theme: str = THEMES[0], first_run: bool = False) -> MinagiApp:
    source = fr.FakeSource(slow_close=True)
    made = MinagiApp(source, Ui(theme=theme), clock=fr.Clock(NOW), recent_span=1e8, first_run=first_run)
    made.animation_level = "none"
    return made


async def drawn(shown: MinagiApp, pilot: Pilot) -> None:
    for field in shown.screen.query("Input, TextArea"):
        field.cursor_blink = False  # type: ignore[attr-defined]
    for _ in range(2):
        fr.settle(shown)
        await pilot.pause()


def after(*keys: str, screen: str = "") -> Callable[[Pilot], Awaitable[None]]:
    """Once the story is told and drawn, press keys, and bring a screen up."""

    async def act(pilot: Pilot) -> None:
        await pilot.pause()
        shown = pilot.app
        assert isinstance(shown, MinagiApp) and isinstance(shown.source, fr.FakeSource)
        if screen == "welcome":
            for event in list(fr.story(PACE_STEPS)):
                shown.fold(event)
        else:
            shown.state = told()
            for event in conversation():
                shown.fold(event)
        await drawn(shown, pilot)
        if screen == "died":
            shown.source.die(-9, "Out of memory: killed process 4242", "the last line [/b]")
        for key in (*keys, *_KEYS.get(screen, ())):
            await pilot.press(key)
        for event in {"revert": [snapshots()], "inspect": [probed()]}.get(screen, []):
            shown.fold(event)
        await drawn(shown, pilot)
        if screen in ("revert", "inspect"):
            await pilot.press(*{"revert": ("down", "down"), "inspect": ("tab", "right")}[screen])
        await drawn(shown, pilot)

    return act


def picture(compare: Compare, made: MinagiApp, size: tuple[int, int], **told: object) -> None:
    keys = told.pop("keys", ())
    assert compare(made, terminal_size=size, run_before=after(*keys, **told))  # type: ignore[misc,arg-type]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_whole_screen(snap_compare: Compare, size: tuple[int, int], theme: str) -> None:
    picture(snap_compare, app(theme), size)


@pytest.mark.parametrize("size", SIZES[1:3], ids=str)
def test_the_whole_screen_without_colour(
    snap_compare: Compare, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    picture(snap_compare, app(), size)


@pytest.fixture
def text_file(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(TextFile)


@pytest.fixture
def svg_file(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SVGImageExtension)


async def resized(made: MinagiApp, pilot: Pilot, size: tuple[int, int]) -> str:
    """The text of the screen at another size."""
    await pilot.resize_terminal(*size)
    await drawn(made, pilot)
    strips = made.screen._compositor.render_strips()
    lines = [strip.text.rstrip() for strip in strips]
    assert len(lines) == size[1] and all(strip.cell_length == size[0] for strip in strips)
    return "\n".join([f"--- {size[0]}x{size[1]}", *lines])


def pale(made: MinagiApp) -> list[tuple[str, float]]:
    """Words and marks on the screen, or in the dialog on it, that hardly stand out from their ground."""
    found = []
    boxes = [box.region for box in made.screen.query(".dialog, .hints")] or [made.screen.region]
    strips = made.screen._compositor.render_strips()
    for strip in (strips[y].crop(box.x, box.right) for box in boxes for y in box.line_range):
        for text, style, _ in strip:
            told = [sign for sign in text if sign.isalnum() or sign in "●◐○✶◌◆★▲▼▸›+-" or sign > "⠀"]
            if not told or style is None or style.color is None or style.bgcolor is None:
                continue
            ratio = contrast(Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor))
            if ratio < (LEAST_CONTRAST if any(sign.isalnum() for sign in text) else LEAST_OF_MARKS):
                found.append((text, round(ratio, 1)))
    return found


@pytest.mark.parametrize("what", [*PANES, *SCREENS])
async def test_everywhere(text_file: SnapshotAssertion, svg_file: SnapshotAssertion, what: str) -> None:
    """At each size, in every theme: one app that is resized, and told to take another theme."""
    made = app(first_run=what == "welcome")
    texts: list[str] = []
    pictures: dict[str, str] = {}
    async with made.run_test(size=SIZES[0]) as pilot:
        keys = (str(PANES.index(what) + 1), "f") if what in PANES else ()
        await after(*keys, screen="" if what in PANES else what)(pilot)
        for size in SIZES:
            texts.append(await resized(made, pilot, size))
            pictures["{}x{}".format(*size)] = made.export_screenshot()
        assert what == "palette" or not pale(made)  # which is Textual's own
        await resized(made, pilot, SIZES[1])
        for theme in THEMES[1:]:
            again = _KEYS["palette"] if what == "palette" else ()
            await pilot.press(*("escape" for _ in again))
            made.theme = theme
            await pilot.press(*again)
            await drawn(made, pilot)
            pictures[theme] = made.export_screenshot()
            assert what == "palette" or theme != "textual-light" or not pale(made)
        assert isinstance(made.source, fr.FakeSource)
        made.source.hurry()
        made.source.over.set()
    assert "\n".join(texts) + "\n" == text_file
    changed = [name for name, shot in pictures.items() if shot != svg_file(name=name)]
    assert not changed
