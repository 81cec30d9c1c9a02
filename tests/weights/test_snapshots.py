from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weights_models import expert, has_spill, make, public, state

from minagi.errors import UsageError, WeightsError
from minagi.weights import CheckpointState, SnapshotInfo, Store, files, snapshots


def run(path: Path, steps: int, start: int = 2) -> None:
    with Store.open(path, write=True, clock=lambda: 50.0) as store:
        for step in range(start, start + steps):
            store.checkpoint(state([0, 1, 2], step, changed=[step % 3]))


def test_a_checkpoint_says_what_it_kept(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True, clock=lambda: 77.0) as store:
        info = store.checkpoint(state([0, 1, 2], 4, changed=[1]), kind="final")
        assert (info.id, info.kind, info.at, info.step, info.chars) == ("2", "final", 77.0, 4, 400)
        assert (info.held_out, info.experts) == (2.96, 3)
        changed = sum((path / n).stat().st_size for n in public(path) if "experts" not in n or "00001" in n)
        assert info.bytes_written == changed
        assert store.checkpoint(state([0, 1, 2], 5, changed=[]), name="mine").kind == "named"
        assert [i.id for i in store.snapshots()] == ["3", "2", "1"]
        with pytest.raises(UsageError, match="kind"):
            store.checkpoint(state([0, 1, 2], 5), kind="other")


@pytest.mark.parametrize(
    ("kind", "name", "kept"),
    [("auto", "", "auto"), ("asked", "", "asked"), ("auto", "n", "named"), ("asked", "n", "named"),
     ("best", "", "best"), ("final", "n", "final")],
)  # fmt: skip
def test_a_kind_says_who_wanted_it(kind: str, name: str, kept: str, tmp_path: Path) -> None:
    with Store.open(make(tmp_path / "model"), write=True) as store:
        assert store.checkpoint(state([0, 1, 2], 5), kind=kind, name=name).kind == kept
        assert store.snapshots()[0].kind == kept


@pytest.mark.parametrize("value", [float("nan"), "3.0", True, [1.0], None, 10**400])
def test_a_reading_that_is_no_number_is_none(value: object) -> None:
    assert snapshots.held_out_of({"val": value}) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("at", 1e300), ("at", float("inf")), ("at", float("nan")), ("step", 1e400), ("chars", "many")],
)  # fmt: skip
def test_a_snapshot_of_impossible_figures_is_damaged(key: str, value: object, tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    file = path / ".minagi" / "snapshots" / "000001" / "meta.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with Store.open(path, write=False) as store:
        assert [info.kind for info in store.snapshots()] == ["damaged"]


def test_unchanged_experts_are_shared_and_what_deleting_frees_is_told(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    run(path, 2)
    keep = path / ".minagi" / "snapshots"
    inodes = [(keep / f"{n:06d}" / "experts" / "e00001.npz").stat().st_ino for n in (1, 2, 3)]
    assert inodes[0] == inodes[1] == (path / "experts" / "e00001.npz").stat().st_ino
    with Store.open(path, write=True) as store:
        newest, middle, _ = store.snapshots()
        assert newest.bytes_freed == (keep / "000003" / "meta.json").stat().st_size  # the rest is in place
        before = store.disk_bytes()
        store.delete_snapshot(middle.id)
        assert before - store.disk_bytes() == middle.bytes_freed > 0
        assert [i.id for i in store.snapshots()] == ["3", "1"]


def test_retention_keeps_the_last_the_best_the_named_and_the_undos(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        best = state([0, 1, 2], 2)
        best.manifest["val"] = 0.5
        store.checkpoint(best)
        store.checkpoint(state([0, 1, 2], 3), name="mine")
        for step in range(4, 8):
            store.checkpoint(state([0, 1, 2], step), kind="before-revert")
        for step in range(8, 16):
            store.checkpoint(state([0, 1, 2], step))
        kept = {i.step: (i.kind, i.name) for i in store.snapshots()}
    automatic = dict.fromkeys(range(11, 16), ("auto", ""))
    undos = dict.fromkeys((5, 6, 7), ("before-revert", ""))
    assert kept == {2: ("auto", ""), 3: ("named", "mine"), **undos, **automatic}


def test_the_best_of_other_text_ages_out_like_others(tmp_path: Path) -> None:
    def reading(step: int, val: float, text: str) -> CheckpointState:
        made = state([0, 1, 2], step)
        made.manifest |= {"val": val, snapshots.MEASURED: text}
        return made

    with Store.open(tmp_path / "model", write=True) as store:
        store.checkpoint(reading(1, 0.5, "easy"))
        store.checkpoint(reading(2, 2.0, "hard"))
        for step in range(3, 7):
            store.checkpoint(reading(step, 3.0, "hard"))
        assert [i.step for i in store.snapshots()] == [6, 5, 4, 3, 2]
        store.checkpoint(reading(7, 3.0, "hard"))
        assert [(i.step, i.measured) for i in store.snapshots()][-1] == (2, "hard"), "the best by now"
        for step in range(8, 13):
            store.checkpoint(reading(step, 3.0, "other"))
        assert [i.step for i in store.snapshots()] == [12, 11, 10, 9, 8]


infos = st.lists(
    st.builds(
        SnapshotInfo,
        id=st.integers(1, 999).map(str),
        name=st.sampled_from(["", "", "", "mine"]),
        kind=st.sampled_from(snapshots.KINDS),
        held_out=st.none() | st.floats(0, 5),
        measured=st.sampled_from(["one text", "other text"]),
    ),
    unique_by=lambda info: info.id,
    max_size=30,
)


@given(infos)
def test_retention_never_lets_the_wrong_ones_go(known: list[SnapshotInfo]) -> None:
    going = snapshots.expendable(known)
    staying = [info for info in known if info not in going]
    assert all(not info.name for info in going)
    for kinds, kept in ((("before-revert",), 3), (("auto", "asked", "named", "best", "final"), 5)):
        of_kind = [i for i in known if not i.name and i.kind in kinds]
        newest = sorted(of_kind, key=lambda i: int(i.id))[-kept:]
        assert all(info in staying for info in newest)
        assert sum(info in staying for info in of_kind) <= kept + 1
    text = max(known, key=lambda i: int(i.id)).measured if known else ""
    measured = [
        i.held_out
        for i in known
        if not i.name and i.kind != "before-revert" and i.held_out is not None and i.measured == text
    ]
    assert not measured or min(measured) in [i.held_out for i in staying]


def test_a_snapshot_tells_the_ways_that_led_to_it(tmp_path: Path) -> None:
    """Also when those between are gone, and over a restart; old ones that do not tell still open."""
    path = make(tmp_path / "model")  # snapshot 1 at step 1
    with Store.open(path, write=True) as store:
        assert store.standing() == "1"
        store.checkpoint(state([0, 1, 2], 5))
        store.revert("1")
        assert store.standing() == "1"
    with Store.open(path, write=True) as store:
        assert store.standing() == "1"
        store.checkpoint(state([0, 1, 2], 3, changed=[0]))
        assert store.standing() == "3"
        store.delete_snapshot("1")
        store.keep(name="a")
        kept = {info.id: info.ways for info in store.snapshots()}
        assert kept == {"2": ((1, 5, 500),), "3": (one := ((1, 1, 100), (3, 3, 300))), "4": one}
        assert store.standing() == "4"
    for meta in path.rglob("meta.json"):
        body = json.loads(meta.read_text())
        del body["ways"], body["held_out_step"]
        meta.write_text(json.dumps({**body, **({"ways": [[1]]} if "2" in meta.parent.name else {})}))
    with Store.open(path, write=True) as store:
        assert {info.ways for info in store.snapshots()} == {()}
        info = store.checkpoint(state([0, 1, 2], 7, changed=[0]))
        assert info.ways[-1][1:] == (7, 700) and store.standing() == info.id
    shutil.rmtree(path / ".minagi" / "snapshots")
    with Store.open(path, write=True) as store:
        assert store.standing() == ""
        assert store.present().id == store.standing()
    with Store.open(path, write=False) as store:
        assert store.standing() == "", "who only reads goes on from nothing"


def test_what_was_gone_back_from_outlives_what_comes_after(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        for step in range(2, 8):
            store.checkpoint(state([0, 1, 2], step))
        undo = store.revert("5").undo
        for step in range(6, 14):
            store.checkpoint(state([0, 1, 2], step))
        kept = [info.id for info in store.snapshots()]
    assert undo == "7" and kept == ["15", "14", "13", "12", "11", "7"]


def test_a_named_one_stays_until_it_is_deleted(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        store.checkpoint(state([0, 1, 2], 2), name="mine")
        for step in range(3, 12):
            store.checkpoint(state([0, 1, 2], step))
        store.delete_snapshot("mine")
        assert all(info.name != "mine" for info in store.snapshots())
        with pytest.raises(UsageError, match="no snapshot 'mine'"):
            store.revert("mine")


def test_deleting_never_changes_the_model(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    run(path, 2)
    before = public(path)
    with Store.open(path, write=True) as store:
        present, *others = store.snapshots()
        for info in others:
            store.delete_snapshot(info.id)
        with pytest.raises(UsageError, match="goes on from this checkpoint"):
            store.delete_snapshot(present.id)
        assert store.snapshots() == [present]
        assert public(path) == before


@pytest.mark.parametrize("room", [True, False])
def test_the_id_of_a_deleted_snapshot_never_means_another(
    room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "model")
    run(path, 2)
    write = files.write_file

    def full(path: Path, chunks: Iterable[bytes], sync: bool = True) -> int:
        if (path.parent / "000003").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, chunks, sync=sync)

    with Store.open(path, write=True) as store:
        store.revert("1")
        with monkeypatch.context() as patch:
            if not room:
                patch.setattr(files, "write_file", full)
            store.delete_snapshot("3")
        store.revert("2")
    with Store.open(path, write=True) as store:
        assert store.checkpoint(state([0, 1, 2], 9)).id == "4"
        assert [info.id for info in store.snapshots()] == ["4", "2", "1"]
        store.revert("1")
        store.delete_snapshot("4")
        assert store.checkpoint(state([0, 1, 2], 9)).id == "5"


# -------------------------------------------------------------------------------------------- revert


def test_revert_restores_every_byte_and_can_be_undone(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    first = public(path)
    with Store.open(path, write=True) as store:
        store.checkpoint(state([0, 2, 3, 4], 2, changed=[2, 3, 4]))
        second = public(path)
        store.spill_expert(expert(2, 9))
        undo = store.checkpoint(state([0, 2, 3, 4], 3, changed=[]), kind="before-revert")
        present = public(path)
        store.revert("1")
        assert public(path) == first
        assert (store.uids, store.manifest["step"], has_spill(store, 2)) == ([0, 1, 2], 1, False)
        store.revert("2")
        assert public(path) == second
        store.revert(undo.id)
        assert public(path) == present
    with Store.open(path, write=True) as store:
        assert (store.uids, store.manifest["step"]) == ([0, 2, 3, 4], 3)


def test_revert_to_the_last_checkpoint_forgets_the_spill(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    before = public(path)
    with Store.open(path, write=True) as store:
        store.spill_expert(expert(1, 9))
        store.revert("")
        assert not has_spill(store, 1)
        assert (store.read_expert(1).weights["w1"] == expert(1, 1).weights["w1"]).all()
    assert public(path) == before


def test_a_revert_without_a_trainer_keeps_the_present(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    run(path, 1)
    present = public(path)
    with Store.open(path, write=True) as store:
        undo = store.keep(kind="before-revert")
        store.revert("1")
        store.revert(undo.id)
        assert public(path) == present
        store.delete_snapshot("2")
        shutil.rmtree(path / ".minagi" / "snapshots" / f"{int(undo.id):06d}")
        store.revert("1")  # nothing keeps the present any more, so it is kept first
        store.revert(store.snapshots()[0].id)
    assert public(path) == present


def test_a_damaged_snapshot_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    run(path, 1)
    core = path / ".minagi" / "snapshots" / "000001" / "core.npz"
    data = core.read_bytes()
    core.write_bytes(data.replace(state([0], 1).core["ln_f.weight"].tobytes(), bytes(16)))
    before = public(path)
    with Store.open(path, write=True) as store:
        with pytest.raises(WeightsError, match=r"000001/core\.npz is damaged.*Go back to another snapshot"):
            store.revert("1")
        core.write_bytes(b"other")
        with pytest.raises(WeightsError, match="another program changed it"):
            store.revert("1")
        core.unlink()
        with pytest.raises(WeightsError, match="is missing"):
            store.revert("1")
        assert public(path) == before
        store.checkpoint(state([0, 1, 2], 5))


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"{}", b'{"files": {"../../x": [1, 2]}}'])
def test_a_snapshot_nobody_can_read_is_listed_and_can_be_deleted(
    content: bytes | None, tmp_path: Path
) -> None:
    path = make(tmp_path / "model")
    run(path, 1)
    meta = path / ".minagi" / "snapshots" / "000001" / "meta.json"
    meta.write_bytes(content) if content is not None else meta.unlink()
    with Store.open(path, write=True) as store:
        assert [(i.id, i.kind) for i in store.snapshots()] == [("2", "auto"), ("1", "damaged")]
        with pytest.raises(WeightsError, match=r"meta\.json"):
            store.revert("1")
        store.checkpoint(state([0, 1, 2], 5))
        store.delete_snapshot("1")
        assert [i.id for i in store.snapshots()] == ["3", "2"]


def test_a_snapshot_cannot_name_files_of_others(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    run(path, 1)
    file = path / ".minagi" / "snapshots" / "000001" / "meta.json"
    meta = json.loads(file.read_text())
    meta["files"]["experts/../../../outside"] = [3, 3]
    file.write_text(json.dumps(meta))
    with Store.open(path, write=True) as store, pytest.raises(WeightsError, match="none of a model"):
        store.revert("1")


# ------------------------------------------------------------------------------------ without links


def test_copies_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(files, "link", refuse)
    path = make(tmp_path / "model")
    first = public(path)
    run(path, 2)
    with Store.open(path, write=False) as reader:
        assert reader.manifest["step"] == 3
        run(path, 1, start=4)
        assert reader.read_expert(1).uid == 1
    with Store.open(path, write=True) as store:
        store.revert("1")
        assert public(path) == first


def test_a_copied_directory_keeps_its_snapshots(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    first = public(path)
    run(path, 2)
    copy = tmp_path / "copy"
    shutil.copytree(path, copy, copy_function=shutil.copyfile)  # no links, other times
    with Store.open(copy, write=True) as store:
        assert [i.id for i in store.snapshots()] == ["3", "2", "1"]
        store.checkpoint(state([0, 1, 2], 8, changed=[]))
        assert [i.step for i in store.snapshots()] == [8, 3, 2, 1]  # the present was known to be kept
        store.revert("1")
        assert public(copy) == first


def test_another_program_writing_in_place_is_noticed(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    run(path, 1)
    other = make(tmp_path / "other", seed=8)
    with (path / "core.npz").open("r+b") as file:  # as a program would that knows nothing of our links
        file.truncate()
        file.write((other / "core.npz").read_bytes())
    with Store.open(path, write=True) as store:
        with pytest.raises(WeightsError, match="another program changed it"):
            store.revert("2")
        assert (store.read_core()["ln_f.weight"] == state([0], 8).core["ln_f.weight"]).all()
        store.checkpoint(state([0, 1, 2], 5))
        assert [i.id for i in store.snapshots()] == ["4", "3", "2", "1"]
        store.revert("3")  # the present, as it was found
        assert (path / "core.npz").read_bytes() == (other / "core.npz").read_bytes()


def test_a_pinned_snapshot_stays_until_its_reader_closes(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    reader = Store.open(path, write=False)
    run(path, 9)
    assert reader.manifest["step"] == 1
    assert reader.read_expert(2).uid == 2
    with Store.open(path, write=True) as store:
        assert [i.step for i in store.snapshots()] == [10, 9, 8, 7, 6, 1]
        with pytest.raises(WeightsError, match="being read by another program"):
            store.delete_snapshot("1")
        reader.close()
        store.checkpoint(state([0, 1, 2], 11))
        assert [i.step for i in store.snapshots()] == [11, 10, 9, 8, 7]
