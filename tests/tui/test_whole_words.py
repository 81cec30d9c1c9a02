"""Nothing on the screen ends in the middle of a word: what finds no room is wrapped, shorter, or left out."""

from __future__ import annotations

import re
from dataclasses import replace

import fake_run as fr
import pytest
from test_drawing import KINDS
from textual.content import Content
from textual.geometry import Size

from minagi import protocol as p
from tui import layout
from tui.deck import LOW
from tui.keymap import PANES, TABLE
from tui.panes.base import Drawn, Frame, Pane, View, wrapped
from tui.panes.chat import ChatStatus
from tui.panes.footer import Footer
from tui.panes.header import Header
from tui.panes.pool import PoolPane
from tui.recording import Playing
from tui.reducers import reduce
from tui.screens.dialog import Dialog, hint_line
from tui.screens.help import help_text
from tui.state import AppState, WorkerEnded, initial

SIZES = ((40, 12), (80, 24), (120, 40), (200, 60))
NAMES = ("garden notes", "letters", "python", "日記")  # of the user's, cut with an ellipsis
WIDE = Size(400, 90)
REASON = (
    "More experts would only learn by heart: held-out loss is 0.43 bits above train loss, and growth.max_gap "
    "allows 0.29 (0.2 nats)."
)


def states() -> list[AppState]:
    """Runs that have much to say, in every pane."""
    state = initial(fr.START, 1e6)
    for event in fr.story(1300):
        state = reduce(state, event, fr.START)
    known = p.HeldOut(chars=1, nats=2.0, elsewhere={"python": {"nats": 3.0, "stderr": 0.1, "before": 2.0}})
    again = replace(state, worse=16, diverged=True, births=(), reverts=(1,))
    for event in (
        p.Growth(fr.START, 1300, 665_600, [], [], REASON, 999_999),
        p.Window(1300, 665_600, 321, 512, -0.00214, 0.015, 700_000, "It stays at its ceiling."),
        known, p.Reverted("s1", 900, 460_800, 2.2, "the loss was not finite"),
    ):  # fmt: skip
        again = reduce(again, event, fr.START)
    again = replace(again, curves=replace(again.curves, sparse=True))
    return [state, again, reduce(state, WorkerEnded(0, (), True), fr.START), initial(fr.START)]


def sizes(pane: str) -> set[tuple[int, int]]:
    """The insides of a pane that occur on screens of the four sizes."""
    found = set()
    for width, height in SIZES:
        lines = height - (2 if height < LOW else 3) - (1 if width < layout.WIDE and height >= LOW else 0)
        for chosen in PANES:
            for whole in (False, True):
                region = layout.arrange(width, lines, chosen, whole).get(pane)
                if region is not None:
                    found.add((max(1, region.width - 4), max(1, region.height - 2)))
    return found


def tokens(text: str) -> list[str]:
    """The words of a text, and those that an ellipsis of its own stands behind."""
    return re.findall(r"[A-Za-z]{2,}|\w+…", text) + re.findall(r"\w+…", text)


def cut(lines: list[str], known: set[str]) -> list[str]:
    """The lines in which a word is only the beginning of one that is known, or is broken by an ellipsis."""
    found = []
    for text in lines:
        bare = text
        for name in NAMES:
            bare = re.sub("|".join(re.escape(name[:n]) + "…" for n in range(2, len(name))), "", bare)
        broken = set(re.findall(r"\w+…", bare)) - known
        parts = [t for t in tokens(bare) if t not in known and any(word.startswith(t) for word in known)]
        found += [text] if broken or parts else []
    return found


def pane_of(kind: type[Pane], frame: Frame) -> Pane:
    pane = kind("1")
    pane.frame = frame
    if isinstance(pane, PoolPane):
        pane.select(0, 0)
    return pane


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.NAME)
def test_no_pane_cuts_a_word(kind: type[Pane]) -> None:
    for state in states():
        for view in (View(), View(bits=False, axes="log-log", recent=True)):
            pane = pane_of(kind, Frame(state, view, fr.START + 130))
            assert pane.frame is not None
            whole = [line.plain for line in pane.draw(pane.frame, WIDE)]
            known = {t for text in [*whole, pane.subtitle(pane.frame, WIDE), _MORE] for t in tokens(text)}
            for width, height in sizes(kind.NAME):
                lines = [line.plain for line in pane.draw(pane.frame, Size(width, height))]
                assert all(Content(text.rstrip()).cell_length <= width for text in lines), (width, height)
                edge = pane.subtitle(pane.frame, Size(width, height))
                assert Content(edge).cell_length <= width, edge
                assert not cut([*lines, edge], known), (width, height)


_MORE = "known not read now needs free to repeat itself adapted raw train held out best saved born"


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_no_bar_cuts_a_word(size: tuple[int, int]) -> None:
    """Header, footer, the line over the chat's field, and the keys of the dialogs."""
    for state in states():
        for playing in (None, Playing(70.0, 700.0, 4.0, False)):
            frame = Frame(state, View(), fr.START + 130, playing=playing)
            bars: list[Drawn] = [Header("header"), Footer(TABLE), ChatStatus("chat-status")]
            for bar in bars:
                known = {t for line in bar.draw(frame, WIDE) for t in tokens(line.plain)}
                lines = [line.plain for line in bar.draw(frame, Size(size[0], 2))]
                assert not cut(lines, known | set(tokens(_MORE))) and all(
                    Content(text.rstrip()).cell_length <= size[0] for text in lines
                )
    for dialog in Dialog.__subclasses__():
        known = {t for hint in dialog.hints for told in hint for t in tokens(told)}
        assert not cut([hint_line(dialog.hints, size[0]).plain], known), dialog


def test_help_is_whole_at_any_width() -> None:
    known = set(tokens(help_text(TABLE, 200).plain))
    for width in (31, 70, 79):
        lines = help_text(TABLE, width).plain.split("\n")
        assert not cut(lines, known)
        assert {t for line in lines for t in tokens(line)} == known


def test_the_reason_of_the_pools_size_is_whole_on_a_small_screen() -> None:
    state = states()[0]
    for reason in (REASON, "No growth: 2 experts are in their trial, 2 at most at a time."):
        again = reduce(state, p.Growth(fr.START, 1, 1, [], [], reason, 999_999), fr.START)
        pane = PoolPane("1")
        pane.frame = Frame(again, View(), fr.START)
        text = " ".join(line.plain for line in pane.draw(pane.frame, Size(36, 7)))
        assert reason in " ".join(text.split())


def test_a_text_with_too_little_room_ends_behind_a_word() -> None:
    assert [line.plain for line in wrapped("one three fifteen", 10, most=1)] == ["one three"[:3] + " …"]
