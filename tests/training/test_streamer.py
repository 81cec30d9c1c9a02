from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from disturbed_commits import full_disk, held_up
from tiny_runs import everything, losses, of, same_numbers
from tiny_streams import Place, drive

from minagi import protocol
from minagi.config import load_settings
from minagi.errors import LockedError, MinagiError, UsageError, WeightsError
from minagi.model.loss import training_loss
from minagi.model.routing import Forward
from minagi.text.mix import MixWindow
from minagi.training.chunks import ChunkStepper, OpenWindow
from minagi.training.engine import POOL_AUX
from minagi.training.session import open_reader
from minagi.training.streamer import Streamer
from minagi.weights import Store, commit


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_stream_tells_its_story(place: Place) -> None:
    streamer = place.open()
    said = [*streamer.greet(), *drive(streamer)]
    assert streamer.concluded
    assert streamer.unsaved_chars == 0
    assert streamer.done == streamer.steps == 12
    assert streamer.chars == 12 * 24
    streamer.close()

    assert place.kinds() == [
        "start", "step", "step", "val", "held", "saved", "step", "step", "val", "held", "saved", "step",
        "step", "val", "saved", "done",
    ]  # fmt: skip
    start, done = place.rows[0], place.rows[-1]
    assert (start["experts"], start["context"], start["device"], start["precision"]) == (7, 24, "cpu", "fp32")
    flags = start["flags"]
    assert flags["mix"] == {"tales": 2.0, "lists": 1.0}
    assert (flags["steps"], flags["context"], flags["ctx_start"], flags["chunk"]) == (12, 64, 24, 24)
    assert (flags["lr"], flags["warmup"], flags["accum"], flags["seed"]) == (0.01, 2, 1, 0)
    vals = [row for row in place.rows if row["kind"] == "val"]
    assert [row["step"] for row in vals] == [4, 8, 12]
    assert all(row["best"] for row in vals), "a newborn gets better"
    assert vals[-1]["val"] == done["val"] == done["best"]
    assert set(vals[0]["subjects"]) == {"tales", "lists"}
    steps = [row for row in place.rows if row["kind"] == "step"]
    assert [row["done"] for row in steps] == [2, 4, 6, 8, 10, 12]
    assert steps[0]["loss"] == pytest.approx(np.mean(losses(said)[:2]))
    assert steps[-1]["lr"] == pytest.approx(0.001)
    assert [row["context"] for row in steps][-1] == 64
    assert all(row["model"] == str(place.out) and row["time"] > 0 for row in place.rows)
    hello = said[0]
    assert isinstance(hello, protocol.Hello)
    assert (hello.context, hello.context_start, hello.context_end) == (24, 24, 64)
    assert of(protocol.CorpusFound, said)[0].chars == start_chars(place)
    assert [event.best for event in of(protocol.HeldOut, said)] == [True, True, True]


def start_chars(place: Place) -> int:
    return sum((source.folder / "train.bin").stat().st_size // 2 for source in place.mix)


def test_what_it_makes_is_a_model_like_any_other(place: Place, tmp_path: Path) -> None:
    streamer = place.open()
    list(streamer.greet())
    drive(streamer)
    val = streamer.progress.val
    streamer.close()
    with Store.open(place.out, write=False) as store:
        assert store.manifest["step"] == 12
        assert store.manifest["val"] == val
        assert store.manifest["context_now"] == 64
        assert [info.kind for info in store.snapshots()] == ["best", "best", "best", "auto"]
        assert {info.measured for info in store.snapshots()} == {streamer.reading.identity}
    loaded = load_settings({}, environ={}, cwd=tmp_path, user_dir=tmp_path / "user")
    reader = open_reader(place.out, loaded, "cpu", "fp32")
    assert reader.window == 64
    assert len(reader.write(b"Ab", 5).ids) == 5
    reader.close()


# --------------------------------------------------------------------------------- the mathematics


def window_of(streamer: Streamer, length: int, number: int = 0) -> MixWindow:
    return MixWindow(number, "tales", streamer.mix.train["tales"].ids(0, length + 1))


def test_chunks_of_a_window_are_one_reading_of_it(place: Place) -> None:
    """With every expert admitted, the losses are those of one whole forward at the same depth."""
    streamer = place.open({"pool.resident": 7, "pool.top_k": 7})
    engine = streamer.engine
    window = window_of(streamer, 60)
    opened = OpenWindow(engine, window, 20, seed=3)
    parts = []
    while not opened.over:
        parts.append(opened.read(1.0).loss.nats)
    assert len(parts) == 3
    engine.optimiser.skip()
    ids = torch.from_numpy(window.ids.astype("int64"))
    forward = Forward(engine.pool, engine.net.new_text(1), engine.routing, training=True)
    whole = training_loss(engine.net, ids[:-1], ids[1:], forward, opened._rows, POOL_AUX)
    torch.testing.assert_close(torch.cat(parts), whole.nats, rtol=1e-4, atol=1e-4)
    streamer.close()


def test_a_rest_that_is_no_chunk_stays_unread_and_a_short_window_is_one_chunk(place: Place) -> None:
    streamer = place.open()

    def chunks(length: int) -> list[int]:
        opened, found = OpenWindow(streamer.engine, window_of(streamer, length), 24, 0), []
        while not opened.over:
            found.append(opened.read(1.0).chars)
        return found

    assert [chunks(length) for length in (64, 47, 48, 5)] == [[24, 24], [24], [24, 24], [5]]
    streamer.close()


def test_accumulated_chunks_make_the_step_of_their_mean_gradient(place: Place) -> None:
    streamer = place.open(accum=2)
    engine = streamer.engine
    windows = [window_of(streamer, 24, number) for number in range(2)]
    for window in windows:
        OpenWindow(engine, window, 24, 5).read(1.0)
    twice = engine.optimiser.norm()
    engine.optimiser.skip()

    class Given:
        def open(self, context: int, burst: int) -> MixWindow:
            return windows.pop(0)

    stepper = ChunkStepper(engine, Given(), streamer.settings.training, 2, 5)  # type: ignore[arg-type]
    assert stepper.read(24, 24, 24, 0.01, 0) is None
    assert not stepper.whole
    made = stepper.read(24, 24, 24, 0.01, 0)
    assert made is not None and stepper.whole
    assert made.norm == pytest.approx(twice / 2, rel=1e-5)
    assert made.chars == 48
    assert float(made.loss.ce) == pytest.approx(np.mean([chunk.nats for chunk in made.chunks]))
    streamer.close()


def test_averages_are_told_of_every_step(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    streamer = place.open(accum=2)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(streamer.engine, "stepped", lambda chars, total: told.append((chars, total)))
    drive(streamer, 3)
    assert told == [(48, 48), (48, 96), (48, 144)]
    streamer.close()


def test_a_text_is_counted_once_a_window(place: Place) -> None:
    streamer = place.open({"model.context_start": 64})
    drive(streamer, 3)  # 64 holds two chunks of 24: the third opens the second window
    assert streamer.engine.pool.telemetry.segments == 2
    streamer.close()


def test_the_mean_of_a_step_counts_for_every_source(place: Place) -> None:
    streamer = place.open(accum=8, steps=4)
    list(streamer.greet())
    drive(streamer, 3)
    read = {name: subject.chars for name, subject in streamer.progress.subjects.items()}
    assert set(read) == {"tales", "lists"}
    assert sum(read.values()) == streamer.chars == 3 * 8 * 24
    streamer.close()


# --------------------------------------------------------------------------------- repeating, resuming


def story(streamer: Streamer, until: int | None = None) -> list[float]:
    return losses(drive(streamer, until))


def test_a_seed_repeats_to_the_bit(tmp_path: Path) -> None:
    told = []
    for name, seed in (("one", 4), ("two", 4), ("three", 5)):
        (tmp_path / name).mkdir()
        streamer = Place(tmp_path / name).open(seed=seed, accum=2, replay=0.3)
        list(streamer.greet())
        told.append(story(streamer))
        streamer.close()
    assert told[0] == told[1] != told[2]


def test_a_resumed_stream_goes_on_as_the_one_that_saved(place: Place) -> None:
    """In the middle of a window, a step and a ramp; with replay, growth and all counters."""
    asked = {"accum": 3, "replay": 0.4, "steps": 20, "eval_every": 6}
    growing = {"growth.k": 1, "growth.max_gap": 0.0}
    streamer = place.open(growing, **asked)
    list(streamer.greet())
    drive(streamer, 7)
    drive(streamer, lambda s: not s.stepper.whole)
    list(streamer.checkpoint("here"))
    resumed_from = everything(streamer)
    went_on = story(streamer)
    ended = everything(streamer)
    streamer.close()

    with Store.open(place.out, write=True) as store:
        store.revert("here")
    again = place.open(growing, **asked)
    same_numbers(everything(again), resumed_from)
    list(again.greet())
    assert again.done == 7
    assert story(again) == went_on
    same_numbers(everything(again), ended)
    assert again.concluded
    assert again.engine.pool.experts > 7
    again.close()


def test_rows_past_the_point_resumed_from_are_dropped(place: Place) -> None:
    streamer = place.open()
    list(streamer.greet())
    drive(streamer, 7)
    streamer.close()  # as a crash leaves it: saved at 4
    again = place.open()
    list(again.greet())
    assert again.done == 4
    assert [(row["kind"], row["done"]) for row in place.rows] == [
        ("start", 0), ("step", 2), ("step", 4), ("val", 4), ("held", 4), ("saved", 4), ("start", 4),
    ]  # fmt: skip
    again.close()


def test_a_reading_that_was_broken_off_is_made_again(place: Place) -> None:
    streamer = place.open(steps=4)
    list(streamer.greet())
    drive(streamer, lambda s: s.done == 4)
    assert not streamer.concluded
    list(streamer.checkpoint(kind="final"))
    streamer.close()
    again = place.open(steps=4)
    list(again.greet())
    assert not losses(drive(again)), "no step is left"
    assert again.concluded
    assert place.kinds()[-2:] == ["saved", "done"]
    again.close()


def test_a_stream_that_is_done_stays_so_until_more_steps_are_asked(place: Place) -> None:
    streamer = place.open(steps=4)
    list(streamer.greet())
    drive(streamer)
    streamer.close()
    before = place.kinds()
    done = place.open(steps=4)
    list(done.greet())
    assert done.concluded
    assert place.kinds() == before
    done.close()
    more = place.open(steps=6)
    assert not more.concluded
    list(more.greet())
    drive(more)
    assert (more.done, more.steps) == (6, 6)
    more.close()


def test_a_restarted_stream_begins_its_schedule_anew_on_text_it_has_not_read(place: Place) -> None:
    streamer = place.open(steps=4)
    list(streamer.greet())
    drive(streamer)
    opened, best = streamer.reader.state()["opened"], streamer.guard.best
    streamer.close()
    again = place.open(steps=4, restart=True)
    assert (again.done, again.steps, again.concluded) == (0, 4, False)
    assert again.context == 24
    assert (again.reader.state()["opened"], again.guard.best) == (opened, best)
    list(again.greet())
    drive(again, lambda s: s.done == 1)
    poisoned(again)
    drive(again, lambda s: s.guard.reverts > 0)
    assert again.done == 0, "back at its own beginning, and not at the end of the first"
    drive(again)
    assert (again.done, again.steps) == (4, 8)
    assert again._best() != ""
    again.close()


def test_a_model_of_another_run_goes_on_and_keeps_what_that_run_left(place: Place, tmp_path: Path) -> None:
    from tiny_runs import Home
    from tiny_runs import drive as step

    (tmp_path / "home").mkdir()
    home = Home(tmp_path / "home")
    home.made(steps=3)
    streamer = place.open(out=home.weights, steps=4)
    list(streamer.greet())
    drive(streamer)
    assert (streamer.done, streamer.steps) == (4, 7)
    streamer.close()
    session = home.open()
    assert session.steps == 7
    assert session.window.context == 64
    assert session.reader.state()["visit"] is not None
    step(session, 2)
    list(session.checkpoint())
    session.close()
    again = place.open(out=home.weights, steps=6)
    assert again.steps == 9
    again.close()


# ------------------------------------------------------------------------------------ the pool's life


def test_experts_die_and_are_born_at_readings(place: Place) -> None:
    streamer = place.open(
        {"growth.k": 1, "growth.keep_ratio_min": 0.0, "growth.dying_frac_max": 1.0, "growth.max_gap": 0.0},
        steps=40, grow_min_age=3, pool_max=6,
    )  # fmt: skip
    list(streamer.greet())
    drive(streamer)
    rows = {kind: [row for row in place.rows if row["kind"] == kind] for kind in ("pruned", "grew", "held")}
    assert rows["pruned"] and rows["grew"]
    assert rows["grew"][0]["uids"] == [7]
    assert set(rows["grew"][0]["parents"]["7"]) <= set(range(7))
    assert all(row["experts"] <= 6 for row in rows["grew"])
    streamer.close()
    with Store.open(place.out, write=False) as store:
        assert store.uids == streamer.engine.pool.telemetry.uid
        assert store.manifest["minagi"]["growth"] == streamer.selection.last != {}
    again = place.open(steps=41)
    assert again.selection.last == streamer.selection.last, "the reason is known after a restart"
    again.close()


def test_the_pool_grows_to_its_limit_and_says_so(place: Place) -> None:
    streamer = place.open({"growth.k": 1, "growth.max_gap": 0.0}, steps=16, pool_max=8)
    list(streamer.greet())
    said = drive(streamer)
    assert [row["experts"] for row in place.rows if row["kind"] == "grew"] == [8]
    held = [row["why"] for row in place.rows if row["kind"] == "held"]
    assert held and all("More than 8 are not wanted" in why for why in held)
    assert of(protocol.Growth, said)[0].next_at_chars == 4 * 24 + 4 * 24
    streamer.close()


# ------------------------------------------------------------------------------------- when it goes wrong


def poisoned(streamer: Streamer, value: float = math.nan) -> None:
    with torch.no_grad():
        streamer.engine.net.ln_f.weight.fill_(value)


def test_steps_that_are_not_finite_are_skipped_then_it_goes_back(place: Place) -> None:
    streamer = place.open(accum=2)
    list(streamer.greet())
    drive(streamer, 5)
    poisoned(streamer)
    said = drive(streamer, lambda s: s.guard.reverts > 0)
    assert streamer.guard.skipped == 3
    assert len(of(protocol.Reverted, said)) == 1
    assert streamer.done == 4
    assert streamer.schedule.factor == 0.5
    row = place.rows[-1]
    assert (row["kind"], row["left_at"], row["step"], row["factor"]) == ("reverted", 5, 4, 0.5)
    assert "not finite" in row["why"]
    drive(streamer)
    assert streamer.concluded and streamer.progress.val is not None
    streamer.close()


def test_divergence_goes_back_to_the_best_with_half_the_rate_and_window(place: Place) -> None:
    streamer = place.open({"model.context_start": 8, "model.context_end": 32})
    list(streamer.greet())
    drive(streamer, 7)
    best = streamer.guard.best
    before = streamer.context
    with torch.no_grad():
        streamer.engine.net.ln_f.weight.mul_(-1_000)
    said = drive(streamer, lambda s: s.guard.reverts > 0)
    assert len(of(protocol.Reverted, said)) == 1
    assert (streamer.done, streamer.progress.val) == (4, best)
    assert streamer.schedule.state_dict() == {"factor": 0.5, "window_factor": 0.5}
    assert streamer.schedule.window(7) == before // 2
    rows = place.rows
    assert rows[-1]["kind"] == "reverted" and rows[-1]["left_val"] > 1.5 * best
    assert max(row["done"] for row in rows) == 4, "what was given up left the history"
    list(streamer.checkpoint())
    streamer.close()
    again = place.open({"model.context_start": 8, "model.context_end": 32})
    assert again.schedule.state_dict() == {"factor": 0.5, "window_factor": 0.5}
    again.close()


def test_after_so_many_ways_back_it_stops_where_it_is_sound(place: Place) -> None:
    streamer = place.open(max_reverts=1, eval_every=2)
    list(streamer.greet())
    drive(streamer, 2)

    def ruin(s: Streamer) -> bool:
        with torch.no_grad():
            s.engine.net.ln_f.weight.mul_(-1_000)
        return False

    with pytest.raises(MinagiError, match=r"Stopped, back at the best checkpoint"):
        drive(streamer, ruin)
    assert streamer.unsaved_chars == 0
    assert streamer.done == 2
    assert place.kinds()[-2:] == ["reverted", "reverted"]
    streamer.close()


def test_the_best_of_another_run_is_no_way_back(place: Place) -> None:
    streamer = place.open()
    list(streamer.greet())
    drive(streamer, 4)
    streamer.progress.step += 100  # a model 100 steps older than its stream
    best = streamer._best()
    assert best == ""
    streamer.progress.step -= 100
    assert streamer._best() != ""
    streamer.close()


def test_other_held_out_text_is_not_compared_with(place: Place) -> None:
    streamer = place.open(steps=4)
    list(streamer.greet())
    drive(streamer)
    assert streamer.guard.best is not None
    streamer.close()
    other = place.open(mix=place.mix[:1], steps=8)
    assert other.guard.best is None and other.progress.val is None
    other.close()


def test_a_save_that_fails_is_tried_again_and_the_last_one_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = {"growth.k": 1, "growth.max_gap": 0.0, "model.context_start": 64}
    streamer = place.open(growing, steps=6, eval_every=3)  # a window is half read when the pool grows
    list(streamer.greet())

    with full_disk(monkeypatch, commit, "commit"):
        said = drive(streamer)
        logs = [log.text for log in of(protocol.Log, said) if log.level == "error"]
        assert len(logs) > 1 and all("Not saved: " in text and "disk is full" in text for text in logs)
        assert streamer.concluded and streamer.unsaved_chars > 0
        assert streamer.engine.pool.experts == 8
        assert "done" not in place.kinds()
        with pytest.raises(WeightsError):
            list(streamer.checkpoint(kind="final"))
    streamer.close()


def test_reading_goes_on_while_a_checkpoint_is_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    streamer = place.open(steps=8)
    list(streamer.greet())
    with held_up(monkeypatch, 60) as go:
        said: list[protocol.Message] = []
        while streamer.done < 6:
            said += streamer.step()
        assert not of(protocol.Saved, said) and streamer.unsaved_chars == streamer.chars
        go.set()
    told = list(streamer.conclude())
    (saved,) = of(protocol.Saved, told)
    assert (saved.kind, saved.step) == ("best", 4)
    assert streamer.unsaved_chars == 2 * 24
    assert [(row["done"], row["step"]) for row in place.rows if row["kind"] == "saved"] == [(4, 4)]
    drive(streamer)
    assert streamer.unsaved_chars == 0 and place.kinds()[-1] == "done", "the last one is waited for"
    streamer.close()


def test_leaving_waits_for_a_checkpoint_under_way(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    streamer = place.open(steps=8)
    list(streamer.greet())
    with held_up(monkeypatch, 60) as go:
        while streamer.done < 5:
            list(streamer.step())
        go.set()
        streamer.close()
    assert place.rows[-1]["kind"] == "saved"
    with Store.open(place.out, write=False) as store:
        assert store.manifest["step"] == 4


def test_a_history_that_cannot_be_written_never_ends_a_stream(place: Place) -> None:
    streamer = place.open(steps=6)
    list(streamer.greet())
    (place.out / "history.jsonl").unlink()
    (place.out / "history.jsonl").mkdir()
    said = drive(streamer)
    assert streamer.concluded
    warnings = [log.text for log in of(protocol.Log, said) if "history could not be written" in log.text]
    assert warnings
    streamer.close()


@pytest.mark.parametrize(
    "stream",
    [
        None, 7, [], {}, {"done": -1}, {"done": 10**30, "measured_at": "x"}, {"done": 3, "measured_at": 9},
        {"schedule": 4, "reader": [], "best": "nan", "done": True},
    ],
)  # fmt: skip
def test_a_manifest_that_makes_no_sense_starts_at_the_beginning(place: Place, stream: object) -> None:
    streamer = place.open()
    list(streamer.greet())
    manifest = dict(streamer.engine.store.manifest)
    manifest["step"] = 2
    manifest["minagi"] = {**manifest["minagi"], "stream": stream}
    streamer._restore(manifest)
    assert 0 <= streamer._measured_at <= streamer.done <= 2
    drive(streamer, lambda s: s.done == 3)
    streamer.close()


# ------------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_opened_leaves_nothing_locked(place: Place, tmp_path: Path) -> None:
    nowhere = place.mix[1]._replace(folder=tmp_path / "nowhere")
    with pytest.raises(UsageError, match="There is no corpus folder"):
        place.open(mix=(place.mix[0], nowhere))
    with pytest.raises(UsageError, match="lower --context"):
        place.open({"model.context_end": 100_000})
    with pytest.raises(UsageError, match="--chunk is 100 characters but the window never has more than 64"):
        place.open({"training.chunk": 100}, given=frozenset(["training.chunk"]))
    first = place.open()
    with pytest.raises(LockedError):
        place.open()
    first.close()
    place.open().close()


def test_inherited_lengths_give_way_to_the_context(place: Place) -> None:
    streamer = place.open({"model.context_start": 48, "training.chunk": 40, "model.context_end": 32})
    assert (streamer.chunk, streamer.context, streamer.schedule.ceiling) == (32, 32, 32)
    drive(streamer, 2)
    assert streamer.chars == 64
    streamer.close()
