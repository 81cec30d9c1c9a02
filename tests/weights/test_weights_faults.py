"""What a checkpoint promises, tried at every change of the file system it makes.

Each scenario is run once to count its changes, and then again and again with one of them going wrong: the
process killed before it or behind it, the power cut, the disk full, an input/output error, a write that
takes only half. Afterwards the directory must open and be the old model or the new one, byte for byte.

The default run tries a sample of the points; MINAGI_FAULTS=all tries every one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from faulty_disk import ERRORS, KILLS, FaultyDisk, Killed, copy_tree
from weights_models import edit_manifest, expert, has_spill, make, public, state

from minagi.errors import WeightsError
from minagi.weights import Store, layout, snapshots
from minagi.weights.view import look

ALL = os.environ.get("MINAGI_FAULTS") == "all"
SAMPLES = 5  # points a mode and scenario in the default run


@dataclass(frozen=True)
class Scenario:
    """From the directory that `prepare` leaves, `act` goes to a new state."""

    prepare: Callable[[Path], object]
    act: Callable[[Store], object]
    links: bool = True


def _two_checkpoints(path: Path) -> None:
    with Store.open(path, write=True) as store:
        store.checkpoint(state([0, 1, 2], 1), name="first")
        store.checkpoint(state([0, 2, 3], 2, changed=[3]))


def _save(store: Store) -> None:
    store.spill_expert(expert(2, 5))
    store.checkpoint(state([0, 1, 2], 4, changed=[1]))


def _grow_and_prune(store: Store) -> None:
    store.spill_expert(expert(3, 5, moments=False))
    store.checkpoint(state([0, 2, 3], 4, changed=[0]), kind="best")


def _save_in_background(store: Store) -> None:
    """An expert in memory is handed over once: after a failure, the store is who has it."""
    if not has_spill(store, 2):
        store.spill_expert(expert(2, 5))
    handed = np.array_equal(store.read_expert(1).weights["w1"], expert(1, 4).weights["w1"])
    store.begin_checkpoint(state([0, 1, 2], 4, changed=[] if handed else [1])).result(60)


def _public_flat(path: Path) -> None:
    """A directory of an older program: flat arrays, no list of experts, nothing of ours."""
    make(path)
    shutil.rmtree(path / layout.PRIVATE)
    for file in (path / layout.EXPERTS).glob("*.npz"):
        with np.load(file) as archive:
            flat = np.concatenate([archive[n].ravel() for n in ("w1", "w3", "w2")])
        file.unlink()
        np.save(file.with_suffix(".npy"), flat)
    edit_manifest(path, experts=None, paged=None)


SCENARIOS = {
    "first save": Scenario(lambda path: path.mkdir(), lambda store: store.checkpoint(state([0, 1], 1))),
    "save": Scenario(make, _save),
    "save without links": Scenario(make, _save, links=False),
    "save in the background": Scenario(make, _save_in_background),
    "grow and prune": Scenario(make, _grow_and_prune),
    "revert": Scenario(_two_checkpoints, lambda store: store.revert("first")),
    "revert without links": Scenario(_two_checkpoints, lambda store: store.revert("first"), links=False),
    "public directory": Scenario(
        _public_flat, lambda store: store.checkpoint(state([0, 1, 2], 4, changed=[1]))
    ),
}


@pytest.fixture(autouse=True)
def _quick_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "KEPT_AUTOMATIC", 1)  # so that every save removes a snapshot too


def _points(count: int, salt: int) -> list[int]:
    if ALL:
        return list(range(1, count + 1))
    step = max(1, count // SAMPLES)
    return list(range(1 + salt % step, count + 1, step))


def _run(path: Path, scenario: Scenario) -> None:
    with Store.open(path, write=True, clock=lambda: 5.0) as store:
        scenario.act(store)


def _check_snapshots(path: Path) -> None:
    for info in snapshots.listing(path / layout.PRIVATE / "snapshots"):
        folder = path / layout.PRIVATE / "snapshots" / snapshots.folder_name(int(info.id))
        snapshots.check(snapshots.read(folder), path)


class Trial:
    """One scenario on its own copies of the prepared directory."""

    def __init__(self, scenario: Scenario, tmp_path: Path) -> None:
        self.scenario = scenario
        self.base = tmp_path / "base"
        self._tmp_path = tmp_path
        self._made = 0
        scenario.prepare(self.base)
        self.old = public(self.base)
        done = self.copy()
        with pytest.MonkeyPatch.context() as patch:
            disk = FaultyDisk(patch, self.backups(), links=scenario.links)
            _run(done, scenario)
            disk.close()
        self.count = disk.count
        self.commit_point = 1 + disk.log.index(("rename", done / layout.PRIVATE / "journal.json"))
        self.new = public(done)
        assert self.new != self.old

    def copy(self) -> Path:
        self._made += 1
        path = self._tmp_path / f"copy{self._made}"
        copy_tree(self.base, path)
        return path

    def backups(self) -> Path:
        self._made += 1
        path = self._tmp_path / f"backups{self._made}"
        path.mkdir()
        return path


@pytest.mark.parametrize("mode", KILLS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_any_point_it_opens_as_the_old_or_the_new_model(
    name: str, mode: str, tmp_path: Path
) -> None:
    trial = Trial(SCENARIOS[name], tmp_path)
    outcomes = set()
    for point in _points(trial.count, salt=KILLS.index(mode)):
        path = trial.copy()
        with pytest.MonkeyPatch.context() as patch:
            disk = FaultyDisk(patch, trial.backups(), mode, point, trial.scenario.links)
            with pytest.raises(Killed):
                _run(path, trial.scenario)
            if mode.startswith("power"):
                disk.cut_power()
            disk.close()
        with pytest.MonkeyPatch.context() as patch:
            FaultyDisk(patch, trial.backups(), links=trial.scenario.links)
            outcomes.add(_legal_after_reopening(path, trial, f"{name}, {mode} at change {point}"))
    assert not ALL or outcomes == {"old", "new"}


def _legal_after_reopening(path: Path, trial: Trial, what: str) -> str:
    """Opens for reading, then for writing; which of the two states it is."""
    before = public(path)
    view = look(path)
    reader = dict(view.manifest)
    view.close()
    assert public(path) == before, f"{what}: a reader wrote"
    with Store.open(path, write=True) as store:
        found = public(path)
        assert found in (trial.old, trial.new), f"{what}: neither the old nor the new model"
        assert store.manifest == reader, f"{what}: the reader saw another model"
        for uid in store.uids if store.exists else ():
            store.read_expert(uid)
        if found == trial.new:
            assert any(i.step == store.manifest["step"] for i in store.snapshots()), f"{what}: not kept"
    _check_snapshots(path)
    left = {p.name for p in (path / layout.PRIVATE).glob("*")}  # none where no model came of it
    assert left <= {"lock", "snapshots"}, f"{what}: leftovers"
    return "old" if found == trial.old else "new"


@pytest.mark.parametrize("mode", ERRORS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_failing_disk_costs_a_save_and_nothing_else(name: str, mode: str, tmp_path: Path) -> None:
    trial = Trial(SCENARIOS[name], tmp_path)
    for point in _points(trial.count, salt=ERRORS.index(mode)):
        what = f"{name}, {mode} at change {point}"
        path = trial.copy()
        with pytest.MonkeyPatch.context() as patch:
            disk = FaultyDisk(patch, trial.backups(), mode, point, trial.scenario.links)
            _fail_then_retry(path, trial, disk, what)
            disk.close()
        assert public(path) == trial.new, f"{what}: the second try did not succeed"
        _check_snapshots(path)


def _fail_then_retry(path: Path, trial: Trial, disk: FaultyDisk, what: str) -> None:
    try:
        store = Store.open(path, write=True, clock=lambda: 5.0)
    except WeightsError as error:
        assert str(path) in str(error), what
        disk.heal()
        return _run(path, trial.scenario)
    with store:
        try:
            trial.scenario.act(store)
        except WeightsError as error:
            assert str(path) in str(error), what
            assert disk.mode != "short", what
        disk.heal()
        view = look(path)  # someone may be reading now
        assert (view.manifest.get("step", 0) if view.model else 0) == store.manifest.get("step", 0), what
        view.close()
        for uid in store.uids if store.exists else ():
            store.read_expert(uid)
        trial.scenario.act(store)
    return None


@pytest.mark.parametrize("mode", KILLS)
@pytest.mark.parametrize("name", ["grow and prune", "revert"])
def test_recovery_itself_may_be_cut_short(name: str, mode: str, tmp_path: Path) -> None:
    trial = Trial(SCENARIOS[name], tmp_path)
    count = _recover(trial, trial.copy(), "", 0)
    for point in _points(count, salt=KILLS.index(mode)):
        path = trial.copy()
        _recover(trial, path, mode, point)
        found = _legal_after_reopening(path, trial, f"{name}, recovery, {mode} at change {point}")
        assert found == "new" or mode == "power"  # where the journal's own name may be lost


def _recover(trial: Trial, path: Path, mode: str, point: int) -> int:
    """A writer dies when its journal is in place, the next one goes wrong; how many changes that one makes.

    One disk through both: what the first did not sync may be lost with what the second did not.
    """
    with pytest.MonkeyPatch.context() as patch:
        disk = FaultyDisk(patch, trial.backups(), "killed-after", trial.commit_point)
        with pytest.raises(Killed):
            _run(path, trial.scenario)
        assert (path / layout.PRIVATE / "journal.json").exists()
        before = disk.count
        disk.heal()
        disk.mode, disk.at = mode, before + point if point else 0
        if point:
            with pytest.raises(Killed):
                Store.open(path, write=True).close()
        else:
            Store.open(path, write=True).close()
        if mode.startswith("power"):
            disk.cut_power()
        disk.close()
    return disk.count - before
