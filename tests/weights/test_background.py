"""Checkpoints written by a thread of their own while training goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from disturbed_commits import full_disk, held_up
from test_store import public_directory, same
from weights_models import expert, has_spill, make, public, state

from minagi.errors import UsageError, WeightsError
from minagi.weights import CheckpointState, ExpertRecord, Store, commit, files
from minagi.weights.moments import to_bf16


def test_it_writes_what_checkpoint_would(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    with Store.open(one, write=True, clock=lambda: 5.0) as store:
        store.spill_expert(expert(2, 8))
        info = store.checkpoint(state([0, 1, 2], 9, changed=[1]), name="mine")
    with Store.open(other, write=True, clock=lambda: 5.0) as store:
        store.spill_expert(expert(2, 8))
        future = store.begin_checkpoint(state([0, 1, 2], 9, changed=[1]), name="mine")
        assert future.result(10) == info
        assert not has_spill(store, 2)
    assert public(one) == public(other)


def bits(record: ExpertRecord) -> ExpertRecord:
    """The expert as training copies it for a checkpoint: moments as bf16 bits."""
    assert record.moments is not None
    return ExpertRecord(record.uid, record.weights, {n: to_bf16(a) for n, a in record.moments.items()})


def test_moments_may_come_as_bf16_bits(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    given = state([0, 1, 2], 9)
    with Store.open(one, write=True) as store:
        store.checkpoint(given)
    given.experts = {uid: bits(record) for uid, record in given.experts.items()}
    given.optim = {
        name: (m, v, t) if m is None or v is None else (to_bf16(m), to_bf16(v), t)
        for name, (m, v, t) in given.optim.items()
    }
    with Store.open(other, write=True) as store:
        store.checkpoint(given)
    assert public(one) == public(other)


@pytest.mark.parametrize("value", [0x7F80, 0x7FC0, 0xFF80 - 0x10000])
def test_bits_that_are_no_number_are_refused(value: int, tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    given = state([0, 1, 2], 9)
    given.experts[1] = bits(given.experts[1])
    given.experts[1].moments["w2_v"][0, 0] = value
    with Store.open(path, write=True) as store, pytest.raises(WeightsError, match="w2_v that are not finite"):
        store.checkpoint(given)


def test_what_was_handed_over_reads_as_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool forgets an unchanged expert when it leaves RAM: what it pages in then is this."""
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store, held_up(monkeypatch, 10) as go:
        for uid in (0, 1, 2):
            store.spill_expert(expert(uid, 8))
        taken = state([0, 1, 2], 9, changed=[0])
        taken.experts[0] = bits(expert(0, 9))
        future = store.begin_checkpoint(taken)
        for _ in range(2):  # while it is written, and when it is
            assert same(store.read_expert(0), expert(0, 9))
            assert same(store.read_expert(2), expert(2, 8))
            assert store.read_expert(0, moments=False).moments is None
            assert store.read_expert(2, moments=False).moments is None
            go.set()
            assert future.result(10).step == 9
        assert not any(has_spill(store, uid) for uid in (0, 1, 2))


def test_what_is_read_of_it_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever handed it over uses its memory again when it is written."""
    path = make(tmp_path / "model")
    taken = state([0, 1, 2], 9)
    with Store.open(path, write=True) as store:
        with held_up(monkeypatch, 10):
            store.begin_checkpoint(taken)
            found = store.read_expert(0)
        store.keep()
        for arrays in (taken.experts[0].weights, taken.experts[0].moments):
            for array in arrays.values():
                array.fill(7)
        assert same(found, expert(0, 9))


def test_what_changes_meanwhile_is_newer_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        with held_up(monkeypatch, 10):
            store.spill_expert(expert(1, 8))
            store.spill_expert(expert(2, 8))
            future = store.begin_checkpoint(state([0, 1, 2], 9, changed=[0]))
            store.spill_expert(expert(0, 10))
            store.spill_expert(expert(1, 10))
            store.spill_expert(expert(1, 11))
            store.spill_expert(expert(7, 10, moments=False))  # born meanwhile
        future.result(10)
        assert [has_spill(store, uid) for uid in (0, 1, 2, 7)] == [True, True, False, True]
        assert same(store.read_expert(0), expert(0, 10), rounded=False)
        assert same(store.read_expert(1), expert(1, 11), rounded=False)
        spilled = sorted(p.name.split("-")[0] for p in (path / ".minagi" / "spill").iterdir())
        assert spilled == ["0", "1", "7"]  # what the checkpoint took is gone
        store.revert("")
        assert same(store.read_expert(0), expert(0, 9))
        assert same(store.read_expert(1), expert(1, 8))


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.revert("1"),
        lambda store: store.checkpoint(state([0, 1, 2], 12)),
        lambda store: store.begin_checkpoint(state([0, 1, 2], 12)).result(10),
        lambda store: store.keep(),
        lambda store: store.present(),
        lambda store: store.delete_snapshot("1"),
        lambda store: store.close(),
    ],
)
def test_whatever_changes_the_directory_waits_for_it(
    act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store, held_up(monkeypatch, 10) as go:
        future = store.begin_checkpoint(state([0, 1, 2], 9))
        threading.Timer(0.05, go.set).start()
        act(store)
        assert future.done() and future.result().step == 9
    with Store.open(path, write=True) as store:
        assert 9 in [info.step for info in store.snapshots()]
        store.revert(store.find("2").id)
        assert store.manifest["step"] == 9


def test_what_a_failed_one_held_goes_into_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "model", uids=range(6))
    before = public(path)
    with Store.open(path, write=True) as store:
        store.spill_expert(expert(5, 8))
        with full_disk(monkeypatch, files, "create"):
            future = store.begin_checkpoint(state(range(6), 9, changed=[0, 1, 2, 3]))
            with pytest.raises(WeightsError, match="disk is full"):
                future.result(10)
        assert public(path) == before
        assert same(store.read_expert(0), expert(0, 9))
        assert same(store.read_expert(5), expert(5, 8))
        store.spill_expert(expert(1, 10))  # changed since, and no longer in memory
        with full_disk(monkeypatch, files, "create"), pytest.raises(WeightsError):  # again, in the background
            store.begin_checkpoint(state(range(6), 10, changed=[4])).result(10)
        with full_disk(monkeypatch, files, "create"), pytest.raises(WeightsError):  # and in the foreground
            store.checkpoint(state(range(6), 11, changed=[4]))
        store.checkpoint(state([0, 1, 2, 4, 5], 12, changed=[2]))  # 3 was pruned meanwhile
        for _ in range(2):
            for uid, seed in ((0, 9), (1, 10), (2, 12), (4, 10), (5, 8)):
                assert same(store.read_expert(uid), expert(uid, seed)), uid
            store.revert("")  # nothing of it is held any more
        assert not any(has_spill(store, uid) for uid in range(6))


def test_going_back_forgets_what_a_failed_one_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        with full_disk(monkeypatch, files, "create"), pytest.raises(WeightsError):
            store.begin_checkpoint(state([0, 1, 2], 9)).result(10)
        store.revert("")
        assert same(store.read_expert(0), expert(0, 1))
        store.checkpoint(state([0, 1, 2], 10, changed=[]))
        assert same(store.read_expert(0), expert(0, 1))


def test_a_failed_save_in_the_foreground_rounds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        store.spill_expert(expert(1, 8))
        with full_disk(monkeypatch, files, "create"), pytest.raises(WeightsError):
            store.checkpoint(state([0, 1, 2], 9, changed=[0]))
        assert same(store.read_expert(1), expert(1, 8), rounded=False)
        assert same(store.read_expert(0), expert(0, 1))


def test_a_state_that_cannot_be_is_told_and_changes_nothing(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    bad: CheckpointState = state([0, 1, 2], 2)
    bad.core["halt.bias"].fill(np.nan)
    before = public(path)
    with Store.open(path, write=True) as store:
        with pytest.raises(WeightsError, match="not finite"):
            store.begin_checkpoint(bad).result(10)
        with pytest.raises(UsageError, match="kind"):
            store.begin_checkpoint(state([0, 1, 2], 2), kind="other").result(10)
        assert public(path) == before


def test_it_disturbs_no_reader(tmp_path: Path) -> None:
    path = make(tmp_path / "model", uids=range(6))
    latest = dict.fromkeys(range(6), 1)
    seed = 100
    with Store.open(path, write=True) as store:
        for step in range(2, 12):
            future = store.begin_checkpoint(state(range(6), step, changed=[0]))
            latest[0] = step
            while not future.done():
                uid = 1 + seed % 5
                store.spill_expert(expert(uid, seed))
                latest[uid] = seed
                for other in range(6):
                    found = store.read_expert(other)
                    assert np.array_equal(found.weights["w1"], expert(other, latest[other]).weights["w1"])
                seed += 1
            future.result()
        store.checkpoint(state(range(6), 50, changed=[]))
        assert all(same(store.read_expert(uid), expert(uid, latest[uid])) for uid in range(6))


def test_reading_an_expert_while_older_files_are_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = public_directory(tmp_path / "flat")
    started, go = threading.Event(), threading.Event()
    finish = commit._finish

    def slow(*args: object) -> None:
        finish(*args)
        started.set()
        assert go.wait(10)

    monkeypatch.setattr(commit, "_finish", slow)
    with Store.open(path, write=True) as store:
        future = store.begin_checkpoint(state([0, 1, 2], 2, changed=[]))
        assert started.wait(10)  # the flat files are gone, the store does not know yet
        threading.Timer(0.05, go.set).start()
        assert np.array_equal(store.read_expert(1).weights["w1"], expert(1, 1).weights["w1"])
        future.result(10)
