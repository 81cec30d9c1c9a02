from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from minagi import cli
from minagi.weights import Store

TINY = Path(__file__).parents[1] / "fixtures" / "tiny" / "weights"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with one snapshot, of its state on disk."""
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with Store.open(folder, write=True) as store:
        store.keep(kind="asked", name="spring")
    return folder


def _json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict:
    assert cli.main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_listing_reverting_and_deleting(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = _json(capsys, "snapshots", str(model))["snapshots"]
    assert [info["name"] for info in kept] == ["spring"]
    assert cli.main(["snapshots", str(model)]) == 0
    assert "spring" in capsys.readouterr().out
    assert _json(capsys, "revert", str(model), "--to", "spring") == {"snapshot": kept[0]["id"], "undo": ""}
    assert cli.main(["snapshots", str(model), "--delete", "spring"]) == 2
    assert "The model goes on from this checkpoint" in capsys.readouterr().err
    with Store.open(model, write=True) as store:
        store.keep(kind="asked")
    assert cli.main(["snapshots", str(model), "--delete", "spring"]) == 0
    capsys.readouterr()
    names = [info["name"] for info in _json(capsys, "snapshots", str(model))["snapshots"]]
    assert "spring" not in names


def test_going_to_and_fro_keeps_every_state_once(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = {**json.loads((model / "manifest.json").read_text()), "val": 2.5}
    (model / "manifest.json").unlink()  # the snapshot has its own name for the old one
    (model / "manifest.json").write_text(json.dumps(manifest))
    went = _json(capsys, "revert", str(model), "--to", "spring")
    for _ in range(3):
        back = _json(capsys, "revert", str(model), "--to", went["undo"])
        assert json.loads((model / "manifest.json").read_text())["val"] == 2.5
        assert _json(capsys, "revert", str(model), "--to", back["undo"]) == went
    kept = [info["kind"] for info in _json(capsys, "snapshots", str(model))["snapshots"]]
    assert kept == ["before-revert", "named"]


def test_a_damaged_model_goes_back(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    core = model / "core.npz"
    whole = core.read_bytes()
    core.unlink()  # the snapshot's link keeps the bytes
    core.write_bytes(whole[:1000])
    assert cli.main(["eval", str(TINY.parent / "expected.json"), "--weights", str(model)]) == 3
    said = capsys.readouterr().err
    assert "core.npz" in said
    assert "minagi revert" in said
    assert cli.main(["revert", str(model), "--to", "spring"]) == 0
    assert core.read_bytes() == whole
    said = capsys.readouterr().err
    assert "The present could not be kept" in said
    assert "what it was at snapshot 1 (spring) of 2" in said


def test_figures_are_in_bits_as_in_the_app_and_their_unit_is_named(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = {**json.loads((model / "manifest.json").read_text()), "val": 2.125}
    (model / "manifest.json").unlink()  # the snapshot has its own name for the old one
    (model / "manifest.json").write_text(json.dumps(manifest))
    with Store.open(model, write=True) as store:
        store.keep(kind="asked")
    kept = _json(capsys, "snapshots", str(model))["snapshots"][0]
    about = _json(capsys, "info", str(model))
    nats = about["held_out"]
    assert nats == 2.125
    assert kept["held_out"] == nats
    assert kept["bits_per_byte"] == about["bits_per_byte"] == pytest.approx(nats / math.log(2))
    assert cli.main(["snapshots", str(model)]) == 0
    shown = capsys.readouterr()
    assert f"held-out {nats / math.log(2):.4f} bits" in shown.out
    assert "last reading before each, in bits a character" in shown.err
    assert cli.main(["info", str(model)]) == 0
    assert f"{nats / math.log(2):.4f} bits a character, when last read" in capsys.readouterr().out


def test_a_snapshot_says_how_it_came_about_and_what_it_is_called(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(model, write=True) as store:
        for kind in ("asked", "auto"):
            store.keep(kind=kind)
        store.keep(kind="asked", name="spring")
    assert cli.main(["snapshots", str(model)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("MiB")[1].strip() for line in lines] == [
        "by hand, “spring”", "automatic", "by hand", "by hand, “spring” (older)"
    ]  # fmt: skip
    assert cli.main(["info", str(model)]) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == lines


def test_an_id_comes_before_a_name(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(model, write=True) as store:
        store.keep(kind="asked", name="1")
    assert _json(capsys, "revert", str(model), "--to", "1")["snapshot"] == "1"
    assert cli.main(["revert", str(model), "--to", "1"]) == 0
    assert "spring" in capsys.readouterr().err.splitlines()[0]
    assert cli.main(["snapshots", str(model), "--delete", "1"]) == 0
    assert "Snapshot 1 (spring) is deleted, which gave back " in capsys.readouterr().err


def test_what_is_not_there(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["revert", str(model), "--to", "999"]) == 2
    assert "no snapshot '999'. There are: 1 ('spring')." in capsys.readouterr().err
    assert cli.main(["snapshots", str(model), "--delete", "999"]) == 2
    assert cli.main(["snapshots", str(model / "core.npz")]) == 2
    assert cli.main(["revert", str(model / "nowhere"), "--to", "1"]) == 2
    assert cli.main(["revert", str(model)]) == 2
