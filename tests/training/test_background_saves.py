"""Saves that nobody asked for: training goes on while they are written, to the same bit."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from disturbed_commits import full_disk, held_up
from test_checkpoints import AVERAGED, BUSY
from tiny_runs import Home, drive, everything, losses, of, same_numbers

from minagi import protocol
from minagi.training import checkpoints
from minagi.training.session import Session
from minagi.weights import Store, commit


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def finished(session: Session) -> list[protocol.Message]:
    return list(session.checkpoints.finish())


@pytest.mark.parametrize("changes", [{}, BUSY, AVERAGED], ids=["quiet", "busy", "averaged"])
def test_what_it_wrote_goes_on_as_the_run_that_wrote_it(
    home: Home, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run pages experts out and in while they are being written; the losses are the same to the bit."""
    session = home.open(changes)
    drive(session, 14)
    list(session.checkpoints.begin("auto"))
    finished(session)
    drive(session, 6)
    with held_up(monkeypatch, 60):
        assert not list(session.checkpoints.begin("auto"))
        ours = losses(drive(session, 5))
    (saved,) = of(protocol.Saved, finished(session))
    assert (saved.step, saved.kind) == (20, "auto")
    copy = home.root / "copy"
    shutil.copytree(home.weights, copy, ignore=shutil.ignore_patterns("lock"))
    with Store.open(copy, write=True) as store:
        store.revert(saved.snapshot)  # growth may have saved since
    again = home.open(changes, weights=copy)
    assert again.steps == 20
    assert losses(drive(again, 5)) == ours
    for one in (session, again):  # what was paged in meanwhile is in RAM when the copy's memory is used again
        list(one.checkpoints.begin("auto"))
        finished(one)
    assert losses(drive(session, 8)) == losses(drive(again, 8))
    for one in (session, again):
        finished(one)
    same_numbers(everything(again), everything(session))
    session.close()
    again.close()


def test_going_back_to_it_repeats_the_same_steps(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    session = home.open()
    drive(session, 7)
    with held_up(monkeypatch, 60) as go:
        list(session.checkpoints.begin("auto"))
        first = losses(drive(session, 9))
        threading.Timer(0.05, go.set).start()
        said = list(session.revert(""))  # waits for what is being written: that is the last checkpoint
    assert [event.step for event in of(protocol.Saved, said)] == [7]
    assert of(protocol.Reverted, said)[0].step == session.steps == 7
    assert losses(drive(session, 9)) == first
    session.close()


def test_it_is_told_by_a_later_step_and_counts_from_when_it_was_taken(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = home.open()
    drive(session, 4)
    taken = session.chars
    with held_up(monkeypatch, 60):
        list(session.checkpoints.begin("auto"))
        assert not of(protocol.Saved, drive(session, 3))
        assert session.unsaved_chars == session.chars  # not before it is complete
        assert not session.checkpoints.due()
        assert not list(session.news())
    session.checkpoints._under_way[1].result(60)  # type: ignore[index]
    said = drive(session, 1)
    (saved,) = of(protocol.Saved, said)
    assert (saved.step, saved.chars) == (4, taken)
    assert session.unsaved_chars == session.chars - taken
    row = json.loads(home.history.read_text())
    assert (row["step"], row["chars"]) == (4, taken)
    session.close()


def test_another_save_waits_for_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    session = home.open()
    drive(session, 3)
    with held_up(monkeypatch, 60) as go:
        list(session.checkpoints.begin("auto"))
        drive(session, 2)
        threading.Timer(0.05, go.set).start()
        said = list(session.checkpoint("mine"))
    assert [(event.step, event.name) for event in of(protocol.Saved, said)] == [(3, ""), (5, "mine")]
    assert session.unsaved_chars == 0
    session.close()


def test_leaving_waits_for_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    session = home.open()
    drive(session, 3)
    with held_up(monkeypatch, 60) as go:
        list(session.checkpoints.begin("auto"))
        threading.Timer(0.05, go.set).start()
        session.close()
    assert session.unsaved_chars == 0
    assert json.loads(home.history.read_text())["step"] == 3
    with Store.open(home.weights, write=True) as store:
        assert store.manifest["step"] == 3


@pytest.mark.parametrize("changes", [{}, BUSY, AVERAGED], ids=["quiet", "busy", "averaged"])
def test_one_that_fails_is_told_and_loses_nothing(
    home: Home, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its twin, whose save got through, goes on with the same numbers; both save all of them later."""
    session, twin = home.open(changes), Home(home.root / "twin").open(changes)
    for one in (session, twin):
        drive(one, 11)
    with full_disk(monkeypatch, commit, "commit"):
        list(session.checkpoints.begin("auto"))
        (log,) = of(protocol.Log, session.checkpoints.finish(goes_on=True))
    assert log.level == "error" and "disk is full" in log.text and "Training goes on" in log.text
    list(twin.checkpoints.begin("auto"))
    finished(twin)
    assert session.unsaved_chars == session.chars
    assert not session.engine.store.exists
    for _ in range(2):  # what the failed one held is still in the copy's memory
        assert losses(drive(session, 5)) == losses(drive(twin, 5))
        for one in (session, twin):
            list(one.checkpoints.begin("auto"))
            finished(one)
    same_numbers(everything(session), everything(twin))
    for one in (session, twin):
        one.close()
    again, other = home.open(changes), Home(home.root / "twin").open(changes)
    same_numbers(everything(again), everything(other))
    for one in (again, other):
        one.close()


@pytest.mark.parametrize("then", ["the run ends", "it is paused"])
def test_one_that_fails_promises_nothing_where_training_does_not_go_on(
    then: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = home.open()
    drive(session, 1)
    with full_disk(monkeypatch, commit, "commit"):
        list(session.checkpoints.begin("auto"))
        assert session.checkpoints._under_way is not None
        assert session.checkpoints._under_way[1].exception() is not None
        (log,) = of(protocol.Log, session.news() if then == "it is paused" else session.conclude())
    assert log.text.startswith("Not saved: ") and "Training goes on" not in log.text
    session.close()


def test_without_room_for_a_copy_training_waits_and_says_so_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "free_memory", lambda: 1000)
    session = home.open()
    said: list[protocol.Message] = []
    for _ in range(2):
        drive(session, 3)
        said += session.checkpoints.begin("auto")
    assert [event.step for event in of(protocol.Saved, said)] == [3, 6]
    (log,) = of(protocol.Log, said)
    assert "Too little memory is free" in log.text
    with full_disk(monkeypatch, commit, "commit"):
        drive(session, 1)
        (log,) = of(protocol.Log, session.checkpoints.begin("auto"))
    assert "Not saved" in log.text
    session.close()


def test_only_what_changed_is_written(home: Home) -> None:
    """The experts that no step touched since keep their files: hard links, not copies."""
    session = home.open({"pool.resident": 3, "pool.experts": 40})
    drive(session, 1)
    for _ in range(2):
        list(session.checkpoints.begin("auto"))
        finished(session)
        drive(session, 1)
    folders = [home.weights / ".minagi" / "snapshots" / f"{n:06d}" / "experts" for n in (1, 2)]
    kept = [{p.name: p.stat().st_ino for p in folder.iterdir()} for folder in folders]
    changed = [name for name, inode in kept[0].items() if kept[1][name] != inode]
    assert 0 < len(changed) <= 3 and len(kept[1]) == 40
    session.close()
