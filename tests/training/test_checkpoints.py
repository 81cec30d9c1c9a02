"""Saving, going on and going back: to the bit, without losing anything, and never in a dry run."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import Home, drive, everything, losses, of, prose, same_numbers, tree

from minagi import protocol
from minagi.errors import MinagiError, UsageError, WeightsError
from minagi.training.session import Session, open_reader
from minagi.units import size
from minagi.weights import ExpertRecord, Store

# Everything that may happen within a few steps: readings, growth, pruning, a growing window.
BUSY: dict[str, object] = {
    "training.eval_every_chars": 200, "data.eval_chars": 96, "growth.every_chars": 300,
    "growth.max_disk_gb": 0, "growth.max_gap": 0, "growth.dying_frac_max": 1.0, "growth.keep_ratio_min": 0.0,
    "prune.survival_chars": 400, "model.context_every_chars": 200, "model.context_grow_every_chars": 100,
    "model.context_gain_min": -100.0, "model.context_step": 3,
}  # fmt: skip
AVERAGED = {**BUSY, "training.average_chars": 200}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def sessions(home: Home) -> Iterator[list[Session]]:
    """Whatever a test opened is closed after it."""
    opened: list[Session] = []
    yield opened
    for session in opened:
        session.close()


@pytest.mark.parametrize(
    ("changes", "precision"),
    [({}, "fp32"), (BUSY, "fp32"), (AVERAGED, "fp32"), (BUSY, "bf16")],
    ids=["quiet", "busy", "averaged", "bf16"],
)
def test_a_reopened_model_goes_on_as_the_unbroken_one(
    home: Home, changes: dict[str, object], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Save and go on, or open what was saved and go on: the same losses and the same model, to the bit."""
    if precision == "bf16":
        monkeypatch.setattr("minagi.hardware.has_bf16_instructions", lambda: True)
        monkeypatch.setattr("minagi.hardware._PROBE_GAIN", 0.0)
    changes = {**changes, "training.precision": precision}
    session = home.open(changes)
    assert session.engine.hardware.precision == precision
    drive(session, 14)
    list(session.checkpoint())
    copy = home.root / "copy"
    shutil.copytree(home.weights, copy, ignore=shutil.ignore_patterns("lock"))
    unbroken = losses(drive(session, 13))
    again = home.open(changes, weights=copy)
    assert again.steps == 14
    assert losses(drive(again, 13)) == unbroken
    same_numbers(everything(again), everything(session))
    for one in (session, again):
        one.close()
    assert (again.chars, again.window.context) == (session.chars, session.window.context)
    assert again.rate.factor == session.rate.factor


@pytest.mark.parametrize("changes", [{}, BUSY, AVERAGED], ids=["quiet", "busy", "averaged"])
def test_going_back_repeats_the_same_steps(
    home: Home, sessions: list[Session], changes: dict[str, object]
) -> None:
    session = home.open(changes)
    sessions.append(session)
    drive(session, 13)
    list(session.checkpoint("here"))
    saved, rate, window = everything(session), session.rate.state_dict(), session.window.state_dict()
    first = losses(drive(session, 13))
    learned = everything(session)
    (reverted,) = of(protocol.Reverted, session.revert("here"))
    assert (reverted.step, session.steps, session.unsaved_chars) == (13, 13, 0)
    same_numbers(everything(session), saved)
    assert (session.rate.state_dict(), session.window.state_dict()) == (rate, window)
    assert losses(drive(session, 13)) == first
    same_numbers(everything(session), learned)


def test_a_disk_too_full_for_paging_changes_no_number_and_is_told_of_once(
    home: Home, sessions: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    home.made()
    copy = home.root / "copy"
    shutil.copytree(home.weights, copy, ignore=shutil.ignore_patterns("lock"))
    session, unbroken = home.open(), home.open(weights=copy)
    sessions += [session, unbroken]

    def full(record: ExpertRecord) -> None:
        raise WeightsError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(session.engine.store, "spill_expert", full)
        said = drive(session, 30)
    more = drive(session, 10)
    assert losses(said + more) == losses(drive(unbroken, 40))
    told = [log.text for log in of(protocol.Log, said) if log.topic == "checkpoint"]
    assert told == ["The disk is full. Until then it stays in memory, and training goes on."]
    assert [log.text for log in of(protocol.Log, more)] == ["Experts are put aside on disk again."]
    assert len(session.engine.pool.ram) <= 2


def test_going_back_can_be_undone(home: Home, sessions: list[Session]) -> None:
    session = home.open()
    sessions.append(session)
    drive(session, 10)
    list(session.checkpoint())
    drive(session, 10)
    list(session.checkpoints.save("auto"))  # both ways start from what a checkpoint keeps
    present = everything(session)
    further = losses(drive(session, 5))
    (reverted,) = of(protocol.Reverted, session.revert("1"))
    assert reverted.undo and session.steps == 10
    (undone,) = of(protocol.Reverted, session.revert(reverted.undo))
    assert undone.step == session.steps == 25
    (back,) = of(protocol.Reverted, session.revert("2"))
    same_numbers(everything(session), present)
    assert losses(drive(session, 5)) == further
    assert back.undo == reverted.undo  # nothing new was learned: the present was kept already
    list(session.checkpoints.save("auto"))
    (home.weights / "routers.npz").unlink()
    said = list(session.revert("1"))
    assert of(protocol.Reverted, said)[0].undo == ""
    assert any("cannot be undone" in note.text for note in of(protocol.Log, said))


def test_last_means_what_the_directory_holds(home: Home, sessions: list[Session]) -> None:
    """Not the newest snapshot: after going back, that is the one that was left."""
    session = home.open()
    sessions.append(session)
    drive(session, 5)
    list(session.checkpoint())
    for _ in range(3):
        drive(session, 4)
        (reverted,) = of(protocol.Reverted, session.revert(""))
        assert (reverted.snapshot, reverted.step) == ("1", 5)
    drive(session, 4)
    list(session.checkpoint("mine"))
    drive(session, 4)
    list(session.revert("1"))
    drive(session, 2)
    (reverted,) = of(protocol.Reverted, session.revert("last"))
    assert (reverted.snapshot, reverted.step) == ("1", 5)
    (reverted,) = of(protocol.Reverted, session.revert("mine"))
    assert reverted.step == 9


def test_the_oldest_snapshot_outlives_the_one_made_of_the_present(
    home: Home, sessions: list[Session]
) -> None:
    session = home.open()
    sessions.append(session)
    for _ in range(5):
        drive(session, 2)
        list(session.checkpoints.save("auto"))
    oldest = session.snapshots().items[-1]
    drive(session, 2)
    (reverted,) = of(protocol.Reverted, session.revert(oldest["id"]))
    assert (reverted.snapshot, session.steps) == (oldest["id"], oldest["step"])
    (reverted,) = of(protocol.Reverted, session.revert(reverted.undo))
    assert session.steps == 12


def test_the_oldest_way_back_from_a_revert_outlives_the_next(home: Home, sessions: list[Session]) -> None:
    session = home.open()
    sessions.append(session)
    drive(session, 2)
    list(session.checkpoint())
    undos = []
    for steps in (1, 2, 3):
        drive(session, steps)
        undos += [event.undo for event in of(protocol.Reverted, session.revert(""))]
    drive(session, 4)
    list(session.revert(undos[0]))
    assert session.steps == 3


def test_evidence_goes_on_where_it_stood(home: Home, sessions: list[Session]) -> None:
    """A way back is no restart: the next reading is judged as it was the first time."""
    session = home.open()
    sessions.append(session)
    for reading in (3.0, 2.9, 2.85, 2.7, 3.4):  # the last one is set aside until the next
        session.rate.observe(reading, 0.01, 64)
    drive(session, 2)
    list(session.checkpoint())
    first = [session.rate.observe(reading, 0.01, 64) for reading in (2.65, 2.6)]
    after = session.rate.state_dict()
    list(session.revert(""))
    assert [session.rate.observe(reading, 0.01, 64) for reading in (2.65, 2.6)] == first
    assert session.rate.state_dict() == after


def chars_of(session: Session) -> dict[str, int]:
    return {name: subject.chars for name, subject in session.progress.subjects.items() if subject.chars}


def test_what_was_read_of_a_subject_goes_back_and_goes_on(home: Home, sessions: list[Session]) -> None:
    session = home.open()
    sessions.append(session)
    drive(session, 6)
    list(session.checkpoint())
    read = chars_of(session)
    assert sum(read.values()) == session.chars
    drive(session, 6)
    list(session.revert())
    assert chars_of(session) == read
    session.close()
    again = home.open()
    sessions.append(again)
    assert chars_of(again) == read


def test_the_best_is_the_one_that_measured_least(home: Home, sessions: list[Session]) -> None:
    session = home.open()
    sessions.append(session)
    drive(session, 4)
    session.checkpoints._saved_at = -math.inf  # the last checkpoint is long ago
    (best,) = of(protocol.Saved, [*session.evaluate(), *session.checkpoints.finish()])
    assert best.kind == "best"
    drive(session, 4)
    session.progress.val = 1e3  # a later, worse reading, though somebody calls it the best
    list(session.checkpoint(kind="best"))
    (asked,) = of(protocol.Saved, session.checkpoint())
    assert asked.kind == "asked"
    (reverted,) = of(protocol.Reverted, session.revert("best"))
    assert reverted.snapshot == best.snapshot


def test_the_best_reading_of_the_model_is_told_at_the_start_and_after_going_back(
    home: Home, sessions: list[Session]
) -> None:
    session = home.open()
    assert next(iter(session.greet())).best is None
    drive(session, 4)
    (read,) = of(protocol.HeldOut, session.evaluate())
    list(session.checkpoint("early"))
    drive(session, 3)
    session.close()
    session = home.open()
    sessions.append(session)
    hello, past = of((protocol.Hello, protocol.Past), session.greet())  # type: ignore[arg-type]
    session._measuring.give_up()
    assert (hello.best, hello.best_step, hello.best_chars) == (read.nats, 4, read.chars)
    readings = [point[2:] for point in past.points if point[2] is not None]
    assert readings == [[read.nats, read.chars]] and past.subjects.keys() == read.subjects.keys()
    drive(session, 3)
    list(session.checkpoint())
    last = session.snapshots().items[0]
    assert (last["held_out"], last["held_out_step"], last["step"]) == (read.nats, 4, 7)
    session.guard.best, session.progress.best_step = 0.001, 7
    (reverted,) = of(protocol.Reverted, session.revert("early"))
    assert (reverted.best, reverted.best_step) == (read.nats, 4)


def test_the_best_of_other_text_is_no_way_back(home: Home, sessions: list[Session]) -> None:
    session = home.open()
    drive(session, 4)
    session.progress.val = 0.1  # of easier text
    list(session.checkpoint(kind="best"))
    session.close()
    shutil.rmtree(home.text / "logbook")
    session = home.open()
    sessions.append(session)
    drive(session, 2)
    list(session.checkpoint())
    (reverted,) = of(protocol.Reverted, session.revert("best"))
    assert reverted.step == 6, "none of this text is kept: the last checkpoint"
    session.progress.val = 0.2
    list(session.checkpoint(kind="best"))
    drive(session, 2)
    list(session.checkpoint())
    (reverted,) = of(protocol.Reverted, session.revert("best"))
    assert (reverted.step, reverted.held_out) == (6, 0.2)


def test_without_a_best_one_the_last_checkpoint_serves(home: Home, sessions: list[Session]) -> None:
    session = home.open()
    sessions.append(session)
    drive(session, 4)
    list(session.checkpoint())
    drive(session, 4)
    list(session.revert(""))  # leaves a newer snapshot of the present, which is not meant
    (reverted,) = of(protocol.Reverted, session.revert("best"))
    assert reverted.snapshot == "1"


def test_what_cannot_be_gone_back_to_is_refused_in_words(home: Home, sessions: list[Session]) -> None:
    session = home.open()
    sessions.append(session)
    drive(session, 3)
    with pytest.raises(UsageError, match="Nothing has been saved yet"):
        list(session.revert(""))
    list(session.checkpoint("mine"))
    drive(session, 3)
    before = everything(session)
    with pytest.raises(UsageError, match=r"no snapshot 'other'. There are: 1 \('mine'\)\."):
        list(session.revert("other"))
    same_numbers(everything(session), before)
    assert session.steps == 6 and len(session.snapshots().items) == 1


def test_a_kept_checkpoint_is_deleted_but_not_the_one_the_model_goes_on_from(
    home: Home, sessions: list[Session]
) -> None:
    session = home.open()
    sessions.append(session)
    for steps, name in ((3, "tea"), (6, "milk")):
        drive(session, steps)
        list(session.checkpoint(name))
    tea = session.snapshots().items[1]
    folder = session.engine.store.path / ".minagi" / "snapshots" / "000001"
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    own = sum(file.st_size for file in files if file.st_nlink == 1)
    before = everything(session)
    with pytest.raises(UsageError, match="goes on from this checkpoint"):
        list(session.delete("milk"))
    log, left = session.delete("tea")
    assert isinstance(log, protocol.Log) and isinstance(left, protocol.Snapshots)
    assert (
        tea["bytes_freed"] == own and f"“tea” of step 3 is deleted, which gave back {size(own)}" in log.text
    )
    assert [item["name"] for item in left.items] == ["milk"]
    same_numbers(everything(session), before)
    with pytest.raises(UsageError, match="no snapshot 'tea'"):
        list(session.delete("tea"))
    session.close()
    dry = home.open(dry_run=True)
    sessions[:] = [dry]
    with pytest.raises(UsageError, match="dry run"):
        list(dry.delete("milk"))


def test_a_save_that_fails_ends_nothing(
    home: Home, sessions: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, twin = home.open(), Home(home.root / "twin").open()
    sessions += [session, twin]
    drive(session, 5)
    drive(twin, 5)

    def full(*args: object, **kwargs: object) -> None:
        raise WeightsError("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(Store, "checkpoint", full)
        with pytest.raises(WeightsError):
            list(session.checkpoint())
    assert session.unsaved_chars == session.chars
    assert losses(drive(session, 5)) == losses(drive(twin, 5))  # no moment was rounded for nothing
    list(session.checkpoint())
    assert session.unsaved_chars == 0


# ------------------------------------------------------------------------------------------- a dry run


def test_a_dry_run_changes_no_byte(home: Home) -> None:
    """Growth, pruning, evictions and going back included."""
    home.made(20, BUSY)
    before = tree(home.root)
    session = home.open(BUSY, dry_run=True)
    list(session.greet())
    said = drive(session, 25)
    grown = of(protocol.Growth, said)
    assert any(event.born for event in grown) and any(event.pruned for event in grown)
    assert session.engine.pool.ram.misses > 0
    list(session.evaluate())
    list(session.revert(""))
    drive(session, 10)
    with pytest.raises(UsageError, match="dry run"):
        list(session.checkpoint())
    session.close()
    assert tree(home.root) == before
    assert not any(Path(str(session.scratch)).parent.glob(Path(str(session.scratch)).name))


def test_a_dry_run_goes_back_to_where_it_started(home: Home) -> None:
    home.made(10, BUSY)
    session = home.open(BUSY, dry_run=True)
    start = everything(session)
    first = losses(drive(session, 13))
    (reverted,) = of(protocol.Reverted, session.revert(""))
    assert (reverted.snapshot, reverted.undo, reverted.step) == ("", "", 10)
    same_numbers(everything(session), start)
    assert losses(drive(session, 13)) == first
    with pytest.raises(UsageError, match="where it started"):
        list(session.revert("1"))
    session.close()


def test_a_dry_run_of_a_model_that_is_not_there_makes_none(home: Home) -> None:
    before = tree(home.root)
    session = home.open(dry_run=True)
    list(session.greet())
    drive(session, 5)
    session.close()
    assert tree(home.root) == before


# --------------------------------------------------------------------------------------------- history


def rows(home: Home) -> list[int]:
    return [json.loads(line)["step"] for line in home.history.read_text().splitlines()]


def test_history_has_a_row_a_checkpoint_and_forgets_what_was_gone_back_on(home: Home) -> None:
    session = home.open()
    for _ in range(3):
        drive(session, 4)
        list(session.checkpoint())
    assert rows(home) == [4, 8, 12]
    row = json.loads(home.history.read_text().splitlines()[-1])
    assert row["chars"] == session.chars and row["experts"] == 7 and row["memory"] > 0
    assert all(len(row[key]) == 7 for key in ("gate", "use", "admits", "born", "last_seen", "uid"))
    list(session.revert("1"))
    assert rows(home) == [4]
    session.close()


def test_a_resumed_run_drops_the_rows_past_where_it_goes_on(home: Home) -> None:
    home.made(4)
    with home.history.open("a") as file:
        file.write(json.dumps({"step": 99, "model": str(home.weights)}) + "\n")
    dry = home.open(dry_run=True)
    list(dry.greet())
    dry.close()
    assert rows(home) == [4, 99]
    session = home.open()
    list(session.greet())
    session.close()
    assert rows(home) == [4]


# -------------------------------------------------------------------------------------------- the clock


def test_saving_goes_by_the_clock_and_only_with_something_new(home: Home, sessions: list[Session]) -> None:
    session = home.open({"training.save_every": 5})
    sessions.append(session)
    now = [0.0]
    session.checkpoints._clock = lambda: now[0]
    session.checkpoints._saved_at = 0.0
    assert of(protocol.Saved, drive(session, 3)) == []
    now[0] = 299
    assert of(protocol.Saved, drive(session, 1)) == []
    now[0] = 301
    (saved,) = of(protocol.Saved, [*drive(session, 1), *session.checkpoints.finish()])
    assert (saved.kind, saved.step) == ("auto", 5)
    now[0] = 900
    assert not session.checkpoints.due()  # nothing new
    session.close()


def test_a_failed_save_is_tried_again_a_whole_interval_later(
    home: Home, sessions: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = home.open({"training.save_every": 5})
    sessions.append(session)
    drive(session, 1)
    now = [400.0]
    session.checkpoints._clock = lambda: now[0]
    session.checkpoints._saved_at = 0.0

    def full(*args: object, **kwargs: object) -> None:
        raise WeightsError("The disk is full.")

    monkeypatch.setattr(Store, "checkpoint", full)
    assert session.checkpoints.due()
    with pytest.raises(MinagiError):
        list(session.checkpoints.save("auto"))
    assert not session.checkpoints.due()


# ------------------------------------------------------------------------------------------- the figure


def test_the_figure_of_eval_is_the_same_before_and_after(home: Home) -> None:
    """Checkpoint, train on, go back: `minagi eval` gives the same to the last digit."""
    measured = home.root / "measured.txt"
    measured.write_text(prose(40, 5))

    def figure() -> float:
        reader = open_reader(home.weights, home.loaded(), "cpu")
        found = reader.evaluate(measured)
        reader.close()
        return found["nats"]

    session = home.open()
    drive(session, 15)
    list(session.checkpoint())
    before = figure()
    drive(session, 15)
    list(session.checkpoint())
    assert figure() != before
    list(session.revert("1"))
    assert figure() == before
    session.close()
    assert figure() == before
    assert math.isfinite(before)


def test_kept_beside_the_public_layout(home: Home) -> None:
    """What this program needs to go on lies under one key of its own; the rest is the public layout's."""
    home.made(5)
    manifest = json.loads((home.weights / "manifest.json").read_text())
    assert set(manifest["minagi"]) == {
        "profile",
        "progress",
        "rate",
        "window",
        "growth",
        "paths",
        "reader",
        "renewal",
        "best",
        "measured",
        "held_out",
    }
    assert (manifest["step"], manifest["context_now"]) == (5, 24)
    assert manifest["read_chars"] > 0 and manifest["read_nats"] > 0
    telemetry = manifest["telemetry"]
    assert telemetry["segments"] == 5 and telemetry["next_uid"] == 7
    seen = np.array(telemetry["gate_seen"])
    gates = np.array(telemetry["gate"])
    assert (seen[np.array(telemetry["last_seen"]) == 5] == gates[np.array(telemetry["last_seen"]) == 5]).all()
