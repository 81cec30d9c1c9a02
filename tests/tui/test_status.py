"""One word for what the run is doing, from state and time."""

from __future__ import annotations

import random

import fake_run as fr

from minagi import protocol as p
from tui.panes.base import Frame
from tui.reducers import reduce
from tui.screens.died import obituary
from tui.state import AppState, Asked, Closing, WorkerEnded, initial
from tui.status import BUSY_LIMIT, QUIET_LIMIT, status, time_left

NOW = fr.START


def fold(*events: p.Message) -> AppState:
    state = initial(NOW)
    for event in events:
        state = reduce(state, event, NOW)
    return state


def test_words_for_every_phase() -> None:
    for phase, word in (("running", "running"), ("paused", "paused"), ("evaluating", "measuring")):
        assert status(fold(fr.hello(), p.Phase(phase)), NOW).word == word
    assert status(fold(fr.hello(), p.Phase("something new")), NOW).word == "something new"


def test_silence_is_a_stall_unless_it_is_explained() -> None:
    running = fold(fr.hello(), p.Phase("running"))
    assert status(running, NOW + QUIET_LIMIT - 1).word == "running"
    assert status(running, NOW + QUIET_LIMIT + 1).word.startswith("stalled")
    assert status(fold(fr.hello(), p.Phase("paused")), NOW + 1e6).word == "paused"
    saving = fold(fr.hello(), p.Phase("saving"))
    assert status(saving, NOW + BUSY_LIMIT - 1).word == "saving"
    assert status(saving, NOW + BUSY_LIMIT + 1).word.startswith("stalled")


def test_what_was_asked_shows_until_it_is_done() -> None:
    assert status(fold(fr.hello(), p.Phase("running"), Asked(p.Checkpoint(id=1))), NOW).word == "saving…"
    assert status(fold(fr.hello(), Closing("terminate")), NOW).word.startswith("still there")


def test_a_death_outranks_everything() -> None:
    assert status(fold(fr.hello(), Asked(p.Pause(id=1)), WorkerEnded(-9)), NOW).word == "worker died"


def test_the_time_left_of_a_pass() -> None:
    state = fold(fr.hello(), fr.corpus(), fr.metrics(1600, random.Random(0)))
    left = time_left(state)
    assert left is not None and 150 < left < 260
    assert time_left(fold(fr.hello())) is None
    assert time_left(reduce(state, WorkerEnded(0, (), True), NOW)) is None, "nothing is read any more"


def test_a_checkpoint_is_not_called_whole_when_a_file_of_it_is_bad() -> None:
    def told(status: int) -> str:
        state = fold(fr.hello(), p.Failure("Core.npz is damaged."), WorkerEnded(status, (), False))
        return obituary(Frame(state, None, NOW, NOW))  # type: ignore[arg-type]

    assert told(3) == "Core.npz is damaged."
    assert told(1).endswith("The last completed checkpoint is whole.")
