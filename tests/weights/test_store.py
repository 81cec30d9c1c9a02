from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from weights_models import (
    CFG,
    FIXTURE,
    edit_manifest,
    everything,
    expert,
    has_spill,
    make,
    public,
    replace,
    state,
)

from minagi.errors import UsageError, WeightsError
from minagi.weights import (
    CheckpointState,
    ExpertRecord,
    Store,
    commit,
    files,
    layout,
    snapshots,
    view,
)
from minagi.weights.moments import from_bf16, to_bf16
from minagi.weights.npz import Npz, write_npz


def round_moments(array: np.ndarray) -> np.ndarray:
    """What a checkpoint keeps of `array`, in fp32."""
    return from_bf16(to_bf16(array))


def same(found: ExpertRecord, expected: ExpertRecord, rounded: bool = True) -> bool:
    """Whether two experts hold the same bits; the expected moments rounded first if they were."""
    moments = expected.moments or {}
    if rounded:
        moments = {name: round_moments(array) for name, array in moments.items()}
    held = {name: from_bf16(array) for name, array in (found.moments or {}).items()}
    return (
        found.weights.keys() == expected.weights.keys()
        and all(np.array_equal(found.weights[n], a) for n, a in expected.weights.items())
        and held.keys() == moments.keys()
        and all(np.array_equal(held[n], a) for n, a in moments.items())
    )


# ------------------------------------------------------------------------------------- a new directory


def test_a_new_model_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where" / "new model 🙂"
    saved = state([0, 1, 2], 3)
    with Store.open(path, write=True) as store:
        assert not store.exists
        assert (store.manifest, store.shape, store.snapshots()) == ({}, {}, [])
        store.checkpoint(saved)
        assert store.exists
    with Store.open(path, write=False) as store:
        core, routers, optim = store.read_core(), store.read_routers(), store.read_optim()
        assert core["head.weight"] is core["tok_emb.weight"]
        assert all(np.array_equal(core[n], a) for n, a in saved.core.items() if n != "head.weight")
        assert all(np.array_equal(routers[n], a) for n, a in saved.routers.items())
        assert optim.keys() == saved.optim.keys()
        for name, (m, v, t) in saved.optim.items():
            assert optim[name][2] == t
            if m is None:
                assert optim[name][:2] == (None, None)
            else:
                assert np.array_equal(optim[name][0], round_moments(m))
                assert np.array_equal(optim[name][1], round_moments(v))
        assert all(same(store.read_expert(uid), saved.experts[uid]) for uid in store.uids)
        assert store.read_expert(0, moments=False).moments is None
        assert store.shape == {**CFG, "pool_experts": 3}


def test_the_manifest_says_what_the_layout_asks_for(tmp_path: Path) -> None:
    path = make(tmp_path / "model", uids=(4, 0, 7))
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["n_experts"], manifest["d_model"], manifest["d_ff"], manifest["paged"]) == (
        3,
        4,
        2,
        True,
    )
    assert manifest["router_tensors"] == ["pool.gate", "recur.0.mlp.depth_emb", "recur.0.mlp.router.weight"]
    assert manifest["core_tensors"] == sorted(layout.core_shapes(CFG))
    gates = state([4, 0, 7], 1).routers["pool.gate"]
    for entry, uid, gate in zip(manifest["experts"], (4, 0, 7), gates, strict=True):
        size = (path / "experts" / f"e{uid:05d}.npz").stat().st_size
        assert entry == {
            "id": uid,
            "file": f"e{uid:05d}.npz",
            "bytes": size,
            "params": 24,
            "moments": True,
            "gate": pytest.approx(gate),
        }
    assert manifest["total_bytes"] == sum(entry["bytes"] for entry in manifest["experts"])
    with np.load(path / "experts" / "e00007.npz", allow_pickle=False) as archive:
        assert archive["w2"].dtype == np.float32
        assert archive["w2_v"].dtype == np.int16
    with np.load(path / "core.npz", allow_pickle=False) as archive:
        assert sorted(archive.files) == manifest["core_tensors"]


def test_a_manifest_alone_is_a_model_not_made_yet(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"cfg": {"d_model": 4, "mine": 1}, "theirs": [1, 2]}))
    for name in ("README.md", "events.jsonl", "history.jsonl"):  # what came with it, and records of a stream
        (tmp_path / name).write_text("hello")
    (tmp_path / "experts").mkdir()
    with Store.open(tmp_path, write=True) as store:
        assert (store.exists, store.shape) == (False, {"d_model": 4, "mine": 1})
        with pytest.raises(WeightsError, match="no model yet"):
            store.read_core()
        store.checkpoint(state([0], 1))
        assert (store.manifest["theirs"], store.shape["mine"]) == ([1, 2], 1)


def test_a_deeper_pool(tmp_path: Path) -> None:
    cfg = {**CFG, "pool_depth": 3, "n_recur": 2, "n_coda": 1}
    path = make(tmp_path / "model", cfg=cfg)
    with Store.open(path, write=False) as store:
        found = store.read_expert(1)
        assert list(found.weights) == ["w1", "w3", "w2", "b0_w1", "b0_w3", "b0_w2", "b1_w1", "b1_w3", "b1_w2"]
        assert same(found, expert(1, 1, cfg))
        assert "recur.1.mlp.router.weight" in store.read_routers()
        assert "coda.0.mlp.w2.weight" in store.read_core()


# ------------------------------------------------------------------------------------------- spilling


def test_a_spilled_expert_is_exact_and_touches_no_file(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    before = public(path)
    with Store.open(path, write=True) as store:
        store.spill_expert(expert(1, 9))
        store.spill_expert(expert(1, 10))
        store.spill_expert(expert(5, 10, moments=False))
        assert (has_spill(store, 1), has_spill(store, 0), has_spill(store, 5)) == (True, False, True)
        assert same(store.read_expert(1), expert(1, 10), rounded=False)
        assert store.read_expert(1, moments=False).moments is None
        alone = store.read_expert(1, weights=False)
        assert not alone.weights and np.array_equal(alone.moments["w2_v"], expert(1, 10).moments["w2_v"])
        assert store.read_expert(5).moments is None
        assert public(path) == before
    with Store.open(path, write=True) as store:  # what was not saved is gone
        assert not has_spill(store, 1)
        assert same(store.read_expert(1), expert(1, 1))
    assert public(path) == before


def test_a_checkpoint_takes_memory_over_spill_over_file(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    old = (path / "experts" / "e00000.npz").stat().st_ino
    with Store.open(path, write=True) as store:
        store.spill_expert(expert(1, 8))
        store.spill_expert(expert(2, 8))
        store.spill_expert(expert(6, 8, moments=False))
        store.checkpoint(state([0, 1, 2, 6], 9, changed=[2]))
        assert not any(has_spill(store, uid) for uid in (1, 2, 6))
        assert same(store.read_expert(1), expert(1, 8))
        assert same(store.read_expert(2), expert(2, 9))
        assert not any(a.any() for a in store.read_expert(6).moments.values())
    assert (path / "experts" / "e00000.npz").stat().st_ino == old
    assert not (path / ".minagi" / "spill").exists() or not list((path / ".minagi" / "spill").iterdir())


# --------------------------------------------------------------------------- readers beside a writer


def test_a_reader_sees_one_whole_checkpoint_to_its_end(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as writer:
        reader = Store.open(path, write=False)
        for seed in range(2, 9):
            writer.checkpoint(state([0, 1, 2], seed))
        assert (reader.manifest["step"], reader.exists) == (1, True)
        assert np.array_equal(reader.read_core()["ln_f.weight"], state([0], 1).core["ln_f.weight"])
        assert all(same(reader.read_expert(uid), expert(uid, 1)) for uid in reader.uids)
        reader.close()
        with Store.open(path, write=False) as later:
            assert later.manifest["step"] == 8


def test_a_reader_of_a_public_directory_follows_its_files_into_the_snapshot(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    shutil.rmtree(path / ".minagi")
    reader = Store.open(path, write=False)
    with Store.open(path, write=True) as writer:
        writer.checkpoint(state([0, 3], 2))
        assert all(same(reader.read_expert(uid), expert(uid, 1)) for uid in (0, 1, 2))
        assert np.array_equal(reader.read_routers()["pool.gate"], state([0, 1, 2], 1).routers["pool.gate"])
        reader.close()


def test_a_reader_refuses_to_mix_what_another_program_replaced(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    shutil.rmtree(path / ".minagi")
    other = make(tmp_path / "other", seed=2)
    with Store.open(path, write=False) as reader:
        replace(path / "experts" / "e00001.npz", (other / "experts" / "e00001.npz").read_bytes())
        assert same(reader.read_expert(0), expert(0, 1))
        with pytest.raises(WeightsError, match="changed by another program while it was being read"):
            reader.read_expert(1)


def test_many_readers_while_a_writer_saves_as_fast_as_it_can(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    stop = threading.Event()
    faults: list[BaseException] = []

    def save() -> None:
        try:
            with Store.open(path, write=True) as writer:
                seed = 2
                while not stop.is_set():
                    writer.checkpoint(state([0, 1, 2], seed))
                    seed += 1
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=save)
    thread.start()
    steps = set()
    for _ in range(40):
        with Store.open(path, write=False) as reader:
            step = reader.manifest["step"]
            steps.add(step)
            assert np.array_equal(reader.read_core()["ln_f.weight"], state([0], step).core["ln_f.weight"])
            assert all(same(reader.read_expert(uid), expert(uid, step)) for uid in reader.uids)
    stop.set()
    thread.join()
    assert not faults
    assert len(steps) > 1


def cut_short(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory after a save of step 2 that died just behind its commit point."""

    def die(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch, Store.open(path, write=True) as store:
        patch.setattr(commit, "_finish", die)
        with pytest.raises(WeightsError):
            store.checkpoint(state([0, 2], 2))
    return path


def test_a_reader_goes_on_when_its_snapshot_moves_to_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cut_short(make(tmp_path / "model"), monkeypatch)
    with Store.open(path, write=False) as reader:
        Store.open(path, write=True).close()
        assert reader.read_optim()["ln_f.weight"][2] == 2
        assert reader.read_average() is None
        assert same(reader.read_expert(2), expert(2, 2))


def test_a_reader_that_opens_while_the_snapshot_moves_to_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit stands and its snapshot still lies in incoming/: it moves under a reader."""
    path = cut_short(make(tmp_path / "model"), monkeypatch)
    places = layout.Places(path)
    real = view.load

    def load(folder: Path) -> object:
        if folder == places.incoming:
            files.rename(folder, places.snapshots / "000002")
        return real(folder)

    monkeypatch.setattr(view, "load", load)
    with Store.open(path, write=False) as reader:
        assert (reader.manifest["step"], reader.uids) == (2, [0, 2])
        assert same(reader.read_expert(2), expert(2, 2))


def test_a_reader_whose_snapshot_leaves_while_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody deletes the snapshot of the present: the files in place are the same."""
    path = make(tmp_path / "model")
    monkeypatch.setattr(snapshots, "pin", lambda folder: None)
    with Store.open(path, write=False) as reader:
        assert same(reader.read_expert(2), expert(2, 1))


def test_reading_writes_nothing_and_cannot(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    before = everything(path)
    with Store.open(path, write=False) as store:
        store.read_core(), store.read_routers(), store.read_optim(), store.read_expert(0)
        for action in (
            lambda: store.checkpoint(state([0], 1)),
            lambda: store.revert("1"),
            lambda: store.spill_expert(expert(0, 1)),
            lambda: store.delete_snapshot("1"),
            lambda: store.keep(),
        ):
            with pytest.raises(UsageError, match="open for reading only"):
                action()
        assert store.snapshots()[0].id == "1"
        assert store.disk_bytes() > 0
    assert everything(path) == before
    with pytest.raises(UsageError, match="closed already"):
        store.read_core()


def test_a_dry_run_spills_elsewhere_and_changes_no_byte(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    before = everything(path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Store.open(path, write=False, scratch=scratch) as store:
        for uid in (0, 1, 2, 3):  # 3 was just born
            store.spill_expert(expert(uid, 9))
        assert same(store.read_expert(3), expert(3, 9), rounded=False)
        assert len(list(scratch.iterdir())) == 4
    assert list(scratch.iterdir()) == []
    assert everything(path) == before


def test_a_dry_run_of_a_model_that_is_not_there_makes_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "model", write=False, scratch=tmp_path / "scratch") as store:
        assert not store.exists
        store.spill_expert(expert(0, 1))
        assert same(store.read_expert(0), expert(0, 1), rounded=False)
    assert not (tmp_path / "model").exists()


# ------------------------------------------------------------------------------ states that cannot be


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda s: s.core.pop("ln_f.weight"), "lacks ln_f.weight"),
        (lambda s: s.core.update({"ln_f.weight": np.ones(5)}), "has ln_f.weight as 5 where 4 was due"),
        (lambda s: s.core["halt.bias"].fill(np.nan), "not finite"),
        (lambda s: s.experts[1].weights["w1"].fill(np.inf), "Expert 1 holds numbers in w1"),
        (lambda s: s.experts[1].moments.pop("w2_v"), "lacks w2_v"),
        (lambda s: s.routers["pool.gate"].fill(np.nan), "not finite"),
        (
            lambda s: s.optim.update({"ln_f.weight": (np.ones(3), np.ones(3), 1.0)}),
            "Adam's state of ln_f.weight",
        ),
        (lambda s: s.uids.append(1), "an expert twice"),
        (lambda s: s.manifest["telemetry"].update(uid=[2, 1, 0]), "another order"),
        (lambda s: s.manifest["cfg"].update(d_model=0), "d_model 0"),
        (lambda s: s.experts.pop(2) and s.uids.append(9), "Expert 9 is neither"),
    ],
)
def test_nothing_is_saved_that_would_not_open(spoil, words: str, tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    before = public(path)
    bad: CheckpointState = state([0, 1, 2], 2)
    spoil(bad)
    with Store.open(path, write=True) as store:
        with pytest.raises(WeightsError, match=words):
            store.checkpoint(bad)
        assert (public(path), store.manifest["step"]) == (before, 1)
        store.checkpoint(state([0, 1, 2], 3))
    assert public(path) != before


# --------------------------------------------------------------------------------- public directories


def public_directory(path: Path, flat: bool = True) -> Path:
    """A directory of another program: nothing of ours in it, experts flat."""
    make(path)
    shutil.rmtree(path / ".minagi")
    for uid in (0, 1, 2):
        record = expert(uid, 1)
        file = path / "experts" / f"e{uid:05d}.npz"
        file.unlink()
        if flat:
            np.save(
                file.with_suffix(".npy"),
                np.concatenate([record.weights[n].ravel() for n in ("w1", "w3", "w2")]),
            )
        else:
            np.savez(file, **record.weights)
    edit_manifest(path, experts=None, paged=None)
    return path


@pytest.mark.parametrize("flat", [True, False])
def test_older_directories_open_and_are_saved_in_the_present_form(flat: bool, tmp_path: Path) -> None:
    path = public_directory(tmp_path / "old", flat)
    before = everything(path)
    with Store.open(path, write=True) as store:
        assert store.uids == [0, 1, 2]
        assert store.read_expert(1).moments is None
        assert np.array_equal(store.read_expert(1).weights["w2"], expert(1, 1).weights["w2"])
        assert {k: v for k, v in everything(path).items() if not k.startswith(".minagi")} == before
        store.checkpoint(state([0, 1, 2], 2, changed=[0]))
        assert np.array_equal(store.read_expert(1).weights["w2"], expert(1, 1).weights["w2"])
        assert [entry["moments"] for entry in store.manifest["experts"]] == [True, flat, flat]
        store.revert("1")
    assert {k: b for k, (b, _) in before.items()} == public(path)


def test_uids_with_gaps_ids_by_position_and_unknown_keys(tmp_path: Path) -> None:
    path = make(tmp_path / "model", uids=(7, 3, 12))
    manifest = json.loads((path / "manifest.json").read_text())
    for position, entry in enumerate(manifest["experts"]):
        entry.update(id=position, theirs=position)
    manifest["telemetry"]["colour"] = "blue"
    manifest["cfg"]["pool_max"] = 1  # more experts than that
    edit_manifest(path, **{**manifest, "theirs": {"deep": [1, {"x": None}]}})
    with Store.open(path, write=True) as store:
        assert store.uids == [7, 3, 12]
        assert same(store.read_expert(3), expert(3, 1))
        store.checkpoint(state([7, 12, 13], 2, changed=[13], cfg={**CFG, "pool_max": 1}))
        assert store.manifest["theirs"] == {"deep": [1, {"x": None}]}
        assert store.manifest["telemetry"]["colour"] == "blue"
        assert [entry["id"] for entry in store.manifest["experts"]] == [7, 12, 13]
    assert sorted(p.name for p in (path / "experts").iterdir()) == ["e00007.npz", "e00012.npz", "e00013.npz"]


def test_moments_are_read_alone_and_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "model")
    read: list[str] = []
    whole = Npz.read
    monkeypatch.setattr(
        Npz, "read", lambda a, m, *, check: (read.append(m.name), whole(a, m, check=check))[1]
    )
    with Store.open(path, write=True) as store:
        found = store.read_expert(2, weights=False)
    assert read == list(found.moments) and not found.weights and found.average is None
    assert {array.dtype.name for array in found.moments.values()} == {"int16"}
    assert all(
        np.array_equal(from_bf16(a), round_moments(expert(2, 1).moments[n])) for n, a in found.moments.items()
    )


def test_bits_are_spilled_as_bits(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        given = expert(1, 5)
        given.moments = {name: to_bf16(array) for name, array in given.moments.items()}
        store.spill_expert(given)
        assert same(store.read_expert(1), expert(1, 5))
        store.checkpoint(state([0, 1, 2], 2, changed=[]))
        assert same(store.read_expert(1), expert(1, 5))


def test_moments_in_other_forms_and_slot_tensors(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    record = expert(1, 4)
    halves = {n: a.astype(np.float16) for n, a in record.weights.items()}
    replace_npz(path / "experts" / "e00001.npz", {**halves, **record.moments})
    slots = np.ones((2, 2, 4), np.float32)
    optim = {
        "ln_f.weight|m": np.full(4, 0.1, np.float32),
        "ln_f.weight|v": np.full(4, 0.2, np.float64),
        "ln_f.weight|t": np.array([5], np.int64),
        "halt.weight|t": np.array(5.0),
        "pool.gate|m": np.ones(9, np.float32),  # of a time when the pool was larger
        "pool.gate|v": np.ones(9, np.float32),
        "pool.gate|t": np.array(5.0),
        "pool.w1|m": slots,
        "pool.w1|v": slots,
        "pool.w1|t": np.array(120.0),
        "gone.weight|m": slots,
        "gone.weight|t": np.array(3.0),
    }
    replace_npz(path / "optim.npz", optim)
    with Store.open(path, write=True) as store:
        found = store.read_expert(1)
        assert all(np.array_equal(found.moments[n], a) for n, a in record.moments.items())
        assert np.array_equal(found.weights["w1"], halves["w1"].astype(np.float32))
        read = store.read_optim()
        assert np.array_equal(read["ln_f.weight"][0], np.full(4, 0.1, np.float32))
        assert read["ln_f.weight"][2] == 5.0
        assert read["halt.weight"] == (None, None, 0.0)
        assert read["pool.gate"] == (None, None, 0.0)
        assert read["pool.w1"] == (None, None, 120.0)
        assert "gone.weight" not in read
        saved = state([0, 1, 2], 2)
        saved.optim = read
        store.checkpoint(saved)
        assert store.read_optim()["pool.w1"] == (None, None, 120.0)


def replace_npz(file: Path, arrays: dict[str, np.ndarray]) -> None:
    file.unlink()
    write_npz(file, arrays)


def test_a_directory_without_optimiser_state(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    shutil.rmtree(path / ".minagi")
    (path / "optim.npz").unlink()
    with Store.open(path, write=True) as store:
        assert store.read_optim() == {}
        store.checkpoint(state([0, 1, 2], 2))
        store.revert("1")
        assert store.read_optim() == {}
        assert not (path / "optim.npz").exists()


@pytest.mark.skipif(
    not FIXTURE.is_dir(), reason="the recorded directory ../shared/fixtures/small is not here"
)
def test_the_recorded_public_directory_opens_and_saves_as_numpy_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(FIXTURE, path, copy_function=shutil.copyfile)
    path.chmod(0o755), (path / "experts").chmod(0o755)
    with Store.open(path, write=True) as store:
        core, routers, optim = store.read_core(), store.read_routers(), store.read_optim()
        assert store.shape["d_model"] == 64
        assert core["adapter.weight"].shape == (64, 128)
        assert optim["pool.w1"] == (None, None, 120.0)
        experts = {uid: store.read_expert(uid) for uid in store.uids}
        assert all(record.moments is not None for record in experts.values())
        saved = CheckpointState(store.manifest, core, routers, optim, experts, store.uids)
        store.checkpoint(saved)
    for file in sorted(FIXTURE.rglob("*.npz")):
        with np.load(file) as theirs, np.load(path / file.relative_to(FIXTURE), allow_pickle=False) as ours:
            assert sorted(ours.files) == sorted(theirs.files)
            assert all(
                ours[n].dtype == theirs[n].dtype and np.array_equal(ours[n], theirs[n]) for n in ours.files
            )
    before, after = (json.loads((p / "manifest.json").read_text()) for p in (FIXTURE, path))
    for manifest in (before, after):
        manifest.pop("total_bytes")
        for entry in manifest["experts"]:
            entry.pop("bytes")
    assert after == before


def test_a_spilled_expert_that_somebody_removed_is_told_of(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        store.spill_expert(expert(1, 9))
        shutil.rmtree(path / ".minagi" / "spill")
        with pytest.raises(WeightsError, match=r"was removed by another program\. Revert to the last"):
            store.read_expert(1)
