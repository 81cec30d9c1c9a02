"""Whatever there is to draw is drawn, at any size; nothing of it steers the terminal or grows for ever."""

from __future__ import annotations

import random
from dataclasses import replace

import fake_run as fr
import pytest
from any_events import any_event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual.geometry import Size

from minagi import protocol as p
from minagi.steering import CONTROLS
from tui.keymap import TABLE
from tui.panes.base import Drawn, Frame, Pane, View
from tui.panes.depth import DepthPane
from tui.panes.footer import Footer, Strip
from tui.panes.header import Header
from tui.panes.log import TOPICS, LogPane
from tui.panes.loss import LossPane
from tui.panes.memory import MemoryPane
from tui.panes.pool import PoolPane
from tui.panes.subjects import SubjectsPane
from tui.panes.window import WindowPane
from tui.recording import Playing
from tui.reducers import reduce
from tui.screens.inspect import Chosen, Reading
from tui.screens.quit import unsaved_words
from tui.screens.revert import preview
from tui.screens.welcome import overview
from tui.series import CAPACITY
from tui.state import (
    CHAT_LIMIT,
    LOG_LIMIT,
    PENDING_LIMIT,
    SUBJECT_LIMIT,
    Asked,
    NotUnderstood,
    Snapshot,
    initial,
)

KINDS: tuple[type[Pane], ...] = (
    LossPane, MemoryPane, PoolPane, WindowPane, DepthPane, SubjectsPane, LogPane
)  # fmt: skip
SIZES = ((36, 3), (38, 9), (76, 18), (116, 36), (196, 54), (1, 1), (9, 2))
VIEWS = st.builds(
    View, bits=st.booleans(), charts=st.booleans(), axes=st.sampled_from(["plain", "log", "log-log"]),
    recent=st.booleans(), log_filter=st.sampled_from(TOPICS),
)  # fmt: skip


def drawables() -> list[Drawn]:
    return [
        *(kind(str(number)) for number, kind in enumerate(KINDS, 1)),
        Header("header"), Strip(TABLE), Footer(TABLE), Reading(), Chosen(),
    ]  # fmt: skip


def draw_all(frame: Frame, size: tuple[int, int]) -> None:
    for widget in drawables():
        widget.frame = frame
        widget.part(frame)
        if isinstance(widget, Pane):
            assert not set(map(ord, widget.subtitle(frame, Size(*size)))) & set(CONTROLS)
        for line in widget.draw(frame, Size(*size)):
            assert not set(map(ord, line.plain)) & set(CONTROLS), (widget.id, line.plain)
    for snapshot in (frame.state.snapshots or ())[:3]:
        preview(snapshot, frame)
    overview(frame.state)
    unsaved_words(frame)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(any_event(), max_size=20), st.integers(0, 40), VIEWS, st.sampled_from(SIZES),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)  # fmt: skip
def test_any_state_can_be_drawn(
    events: list[p.Message], told: int, view: View, size: tuple[int, int], now: float
) -> None:
    state = initial(fr.START, 1e6)
    for event in [*list(fr.story(20))[:told], *events]:
        state = reduce(state, event, fr.START)
    playing = Playing(now, None, 4.0, told % 2 == 0) if told % 3 == 0 else None
    draw_all(Frame(state, view, now, now, playing, "/somewhere/app.log"), size)


@pytest.mark.parametrize("size", SIZES)
def test_a_whole_run_can_be_drawn_at_every_size(size: tuple[int, int]) -> None:
    state = initial(fr.START, 1e6)
    for event in fr.story(700):
        state = reduce(state, event, fr.START)
    state = replace(state, snapshots=(Snapshot("s", "n", "auto", fr.START, 1, 512, 2.0, 24, 0),))
    for axes in ("plain", "log", "log-log"):
        draw_all(Frame(state, View(axes=axes), fr.START + 71), size)


# -------------------------------------------------------------------------------------- three days

ROUNDS = 10 * 72  # every six minutes of three days, which is more often than any list is long
MOST = 90_000  # values: a dozen curves of 600 points, a thousand lines, 100 exchanges, 500 subjects


def weight(value: object) -> int:
    """How many values a state holds, however deep; a long text counts for its length."""
    if isinstance(value, (str, bytes)):
        return 1 + len(value) // 64
    if isinstance(value, dict):
        return 1 + sum(weight(entry) for entry in value.values())
    if isinstance(value, (tuple, list)):
        return 1 + sum(weight(entry) for entry in value)
    if hasattr(value, "__dataclass_fields__"):
        return 1 + sum(weight(getattr(value, name)) for name in value.__dataclass_fields__)
    return 1


def a_round(number: int, noise: random.Random) -> list[p.Message]:
    """Every kind of event once, each time about something new."""
    step = number * 3600
    now, chars = fr.START + step * fr.STEP_SECONDS, step * fr.STEP_CHARS
    return [
        fr.metrics(step, noise), fr.pool(step, noise), fr.held_out(step, best=number % 9 == 0),
        p.Memory(now, "process", step, step, 4 << 30, 9, 9, 9), p.Rate(step, 1.0, 1.0, "It stays."),
        p.Window(step, chars, 300, 512, 0.01, 0.015, chars + 9, "It stays."),
        p.Growth(now, step, chars, [number], [number - 9], "One was born.", chars + 9),
        p.Subjects({f"folder {number}": {"chars": step, "loss": 2.0}}),
        p.Saved(now, f"s{step}", "", "auto", step, chars, 2.0, 0.2, 9), p.Probed(step, "a text", [1] * 6),
        p.Log(now, "info", "pool", f"Something happened at {step}."),
        p.Snapshots([{"id": f"s{number}-{n}", "step": n} for n in range(9 if number % 99 else 900)]),
        Asked(p.Write(id=number, prompt="so many words " * 99)), *fr.reply(number, "words " * 20),
        NotUnderstood(1, f"garbage {number}"), Asked(p.Evaluate(id=-number)),
    ]  # fmt: skip


def test_three_days_are_bounded() -> None:
    noise = random.Random(1)
    state = initial(fr.START, 1e8)
    for number in range(1, ROUNDS + 1):
        for event in a_round(number, noise):
            state = reduce(state, event, fr.START + number * 360)
    assert len(state.log) == LOG_LIMIT and len(state.subjects) == SUBJECT_LIMIT
    assert len(state.chat) <= CHAT_LIMIT and len(state.pending) <= PENDING_LIMIT
    assert len(state.curves.raw.buckets) <= CAPACITY
    assert weight(state) <= MOST
