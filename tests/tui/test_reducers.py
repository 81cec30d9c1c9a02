"""The reducer: whatever comes in whatever order, the state stays bounded, finite and drawable."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import fake_run as fr
from any_events import any_event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual.geometry import Size

from minagi import protocol as p
from tui.panes.base import Frame, View
from tui.panes.loss import LossPane
from tui.reducers import reduce
from tui.sanitise import clean_line
from tui.screens.quit import unsaved_words
from tui.state import (
    CHAT_LIMIT,
    LOG_LIMIT,
    AppState,
    Asked,
    NotUnderstood,
    WorkerEnded,
    WorkerStarted,
    initial,
)
from tui.status import status

NOW = fr.START


def legend(state: AppState) -> str:
    """The words over the loss chart."""
    return "\n".join(
        line.plain for line in LossPane("1").draw(Frame(state, View(charts=False), NOW), Size(200, 9))
    )


def fold(events: list[p.Message], state: AppState | None = None, now: float = NOW) -> AppState:
    state = state or initial(now, 1e6)
    for event in events:
        state = reduce(state, event, now)
    return state


# ------------------------------------------------------------------------------- anything at all


def figures(value: Any) -> list[float]:
    """Every number in a state, however deep."""
    if isinstance(value, float):
        return [value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [n for f in dataclasses.fields(value) for n in figures(getattr(value, f.name))]
    if isinstance(value, dict):
        return [n for entry in value.values() for n in figures(entry)]
    if isinstance(value, (tuple, list)):
        return [n for entry in value for n in figures(entry)]
    return []


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(any_event(), max_size=25))
def test_any_events_in_any_order_leave_a_sound_state(events: list[p.Message]) -> None:
    state = initial(NOW, 1e6)
    for event in events:
        before = state
        state = reduce(state, event, NOW)
        assert isinstance(before, AppState)  # the old value is still one: nothing is changed in place
    assert all(math.isfinite(n) for n in figures(dataclasses.replace(state, pending=())))
    assert len(state.log) <= LOG_LIMIT
    assert len(state.chat) <= CHAT_LIMIT
    for line in state.log:
        assert clean_line(line.text) == line.text
    status(state, NOW + 1)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_a_run_shuffled_and_repeated_does_no_harm(dice: random.Random, times: int) -> None:
    events = list(fr.story(60)) * times
    dice.shuffle(events)
    state = fold(events)
    xs = [bucket.x for bucket in state.curves.raw.buckets]
    assert xs == sorted(xs)


def test_a_revert_forgets_who_was_born_after_it() -> None:
    births = [p.Growth(chars=1000 * n, born=[n], sentence=f"Expert {n} was born.") for n in (1, 2, 3)]
    state = fold([*births, p.Growth(chars=4000, sentence="No growth."), p.Reverted(step=9, chars=2500)])
    assert [birth.born for birth in state.births] == [[1], [2]]
    assert state.growth is not None and state.growth.chars == 2000
    assert fold([p.Reverted(chars=500)], state).growth is None


# ------------------------------------------------------------------------------------- the story


def test_a_run_is_told_whole() -> None:
    state = fold(list(fr.story(1600)))
    assert state.link == "live"
    assert state.metrics.step == 1600
    assert [subject.name for subject in state.subjects] == list(fr.SUBJECTS)
    assert state.subjects[0].before == 5.5
    assert state.pool.counts["resident"] == fr.SLOTS
    assert state.curves.best is not None
    assert state.curves.best[0] == 1600 * fr.STEP_CHARS
    assert {mark.kind for mark in state.curves.marks} == {"saved", "born"}
    assert state.births[-1].born == [26]
    told = " ".join(line.text for line in state.log)
    assert "Saved at step 1,500" in told
    assert told.count("Expert 26 was born") == 1  # the worker's own words, and not once more
    assert any(alert.text == "Expert 26 born." and alert.bell for alert in state.alerts)


def test_equal_events_leave_the_parts_they_do_not_touch_as_they_are() -> None:
    state = fold(list(fr.story(50)))
    after = reduce(state, fr.metrics(51, random.Random(0)), NOW)
    assert after.pool is state.pool
    assert after.log is state.log
    assert after.chat is state.chat


def test_passes_over_a_small_folder_are_told_once_a_minute() -> None:
    state = initial(NOW)
    for second in range(150):
        event = p.Metrics(session_chars=9, loss=2.0, corpus_share=second / 2)
        state = reduce(state, event, NOW + second)
    assert [line.text for line in state.log] == [
        f"Pass {n} over the corpus is finished." for n in (1, 31, 61)
    ]
    assert len(state.alerts) == 3


def test_a_model_that_goes_back_on_starting_again_has_no_reading_from_later() -> None:
    state = fold([p.Hello(chars=100), p.HeldOut(chars=900, nats=2.0), p.Hello(chars=500)])
    assert state.held_out is None
    state = fold([p.Hello(chars=100), p.HeldOut(chars=400, nats=2.0), p.Hello(chars=500)])
    assert state.held_out is not None


def test_a_loss_that_is_no_number_shows_as_divergence_until_it_is_one_again() -> None:
    noise = random.Random(0)
    state = fold([fr.hello(), fr.metrics(1, noise)])
    lost = dataclasses.replace(fr.metrics(2, noise), loss=math.nan)
    state = reduce(state, lost, NOW)
    assert state.diverged
    assert state.alerts[-1].bell
    assert not reduce(state, fr.metrics(3, noise), NOW).diverged


def test_a_model_resumed_without_a_step_is_not_diverged() -> None:
    state = fold([fr.hello(step=100, chars=51_200), p.Metrics(step=100, chars=51_200)])
    assert not state.diverged


def test_reverting_takes_the_curves_back_and_leaves_a_mark() -> None:
    events = list(fr.story(1000))
    state = fold(events)
    state = reduce(state, p.Reverted(NOW, "s500", "u", 500, 500 * 512, 2.0, "asked"), NOW)
    assert state.curves.raw.end <= 500 * 512
    assert state.curves.best is not None and state.curves.best[0] <= 500 * 512
    assert state.curves.marks[-1].kind == "reverted"
    assert state.metrics.step == 500
    assert state.metrics.unsaved_chars == 0


def test_a_new_worker_goes_on_where_the_checkpoint_was() -> None:
    state = fold([*fr.story(200), WorkerEnded(-9, ("last words",), False)])
    assert state.link == "died"
    assert state.alerts[-1].bell
    state = fold([WorkerStarted(), fr.hello(fresh=False, step=100, chars=51_200)], state)
    assert state.link == "live"
    assert state.curves.raw.end <= 51_200
    assert state.ending is None


def test_a_life_before_this_start_fills_the_curves_and_what_changes_are_counted_from() -> None:
    points = [
        [100.0, 3.0, None, 100.0],
        [200.0, 2.5, 2.7, 150.0],
        [300.0, 2.4, 2.7, 150.0],
        "junk",
        [None],
        [],
    ]
    began = {"letters": {"nats": 2.0, "stderr": 0.3}, "python": {"nats": "x"}, "junk": 3}
    told = p.Past(points=[*points, [math.nan, 1e400, {}, []]], subjects=began)  # type: ignore[list-item, dict-item]
    state = fold([fr.hello(fresh=False, step=9, chars=400), fr.corpus(), told])
    assert [bucket.x for bucket in state.curves.smooth.buckets] == [100, 200, 300]
    assert [(bucket.x, bucket.last) for bucket in state.curves.held.buckets] == [(150, 2.7)]
    assert state.curves.marks[-1][:2] == (400.0, "started")
    assert state.curves.sparse, "three points are no course"
    full = p.Past([[100.0 * n, 3.0, None, None] for n in range(1, 41)], checkpoints=2)
    assert not fold([fr.hello(fresh=False, step=9, chars=9000), full]).curves.sparse
    now = {"nats": 1.0, "stderr": 0.4, "before": 1.0, "change_stderr": 0.01}
    state = fold([p.HeldOut(chars=400, nats=1.0, subjects={"letters": now, "python": now})], state)
    letters, python = (next(s for s in state.subjects if s.name == name) for name in ("letters", "python"))
    assert (letters.before, letters.noise) == (2.0, 0.5)
    assert (python.before, python.noise) == (1.0, 0.01)
    assert fold([told], state).curves is state.curves, "the app saw more of it than the history has"
    state = fold([p.Past(), p.HeldOut(chars=500, nats=1.0, subjects={"letters": now})], state)
    (letters,) = (subject for subject in state.subjects if subject.name == "letters")
    assert (letters.before, letters.noise) == (1.0, 0.01), "what is measured from now on is other text"


def test_an_end_that_was_asked_for_is_no_death() -> None:
    assert fold([fr.hello(), WorkerEnded(0, (), True)]).link == "ended"
    assert fold([fr.hello(), WorkerEnded(0, (), False)]).link == "ended"
    assert fold([fr.hello(), p.Failure("The disk is full."), WorkerEnded(1, (), False)]).link == "died"


def test_a_pass_over_the_corpus_is_told_once() -> None:
    noise = random.Random(0)
    shares = [0.99, 0.999, 1.0, 1.001, 1.5]
    events = [dataclasses.replace(fr.metrics(k + 1, noise), corpus_share=s) for k, s in enumerate(shares)]
    state = fold([fr.hello(), *events])
    assert sum("Pass 1 over the corpus" in line.text for line in state.log) == 1


# -------------------------------------------------------------------------------------- commands


def test_what_was_read_while_a_checkpoint_was_written_is_not_saved() -> None:
    read = dataclasses.replace(fr.metrics(9, random.Random(0)), chars=5_000, unsaved_chars=5_000)
    state = fold([fr.hello(), read, p.Saved(step=7, chars=3_500)])
    assert state.metrics.unsaved_chars == 1_500
    assert fold([p.Saved(step=9, chars=5_000)], state).metrics.unsaved_chars == 0


def test_commands_are_pending_until_they_are_acknowledged() -> None:
    state = fold([fr.hello(), p.Phase("running"), Asked(p.Pause(id=1))])
    assert status(state, NOW).word == "pausing…"
    state = fold([p.Phase("paused"), p.Ack(1, "pause")], state)
    assert state.pending == ()
    assert status(state, NOW).word == "paused"


def test_a_refusal_is_told_in_the_workers_words() -> None:
    state = fold([fr.hello(), Asked(p.Checkpoint(id=1)), p.Ack(1, "checkpoint", False, "This is a dry run.")])
    assert state.alerts[-1].text == "This is a dry run."
    assert state.log[-1].level == "warning"


# ------------------------------------------------------------------------------------------- log


def test_the_log_is_bounded_and_repetitions_are_counted() -> None:
    state = fold([p.Log(NOW, "info", "run", f"line {n}") for n in range(LOG_LIMIT + 50)])
    assert len(state.log) == LOG_LIMIT
    state = fold([p.Log(NOW, "info", "run", "again and again")] * 5000, state)
    assert len(state.log) == LOG_LIMIT
    assert state.log[-1].times == 5000


def test_a_flood_of_garbage_is_one_line() -> None:
    state = fold([NotUnderstood(3, "\x1b[31mwhat")] * 1000)
    assert len(state.log) == 1
    assert "3,000 lines" in state.log[0].text
    assert state.log[0].text.isprintable()


def test_leaving_without_saving_tells_where_the_model_stands_and_what_went() -> None:
    known = fold([fr.hello(fresh=False, step=4900, chars=9000), p.Goodbye("asked", False, 4980, 9900)])
    assert known.parting == (
        "Left at step 4,980; not saved: the model is back at its last checkpoint, step 4,900, "
        "and 80 steps were dropped."
    )
    known = fold([p.Saved(step=4979, chars=9890), p.Goodbye("asked", False, 4980, 9900)], known)
    assert "step 4,979, and 1 step was dropped" in known.parting
    known = fold([p.Reverted(step=100, chars=200), p.Goodbye("asked", False, 130, 260)], known)
    assert "step 100, and 30 steps were dropped" in known.parting


def test_leaving_what_was_never_saved_tells_so() -> None:
    assert "nothing was ever saved" in fold([fr.hello(), p.Goodbye("asked", False, 70, 900)]).parting
    dry = fold([fr.hello(fresh=False, step=9, dry_run=True), p.Goodbye("asked", False, 70, 900)])
    assert "dry run" in dry.parting and "back at" not in dry.parting


def test_the_quit_dialog_names_the_step_that_is_gone_back_to() -> None:
    known = fold([fr.hello(fresh=False, step=4900), p.Metrics(step=4980, unsaved_chars=800)])
    assert "Without saving, it goes back to step 4,900." in unsaved_words(Frame(known, View(), NOW))


def test_going_back_leaves_no_figure_of_a_subject_from_what_was_given_up() -> None:
    known = fold([fr.hello(), fr.corpus(), fr.held_out(100)])
    early = fr.STEP_CHARS * 100
    kept = fold([p.Reverted(step=100, chars=early)], known)
    assert all(subject.held is not None for subject in kept.subjects)
    gone = fold([fr.held_out(300), p.Reverted(step=200, chars=2 * early)], known)
    assert [subject.name for subject in gone.subjects] == list(fr.SUBJECTS)
    assert all(subject.held is None and subject.noise is None for subject in gone.subjects)
    again = fold([fr.held_out(300), fr.hello(fresh=False, step=200, chars=2 * early)], known)
    assert all(subject.held is None for subject in again.subjects)


def test_a_best_that_is_only_of_this_session_is_called_so() -> None:
    resumed = fold([fr.hello(fresh=False, step=50), fr.held_out(100, best=False)])
    assert "best since the start" in legend(resumed)
    better = fold([fr.held_out(300, best=True)], resumed)
    assert "since the start" not in legend(better)
    back = fold([p.Reverted(step=200, chars=200 * fr.STEP_CHARS)], better)
    assert "best since the start" in legend(back)


def test_the_models_own_best_is_known_from_the_start() -> None:
    early = fold([fr.hello(fresh=False, step=50, chars=25_600, best=1.5, best_step=40, best_chars=20_480)])
    assert early.curves.best == (20_480.0, 1.5) and early.curves.best_ever
    worse = fold([fr.held_out(60, best=False)], early)
    assert worse.curves.best == (20_480.0, 1.5)
    assert "since the start" not in legend(worse)
    back = fold([p.Reverted(step=30, chars=15_360, best=1.75, best_step=30, best_chars=15_360)], worse)
    assert back.curves.best == (15_360.0, 1.75)


def reading(nats: float, best: bool = False) -> p.HeldOut:
    return p.HeldOut(step=1, chars=1, nats=nats, stderr=0.01, best=best)


def test_readings_that_get_worse_in_a_row_are_told_where_one_looks() -> None:
    known = fold([fr.hello(), p.Metrics(corpus_share=3.02), reading(1.0, True), *[reading(1.02)] * 3])
    assert not [line for line in known.log if line.level == "warning"]
    known = fold([reading(1.02)], known)
    (told,) = [line.text for line in known.log if line.level == "warning"]
    assert "last 4 readings" in told and "read 3.0 times" in told
    known = reduce(known, p.Metrics(step=1, chars=1, loss=1.0), NOW)
    assert "worse for 4 readings" in legend(known)
    known = fold([reading(1.02)] * 3, known)
    assert len([line for line in known.log if line.level == "warning"]) == 1, "not at every reading"
    assert fold([reading(1.005)], known).worse == 0, "within its error of the best"
    assert fold([p.Reverted()], known).worse == 0
