"""Broken and hostile directories: each is refused with file, fault and remedy, and nothing is written."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from weights_models import CFG, edit_manifest, everything, expert, make, public, replace, state

from minagi import cli
from minagi.errors import EXIT_BAD_FILE, WeightsError
from minagi.weights import Store, files, layout
from minagi.weights.npz import write_npz


def spoil_array(path: Path, file: str, name: str, array: np.ndarray | None) -> None:
    """Puts another array into an archive, or takes one out."""
    with np.load(path / file) as archive:
        arrays = {n: archive[n] for n in archive.files}
    arrays.pop(name)
    if array is not None:
        arrays[name] = array
    (path / file).unlink()
    write_npz(path / file, arrays)


def spoil_bytes(path: Path, file: str, change: Callable[[bytes], bytes]) -> None:
    replace(path / file, change((path / file).read_bytes()))


def telemetry(path: Path, **changes: object) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    edit_manifest(path, telemetry={**manifest["telemetry"], **changes})


def cfg(path: Path, **changes: object) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    edit_manifest(path, cfg={k: v for k, v in {**manifest["cfg"], **changes}.items() if v is not None})


def entry(path: Path, **changes: object) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["experts"][1] = {k: v for k, v in {**manifest["experts"][1], **changes}.items() if v is not None}
    edit_manifest(path, experts=manifest["experts"])


def link(path: Path, file: str, target: Path) -> None:
    original = path / file
    original.rename(target) if not target.exists() else None
    if original.exists():
        original.unlink()
    original.symlink_to(target)


W1 = np.ones((2, 4), np.float32)
MANIFEST = "manifest.json"
EXPERT = "experts/e00001.npz"

# what is done to a sound directory -> words that the sentence holds
AT_OPENING: dict[str, tuple[Callable[[Path], object], str]] = {
    "manifest empty": (lambda p: replace(p / MANIFEST, b""), "manifest.json is not readable as JSON"),
    "manifest cut": (
        lambda p: spoil_bytes(p, MANIFEST, lambda b: b[:99]),
        "manifest.json is not readable as JSON",
    ),
    "manifest a list": (lambda p: replace(p / MANIFEST, b"[1]"), "holds a JSON list"),
    "manifest binary": (lambda p: replace(p / MANIFEST, b"\xff\x00\x9c"), "not readable as JSON"),
    "manifest deep": (lambda p: replace(p / MANIFEST, b"[" * 200_000), "not readable as JSON"),
    "manifest missing": (lambda p: (p / MANIFEST).unlink(), "manifest.json is missing"),
    "manifest a folder": (
        lambda p: ((p / MANIFEST).unlink(), (p / MANIFEST).mkdir()),
        "not an ordinary file",
    ),
    "manifest a pipe": (lambda p: ((p / MANIFEST).unlink(), os.mkfifo(p / MANIFEST)), "not an ordinary file"),
    "from the future": (lambda p: edit_manifest(p, format=2), "written by a newer program (format 2"),
    "version 99": (lambda p: edit_manifest(p, version=99), "Update this program"),
    "no cfg": (lambda p: edit_manifest(p, cfg=None), "lacks 'cfg'"),
    "cfg a list": (lambda p: edit_manifest(p, cfg=[]), "'cfg' that is no object"),
    "no d_model": (lambda p: cfg(p, d_model=None), "lacks 'd_model'"),
    "d_model text": (lambda p: cfg(p, d_model="4"), "d_model '4'"),
    "d_model huge": (lambda p: cfg(p, d_model=10**9), "d_model 1000000000"),
    "d_model true": (lambda p: cfg(p, d_model=True), "d_model True"),
    "ngram text": (lambda p: cfg(p, ngram="5"), "ngram '5'"),
    "ngram true": (lambda p: cfg(p, ngram=True, ngram_rows=4), "ngram True"),
    "ngram huge": (lambda p: cfg(p, ngram=65, ngram_rows=4), "ngram 65"),
    "ngram rows below none": (lambda p: cfg(p, ngram=3, ngram_rows=-1), "ngram_rows -1"),
    "ngram tables that are not there": (
        lambda p: cfg(p, ngram=3, ngram_rows=1 << 28),
        "lacks the tensor 'ngram.weight'",
    ),
    "word rows below none": (lambda p: cfg(p, ngram=3, ngram_rows=4, word_rows=-1), "word_rows -1"),
    "word rows that are not there": (
        lambda p: cfg(p, ngram=3, ngram_rows=4, word_rows=1 << 28),
        "lacks the tensor 'ngram.weight'",
    ),
    "ngram young": (lambda p: cfg(p, ngram_young=1), "ngram_young 1; true or false"),
    "d_model other": (lambda p: cfg(p, d_model=6), "the manifest calls for 265 × 6"),
    "heads": (lambda p: cfg(p, n_head=3), "cannot share"),
    "untied": (lambda p: cfg(p, tie_embeddings=False), "neither is supported"),
    "no pool": (lambda p: cfg(p, use_pool=False), "neither is supported"),
    "vocabulary": (lambda p: cfg(p, vocab_size=50257), "vocab_size 50257; 265 was expected"),
    "NaN": (lambda p: cfg(p, rope_theta=float("nan")), "rope_theta nan"),
    "step": (lambda p: edit_manifest(p, step=-1), "says step -1"),
    "a billion experts": (
        lambda p: edit_manifest(p, n_experts=10**9),
        "n_experts 1000000000, and there are 3",
    ),
    "a billion experts in cfg": (lambda p: cfg(p, pool_experts=10**9), "pool_experts 1000000000"),
    "a billion experts, no list": (
        lambda p: (edit_manifest(p, n_experts=10**9, experts=None), telemetry(p, uid=None)),
        "",
    ),
    "no experts": (lambda p: edit_manifest(p, experts=[], telemetry=None, n_experts=0), "names no experts"),
    "experts an object": (lambda p: edit_manifest(p, experts={}), "'experts' that is no list"),
    "experts of numbers": (lambda p: edit_manifest(p, experts=[1, 2, 3]), "no object"),
    "another order": (lambda p: telemetry(p, uid=[1, 0, 2]), "another order"),
    "twice": (lambda p: entry(p, id=0, file="e00000.npz"), "expert 0 twice"),
    "id and file": (lambda p: entry(p, id=44), "the id 44"),
    "escape": (lambda p: entry(p, file="../../x"), "names the expert file '../../x'"),
    "absolute": (lambda p: entry(p, file="/etc/passwd"), "names the expert file '/etc/passwd'"),
    "subfolder": (lambda p: entry(p, file="a/e00001.npz"), "names the expert file"),
    "file a number": (lambda p: entry(p, file=3), "names the expert file 3"),
    "expert missing": (lambda p: (p / EXPERT).unlink(), "e00001.npz is missing"),
    "expert empty": (lambda p: replace(p / EXPERT, b""), "e00001.npz is empty"),
    "expert cut": (lambda p: spoil_bytes(p, EXPERT, lambda b: b[:-30]), "e00001.npz is cut short"),
    "expert halved": (
        lambda p: spoil_bytes(p, EXPERT, lambda b: b[: len(b) // 2]),
        "e00001.npz is cut short",
    ),
    "expert's shape": (
        lambda p: spoil_array(p, EXPERT, "w1", W1.T),
        "'w1' as 4 × 2; the manifest calls for 2 × 4",
    ),
    "expert lacks w2": (lambda p: spoil_array(p, EXPERT, "w2", None), "lacks the tensor 'w2'"),
    "expert linked out": (lambda p: link(p, EXPERT, p.parent / "out.npz"), "e00001.npz is a symbolic link"),
    "experts linked out": (lambda p: link(p, "experts", p.parent / "out"), "experts is a symbolic link"),
    "ours linked out": (lambda p: link(p, ".minagi", p.parent / "out"), ".minagi is a symbolic link"),
    "core linked out": (lambda p: link(p, "core.npz", p.parent / "out"), "core.npz is a symbolic link"),
    "core cut": (lambda p: spoil_bytes(p, "core.npz", lambda b: b[:1000]), "core.npz is cut short"),
    "core missing": (lambda p: (p / "core.npz").unlink(), "has no core.npz but holds experts"),
    "router of other size": (
        lambda p: spoil_array(p, "routers.npz", "pool.gate", np.ones(4, np.float32)),
        "'pool.gate' as 4; the manifest calls for 3",
    ),
    "routers missing": (lambda p: (p / "routers.npz").unlink(), "routers.npz is missing"),
    "optimiser cut": (lambda p: spoil_bytes(p, "optim.npz", lambda b: b[:1000]), "optim.npz is cut short"),
}


@pytest.mark.parametrize("kept", [True, False], ids=["with snapshots", "without"])
@pytest.mark.parametrize("name", AT_OPENING)
def test_refused_when_it_is_opened(
    name: str, kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path / "model")
    if not kept:
        shutil.rmtree(path / ".minagi")
        if name == "ours linked out":
            pytest.skip("there is nothing of ours to link")
    spoil, words = AT_OPENING[name]
    spoil(path)
    before = everything(path) if "pipe" not in name else None
    for write in (False, True):
        with pytest.raises(WeightsError) as caught:
            Store.open(path, write=write)
        sentence = str(caught.value)
        assert words in sentence
        assert str(path) in sentence
        assert sentence.endswith(".")
        assert caught.value.exit_status == EXIT_BAD_FILE
    for command in (["info"], ["snapshots"], ["info", "--json"]):
        assert cli.main([*command, str(path)]) == EXIT_BAD_FILE
        told = capsys.readouterr()
        assert told.out == ""
        assert words in told.err
    assert before is None or everything(path) == before


@pytest.mark.parametrize("name", [name for name in AT_OPENING if name != "ours linked out"])
def test_whatever_was_refused_goes_back_to_its_snapshot(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path / "model")
    whole = public(path)
    AT_OPENING[name][0](path)
    status = cli.main(["revert", str(path), "--to", "1"])
    said = capsys.readouterr().err
    if name in ("manifest a folder", "experts linked out"):  # somebody's: it is not removed
        assert status == EXIT_BAD_FILE
        wrong = path / (MANIFEST if "manifest" in name else "experts")
        assert str(wrong) in said
        assert "in the way" in said
        assert "Move it aside" in said
        wrong.rename(tmp_path / "aside")
        status = cli.main(["revert", str(path), "--to", "1"])
        said = capsys.readouterr().err
    assert status == 0, said
    assert public(path) == whole
    assert cli.main(["info", str(path)]) == 0


# found only when the numbers are read
AT_READING: dict[str, tuple[Callable[[Path], object], str]] = {
    "NaN weight": (
        lambda p: spoil_array(p, EXPERT, "w1", W1 * np.nan),
        "numbers in 'w1' that are not finite",
    ),
    "infinite moment": (
        lambda p: spoil_array(p, EXPERT, "w1_m", W1 * np.inf),
        "numbers in 'w1_m' that are not finite",
    ),
    "negative square": (
        lambda p: spoil_array(p, EXPERT, "w1_v", -W1),
        "a mean of squares, holds negative numbers",
    ),
    "whole numbers": (lambda p: spoil_array(p, EXPERT, "w1", W1.astype(np.int32)), "'w1' as int32"),
    "moment of bytes": (lambda p: spoil_array(p, EXPERT, "w1_m", W1.astype(np.int8)), "'w1_m' as int8"),
    "moment's shape": (lambda p: spoil_array(p, EXPERT, "w1_m", W1.T), "lacks the moment w1_m as 2 × 4"),
    "one moment gone": (lambda p: spoil_array(p, EXPERT, "w1_m", None), "lacks the moment w1_m"),
    "flipped bit": (
        lambda p: spoil_bytes(
            p, EXPERT, lambda b: b.replace(expert(1, 1).weights["w1"].tobytes(), bytes(32))
        ),
        "checksum",
    ),
    "NaN in the trunk": (
        lambda p: spoil_array(p, "core.npz", "halt.bias", np.full(1, np.nan)),
        "'halt.bias'",
    ),
    "NaN in the router": (
        lambda p: spoil_array(p, "routers.npz", "pool.gate", np.full(3, np.nan)),
        "'pool.gate'",
    ),
    "NaN in Adam": (
        lambda p: spoil_array(p, "optim.npz", "halt.bias|m", np.full(1, np.nan)),
        "'halt.bias|m'",
    ),
    "Adam's count": (lambda p: spoil_array(p, "optim.npz", "halt.bias|t", np.array(-3.0)), "is -3"),
    "Adam's counts": (
        lambda p: spoil_array(p, "optim.npz", "halt.bias|t", np.ones(5)),
        "one number was expected",
    ),
}


def read_everything(store: Store) -> None:
    store.read_core(), store.read_routers(), store.read_optim()
    for uid in store.uids:
        store.read_expert(uid)


@pytest.mark.parametrize("name", AT_READING)
def test_refused_when_it_is_read(name: str, tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    spoil, words = AT_READING[name]
    spoil(path)
    before = public(path)
    with Store.open(path, write=True) as store:
        for _ in range(2):  # and again: a file that failed is not taken as known
            with pytest.raises(WeightsError) as caught:
                read_everything(store)
            assert words in str(caught.value)
            assert "Go back to snapshot 1 with `minagi revert" in str(caught.value)
        assert public(path) == before
        store.revert("1")
        read_everything(store)


def test_the_remedy_is_a_snapshot_that_has_the_file_whole(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        store.checkpoint(state([0, 1, 2], 2, changed=[1]))
        store.checkpoint(state([0, 1, 2], 3, changed=[]))
    data = (path / EXPERT).read_bytes().replace(expert(1, 2).weights["w1"].tobytes(), bytes(32))
    (path / EXPERT).write_bytes(data)  # the disk's own fault: every name of the file is hit
    with Store.open(path, write=False) as store, pytest.raises(WeightsError) as caught:
        read_everything(store)
    assert f"{path / EXPERT} is damaged" in str(caught.value)
    assert "Go back to snapshot 1 with" in str(caught.value)
    with Store.open(path, write=True) as store:
        store.delete_snapshot("1")
        with pytest.raises(WeightsError, match="Restore it from a copy of the model, or move"):
            read_everything(store)


def test_a_damaged_directory_can_be_opened_for_repair(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with Store.open(path, write=True) as store:
        store.checkpoint(state([0, 2, 3], 2, changed=[3]))
    replace(path / MANIFEST, b"{")
    with Store.open(path, write=True, repair=True) as store:
        with pytest.raises(WeightsError, match=r"Go back to snapshot 2 with `minagi revert .* --to 2`"):
            _ = store.manifest
        assert [info.id for info in store.snapshots()] == ["2", "1"]
        store.revert("1")
        read_everything(store)
        assert store.uids == [0, 1, 2]
    assert not (path / "experts" / "e00003.npz").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"number": 7, "replace": [], "remove": []}',
        b'{"number": 1, "replace": [], "remove": ["../x"]}',
    ],
)
def test_a_journal_that_makes_no_sense(content: bytes, tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    outside = tmp_path / "x"
    outside.write_text("mine")
    (path / ".minagi" / "journal.json").write_bytes(content)
    for write in (False, True):
        with pytest.raises(WeightsError, match=r"journal\.json"):
            Store.open(path, write=write)
    assert outside.read_text() == "mine"
    with Store.open(path, write=True, repair=True) as store:
        store.revert("1")
    with Store.open(path, write=True) as store:
        read_everything(store)


def test_a_snapshot_folder_that_leads_out_is_never_followed(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    for name in ("snapshots/000009", "incoming", "staged", "trash", "spill"):
        (path / ".minagi" / name).symlink_to(outside)
    with Store.open(path, write=True) as store:
        store.spill_expert(state([0], 2).experts[0])
        for seed in range(2, 10):
            store.checkpoint(state([0, 1, 2], seed))
        assert "9" not in [info.id for info in store.snapshots() if info.kind == "damaged"]
    assert [p.name for p in outside.iterdir()] == ["precious"]


# ------------------------------------------------------------------------- places that are no directory


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("hello")
    for write in (False, True):
        with pytest.raises(WeightsError, match="is a file, and a directory was expected"):
            Store.open(file, write=write)
        with pytest.raises(WeightsError, match=str(tmp_path)):
            Store.open(file / "below", write=True)
    assert file.read_text() == "hello"


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    for name in ("notes.txt", "photo.jpg", "a", "b", "c", "d"):
        (tmp_path / name).write_text("mine")
    before = everything(tmp_path)
    with pytest.raises(WeightsError) as caught:
        Store.open(tmp_path, write=True)
    assert "has no core.npz but holds a, b, c, d and 2 more" in str(caught.value)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_directory_that_cannot_be_written(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    path = make(tmp_path / "model")
    shutil.rmtree(path / ".minagi")
    before = everything(path)
    with monkeypatch.context() as patch:
        for name in files.OPERATIONS:
            patch.setattr(files, name, refuse)
        with pytest.raises(WeightsError) as caught:
            Store.open(path, write=True)
        assert str(caught.value).startswith(f"Could not open the model for writing in {path}: ")
        with Store.open(path, write=False) as store:
            read_everything(store)
    assert everything(path) == before


def test_a_manifest_too_large_is_not_read(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    with (path / MANIFEST).open("r+b") as file:
        file.truncate(2 * 1024**3)  # a sparse file: nothing is on the disk
    with pytest.raises(WeightsError, match=r"manifest.json has 2,147,483,648 bytes"):
        Store.open(path, write=False)
    assert layout.MANIFEST_MAX < 2 * 1024**3


def test_sums_of_squares_below_zero(tmp_path: Path) -> None:
    """Random numbers, half of them negative, where the n-gram rows' sums of squares should be."""
    sizes = {**CFG, "ngram": 2, "ngram_rows": 9}
    with Store.open(tmp_path, write=True) as store:
        store.checkpoint(state([0], 1, cfg=sizes))
        with pytest.raises(WeightsError, match=r"'ngram\.squares', sums of squares, holds negative numbers"):
            store.read_core()
