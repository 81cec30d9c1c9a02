"""The trainer as a state machine: what one step does, and when everything else is due."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import CHUNK, NEVER, Home, drive, everything, losses, notes, of, prose, same_numbers

from minagi import protocol
from minagi.errors import MinagiError, UsageError, WeightsError
from minagi.protocol import Message
from minagi.text.lanes import WindowOfText
from minagi.text.watch import CorpusWatcher
from minagi.training import measuring
from minagi.training.evaluate import Measured, Score
from minagi.training.session import Session
from minagi.training.stepping import Step
from minagi.weights import commit


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def session(home: Home) -> Iterator[Session]:
    """A newborn that saves."""
    opened = home.open()
    yield opened
    opened.close()


def test_a_step_tells_one_pulse_and_counts(session: Session) -> None:
    chars = 0
    for count in range(1, 8):
        (pulse,) = of(protocol.Metrics, session.step())
        chars = pulse.chars
        assert pulse.step == session.steps == count
        assert pulse.chars == session.chars == pulse.session_chars == pulse.unsaved_chars
        assert pulse.loss > 0 and pulse.grad_norm > 0 and 1 <= pulse.rows <= 3
        assert pulse.lr == pytest.approx(0.01 * count / 100)  # warming up
        assert pulse.subject in ("letters", "logbook")
        assert pulse.context == CHUNK
    assert 0 < chars <= 7 * CHUNK
    assert session.progress.nats > 0


def test_depth_is_drawn_anew_for_every_step(session: Session) -> None:
    told = of(protocol.Metrics, drive(session, 12))
    assert {pulse.rows_run for pulse in told} == {1, 2, 3}


def test_it_learns(session: Session) -> None:
    told = losses(drive(session, 50))
    assert sum(told[-10:]) / 10 < sum(told[:10]) / 10 - 1


def test_greeting(home: Home, session: Session) -> None:
    said = list(session.greet())
    assert isinstance(said[0], protocol.Hello) and said[0].fresh and not said[0].dry_run
    assert said[0].experts == 7 and said[0].resident == 4 and said[0].context == CHUNK
    (found,) = of(protocol.CorpusFound, said)
    assert [subject["name"] for subject in found.subjects] == ["letters", "logbook"]
    assert of(protocol.Pool, said) and of(protocol.Memory, said) and of(protocol.Window, said)
    assert not of(protocol.HeldOut, said)  # a newborn knows nothing to measure


def test_a_resumed_model_measures_first_and_then_steps(home: Home) -> None:
    home.made(3)
    again = home.open()
    (past,) = of(protocol.Past, again.greet())
    assert len([point for point in past.points if point[1] is not None]) == 3, (
        "a point a step, not a checkpoint"
    )
    said = []
    while not of(protocol.Metrics, said):
        said += again.step()
    kinds = [type(message) for message in said if isinstance(message, (protocol.HeldOut, protocol.Metrics))]
    assert kinds == [protocol.HeldOut, protocol.Metrics]
    again.close()


# ------------------------------------------------------------------------------------------- cadences


def test_readings_come_early_and_double(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FIRST_READING", 50)
    session = home.open({"training.eval_every_chars": 250, "data.eval_chars": 64})
    at = [event.chars for event in of(protocol.HeldOut, drive(session, 40))]
    session.close()
    assert 50 <= at[0] < 50 + 2 * CHUNK
    for before, now in itertools.pairwise(at):
        assert min(2 * before, before + 250) <= now < min(2 * before, before + 250) + 2 * CHUNK, at
    assert len(at) >= 4


@pytest.mark.parametrize("chunk", [8, CHUNK])
def test_another_chunk_moves_no_cadence(home: Home, chunk: int) -> None:
    """Growth of the pool, held-out readings, and growth of the window are all due by characters."""
    changes = {
        "training.chunk": chunk, "growth.every_chars": 140, "growth.k": 0, "training.eval_every_chars": 300,
        "data.eval_chars": 64, "model.context_every_chars": 200, "model.context_grow_every_chars": 250,
        "model.context_gain_min": -100.0, "data.passage": 64,
    }  # fmt: skip
    session = home.open(changes)
    said: list[Message] = []
    while session.chars < 950:
        said += session.step()
    session.close()
    for kind, every in ((protocol.Growth, 140), (protocol.HeldOut, 300)):
        told = of(kind, said)
        assert len(told) == 950 // every
        for number, event in enumerate(told, 1):
            assert every * number <= event.chars < every * number + 3 * CHUNK
    assert "growth.k is 0" in of(protocol.Growth, said)[0].sentence
    assert session.window.context == CHUNK + 950 // 250


def test_a_step_is_never_more_than_a_step(home: Home) -> None:
    """Measuring comes in slices of its own, so that a command waits for one step at most."""
    session = home.open({"training.eval_every_chars": 100, "data.eval_chars": 256})
    for _ in range(24):
        said = list(session.step())
        assert len(of(protocol.Metrics, said)) <= 1
        assert not (of(protocol.Metrics, said) and of(protocol.HeldOut, said))
    session.close()


def test_figures_come_at_most_twice_a_second(home: Home) -> None:
    session = home.open()
    now = [0.0]
    session._clock = lambda: now[0]
    session._figures_at = -math.inf
    counts = []
    for at in (0.0, 0.2, 0.4, 0.6, 0.8, 1.2):
        now[0] = at
        counts.append(len(of(protocol.Pool, session.step())))
    assert counts == [1, 0, 0, 1, 0, 1]
    session.close()


def test_growth_and_pruning_are_told_and_saved_at_once(home: Home) -> None:
    changes = {
        "growth.every_chars": 240, "growth.max_gap": 0, "growth.dying_frac_max": 1.0,
        "growth.keep_ratio_min": 0.0, "growth.max_disk_gb": 0, "growth.k": 2, "prune.survival_chars": 480,
    }  # fmt: skip
    session = home.open(changes)
    said = [*drive(session, 75), *session.checkpoints.finish()]
    decisions = of(protocol.Growth, said)
    saved = [event.step for event in of(protocol.Saved, said)]
    assert saved == [event.step for event in decisions if event.born or event.pruned]
    assert any(event.born for event in decisions) and any(event.pruned for event in decisions)
    for place, message in enumerate(said):
        if isinstance(message, protocol.Growth):
            rest = said[place:]
            until = next((i for i, m in enumerate(rest) if isinstance(m, protocol.Metrics)), len(rest))
            assert message.sentence in [log.text for log in of(protocol.Log, rest[:until])]
    uids = session.engine.pool.telemetry.uid
    born = [uid for event in decisions for uid in event.born]
    assert len(born) == len(set(born)) and min(born) == 7, "a name is given once"
    session.close()
    again = home.open(changes)
    assert again.engine.pool.telemetry.uid == uids
    drive(again, 5)
    again.close()


def test_the_window_grows_by_evidence(home: Home) -> None:
    session = home.open(
        {
            "model.context_every_chars": 200, "model.context_grow_every_chars": 100,
            "model.context_gain_min": -100.0, "model.context_step": 10, "model.context_end": 40,
        }
    )  # fmt: skip
    said = drive(session, 36)
    sizes = [event.context for event in of(protocol.Window, said)]
    assert sizes == sorted(sizes) and session.window.context == 40
    assert max(pulse.context for pulse in of(protocol.Metrics, said)) == 40
    assert any("ceiling" in log.text or "grew" in log.text for log in of(protocol.Log, said))
    session.close()


def test_grad_signal_is_shown_after_eight_readings(session: Session) -> None:
    told = [pulse.signal for pulse in of(protocol.Metrics, drive(session, 66))]
    assert told[40] is None and told[-1] is not None and 0 <= told[-1] <= 1


# -------------------------------------------------------------------------------- talking in between


def ask(session: Session) -> None:
    write = protocol.Write(id=1, prompt="What did the letters say?", chars=5)
    list(session.reply(write))
    list(session.reply(protocol.Write(id=2, prompt="Abc", chars=3, chat=False, raw=True)))
    session.probe(protocol.Probe(id=3, text="Whose letters?"))
    cancelled = session.reply(protocol.Write(id=4, prompt="Stop", chars=50))
    next(cancelled), next(cancelled)
    cancelled.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_replies_and_probes_leave_the_losses_as_they_were(home: Home, temperature: float) -> None:
    """To the bit: what a conversation pages in and out shows in no number."""
    changes = {"pool.select_temperature": temperature}
    quiet, talked = home.open(changes), home.open(changes, weights=home.root / "other")
    expected = losses(drive(quiet, 15))
    told = losses(drive(talked, 15, between=lambda step: ask(talked) if step % 3 == 0 else None))
    assert told == expected
    same_numbers(everything(talked), everything(quiet))
    quiet.close()
    talked.close()


def test_measuring_leaves_the_losses_as_they_were(home: Home) -> None:
    quiet, measured = home.open(), home.open(weights=home.root / "other")
    expected = losses(drive(quiet, 12))
    between = lambda step: list(measured.evaluate()) if step == 6 else None  # noqa: E731
    assert losses(drive(measured, 12, between)) == expected
    quiet.close()
    measured.close()


def test_settings_that_can_change_while_running(session: Session) -> None:
    session.rate.halve()
    assert "full value" in session.set("rate_reset", True)
    assert session.rate.factor == 1
    with pytest.raises(UsageError, match="d_model cannot be changed while running"):
        session.set("d_model", 3)


# ------------------------------------------------------------------------------------ broken numbers


def break_weights(session: Session) -> torch.Tensor:
    weight = session.engine.net.prelude[0].ln1.weight
    kept = weight.detach().clone()
    weight.data.fill_(math.nan)
    return kept


def test_a_step_that_is_not_finite_is_skipped_and_counted(session: Session) -> None:
    drive(session, 4)
    kept = break_weights(session)
    steps, chars = session.steps, session.chars
    said = list(session.step())
    session.engine.net.prelude[0].ln1.weight.data.copy_(kept)
    (pulse,) = of(protocol.Metrics, said)
    assert not math.isfinite(pulse.loss) and pulse.skipped_steps == 1  # shown as diverged
    assert (session.steps, session.chars) == (steps, chars)
    (log,) = of(protocol.Log, said)
    assert log.level == "warning" and "skipped" in log.text
    (pulse,) = of(protocol.Metrics, session.step())
    assert pulse.skipped_steps == 1 and math.isfinite(pulse.loss)


def test_a_skipped_step_changes_no_number(session: Session) -> None:
    drive(session, 6)
    session.stepper._backward = lambda loss: None  # type: ignore[method-assign]
    before = everything(session)
    list(session.step())
    after = everything(session)
    for name in before.keys() - {"telemetry segments"}:
        if "telemetry" not in name:
            np.testing.assert_array_equal(before[name], after[name], name)


def test_what_is_read_again_is_learnt_at_a_lower_rate_and_never_at_none(home: Home) -> None:
    short = home.root / "short"
    short.mkdir()
    (short / "a.txt").write_text("a text of few characters, read again and again. " * 20)
    once: dict[str, object] = {"training.ngram_renew": False}  # else the rows would be as new every time
    session = home.open({"training.again_lr_mult": 0.1, "data.passage": CHUNK, **once}, paths=(short,))
    seen: list[tuple[int, float]] = []
    make = session.stepper.make

    def noting(text: WindowOfText, lr: float, step: int, chars: int, again: float) -> Step:
        seen.append((text.times, lr * again / session.rate.warmup(step)))
        return make(text, lr, step, chars, again)

    session.stepper.make = noting  # type: ignore[method-assign]
    while not seen or seen[-1][0] < 4:
        (pulse,) = of(protocol.Metrics, session.step()) or (None,)
        if pulse is not None:
            assert pulse.again == pytest.approx((1.0, 0.1, 0.01, 0.01, 0.01)[seen[-1][0]])
            assert pulse.lr == pytest.approx(seen[-1][1] * session.rate.warmup(session.steps - 1))
    for times, lr in seen:
        assert lr == pytest.approx(0.01 * (1.0, 0.1, 0.01, 0.01, 0.01)[times])
    assert {times for times, _ in seen} == set(range(5))
    session.close()


def test_three_running_go_back_with_half_the_rate(session: Session) -> None:
    drive(session, 4)
    list(session.checkpoint())
    saved = everything(session)
    drive(session, 3)
    break_weights(session)
    said = [message for _ in range(3) for message in session.step()]
    (reverted,) = of(protocol.Reverted, said)
    assert (reverted.step, session.steps) == (4, 4) and "3 steps running" in reverted.reason
    assert session.rate.factor == 0.5
    same_numbers(everything(session), saved)
    assert any("is lost" in log.text for log in of(protocol.Log, said)), "a broken present cannot be kept"
    assert math.isfinite(losses(drive(session, 1))[0])


def test_after_max_reverts_the_run_stops_at_something_sound(home: Home) -> None:
    session = home.open(max_reverts=1)
    drive(session, 4)
    list(session.checkpoint())
    with pytest.raises(MinagiError, match="Stopped, back at the last checkpoint"):
        for _ in range(7):
            break_weights(session)
            list(session.step())
    assert session.steps == 4
    assert math.isfinite(losses(drive(session, 1))[0])
    session.close()


def test_without_a_checkpoint_the_run_ends_with_a_sentence(session: Session) -> None:
    drive(session, 2)
    break_weights(session)
    with pytest.raises(MinagiError, match=r"not finite.*Nothing has been saved yet"):
        for _ in range(3):
            list(session.step())


def readings(session: Session, values: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The coming held-out readings are these."""
    left = iter(values)

    def held_out(corpus: object, *args: object) -> Iterator[None]:
        if corpus is not session.corpus:
            return Measured(Score(), {})
        score = Score()
        score.add(np.full(10, next(left)), 10)
        score.add(np.full(10, score.nats), 10)
        return Measured(score, {"letters": score})
        yield

    monkeypatch.setattr(session.engine.evaluator, "held_out", held_out)


def test_other_held_out_text_is_no_divergence(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model moves on to harder text: what it scored on the old says nothing of the new."""
    session = home.open()
    readings(session, [1.0], monkeypatch)
    drive(session, 3)
    list(session.evaluate())
    list(session.checkpoint())
    session.close()
    harder = home.root / "harder"
    notes(harder)
    session = home.open(paths=(harder,))
    assert session.guard.best is None and session.progress.val is None
    readings(session, [2.5], monkeypatch)
    assert not of(protocol.Reverted, session.evaluate())
    assert session.guard.best == 2.5
    session.close()
    same = home.open()
    assert same.guard.best == 1.0
    same.close()


def test_a_reading_asked_for_comes_in_slices_and_can_be_given_up(session: Session) -> None:
    drive(session, 3)
    reading = session.evaluate()
    assert isinstance(next(reading), protocol.Phase) and session.phase == "evaluating"
    reading.close()
    assert session.phase == "running"
    assert of(protocol.HeldOut, session.evaluate())


def test_an_automatic_save_that_fails_ends_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    session = home.open()
    drive(session, 2)
    session.checkpoints._saved_at = -math.inf

    def full(*args: object, **named: object) -> None:
        raise WeightsError("No space left in the folder. Free some, then try again.")

    monkeypatch.setattr(commit, "commit", full)
    said = [*drive(session, 2), *session.checkpoints.finish(goes_on=True)]
    (log,) = [m for m in of(protocol.Log, said) if m.level == "error"]
    assert "Not saved" in log.text and "training goes on" in log.text.lower()
    assert session.unsaved_chars > 0
    monkeypatch.undo()
    assert of(protocol.Saved, session.checkpoint())
    session.close()


def test_divergence_goes_back_to_the_best(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    session = home.open({"model.context_start": 16})
    session.window.context = 64
    readings(session, [2.0, 2.9, 3.1, 3.2], monkeypatch)
    drive(session, 3)
    session.checkpoints._saved_at = -math.inf  # the last checkpoint is long ago
    (best,) = of(protocol.Saved, [*session.evaluate(), *session.checkpoints.finish()])
    assert best.kind == "best"
    drive(session, 3)
    assert not of(protocol.Reverted, session.evaluate())  # 1.45 times the best
    list(session.checkpoint())
    said = list(session.evaluate())
    (reverted,) = of(protocol.Reverted, said)
    assert reverted.snapshot == best.snapshot and session.steps == 3
    assert session.rate.factor == 0.5 and session.window.context == 32
    assert "1.5 times the best" in reverted.reason
    drive(session, 3)
    (again,) = of(protocol.Reverted, session.evaluate())  # and a second time: back to the same, at less
    assert again.snapshot == best.snapshot
    assert session.rate.factor == 0.25 and session.window.context == 16
    session.close()


def test_a_reading_that_is_not_finite_goes_back_too(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings(session, [2.0, math.nan], monkeypatch)
    drive(session, 3)
    list(session.evaluate())
    list(session.checkpoint())
    drive(session, 2)
    (reverted,) = of(protocol.Reverted, session.evaluate())
    assert session.steps == 3 and session.progress.val == 2.0
    assert session.engine.store.manifest["val"] == 2.0
    (undone,) = of(protocol.Reverted, session.revert(reverted.undo))
    assert undone.held_out is None and session.engine.store.manifest["val"] is None


def test_divergence_in_a_dry_run_goes_back_to_the_start(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.made(3)
    session = home.open(dry_run=True)
    readings(session, [2.0, 9.0], monkeypatch)
    drive(session, 2)
    list(session.evaluate())
    drive(session, 2)
    (reverted,) = of(protocol.Reverted, session.evaluate())
    assert session.steps == reverted.step == 3
    session.close()


# ---------------------------------------------------------------------------------------- the files


def watched(session: Session, home: Home) -> list[float]:
    now = [0.0]
    session.watcher = CorpusWatcher((home.text,), session.corpus, clock=lambda: now[0])
    return now


def test_new_text_is_read_first_and_deleted_text_leaves(home: Home, session: Session) -> None:
    now = watched(session, home)
    drive(session, 2)
    new = home.text / "letters" / "new.txt"
    new.write_text(prose(100, 99))
    for file in (home.text / "logbook").iterdir():
        file.unlink()
    now[0] = 10
    said = drive(session, 1)
    (found,) = of(protocol.CorpusFound, said)
    assert [subject["name"] for subject in found.subjects] == ["letters"]
    assert [past.subjects for past in of(protocol.Past, said)] == [{}], "other text is measured now"
    assert any("new.txt" in log.text and "4 gone" in log.text for log in of(protocol.Log, said))
    told = of(protocol.Metrics, drive(session, 20))
    assert {pulse.subject for pulse in told[12:]} == {"letters"}
    (pulse,) = of(protocol.Metrics, session.step())
    assert pulse.corpus_share == pytest.approx(session.progress.subject("letters").chars / found.chars)


def test_a_file_that_vanished_is_named_and_ends_nothing(home: Home, session: Session) -> None:
    watched(session, home)  # and its clock stands still: the reader is the first to find out
    for name in ("0.txt", "1.txt"):
        (home.text / "letters" / name).unlink()
    said = drive(session, 40)
    logs = [log for log in of(protocol.Log, said) if log.topic == "files"]
    assert logs and all("vanished" in log.text and log.level == "warning" for log in logs)
    assert len({log.text for log in logs}) == len(logs), "each is named once"


def test_text_too_short_to_measure_is_read_all_the_same(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for file in home.text.rglob("*.txt"):
        file.unlink()
    (home.text / "letters" / "one.txt").write_text("x" * 100 + "\n" + prose(40, 1)[:180])
    session = home.open({"training.eval_every_chars": 50})
    said = drive(session, 10)
    if not session.corpus.held_out_chars:
        assert not of(protocol.HeldOut, said)
        with pytest.raises(UsageError, match="no held-out text"):
            list(session.evaluate())
    session.close()


def test_settings_that_do_not_fit_a_loaded_shape_are_told(home: Home) -> None:
    home.made(2)
    changes = {"model.max_steps": 24, "model.bptt_window": 9, "model.train_steps_mean": 5.0}
    session = home.open({**changes, "model.halt_prior": 0.05, "model.min_steps": 8})
    told = " ".join(log.text for log in of(protocol.Log, session.greet()))
    for name in ("bptt_window", "train_steps_mean", "halt_prior", "min_steps"):
        assert f"model.{name}" in told
    assert session.engine.net.depth.bptt_window == 3 and session.engine.net.depth.train_steps_mean == 0
    drive(session, 2)
    session.close()


def test_a_chunk_longer_than_the_window_skips_no_text(home: Home) -> None:
    session = home.open({"training.chunk": 10 * CHUNK})
    told = of(protocol.Metrics, drive(session, 5))
    assert all(b.chars - a.chars <= CHUNK for a, b in itertools.pairwise(told))
    session.close()


def test_never_means_never(session: Session) -> None:
    said = drive(session, 30)
    assert session.settings.growth.every_chars == NEVER
    assert not of(protocol.Growth, said) and not of(protocol.Saved, said) and not of(protocol.HeldOut, said)
