"""Directories of other programs, and older ones: looked at, trained, saved, and opened there again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import Home, drive, of, tree

from minagi import cli, protocol
from minagi.weights.npz import write_npz

TINY = Path(__file__).parents[1] / "fixtures" / "tiny" / "weights"
RECORDED = Path(__file__).parents[3] / "shared" / "fixtures" / "small" / "weights"


def manifest_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "manifest.json").read_text())


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = manifest_of(path)
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def arrays_of(file: Path) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def moments_as(path: Path, change: Callable[[np.ndarray], np.ndarray] | None) -> None:
    """Experts' moments in another form, or none."""
    for file in (path / "experts").iterdir():
        arrays = arrays_of(file)
        kept = {
            name: change(array) if change and name[-2:] in ("_m", "_v") else array
            for name, array in arrays.items()
            if change or name[-2:] not in ("_m", "_v")
        }
        file.unlink()
        np.savez(file, **kept)  # type: ignore[arg-type]


def as_fp32(bits: np.ndarray) -> np.ndarray:
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def flat(path: Path) -> None:
    for file in (path / "experts").glob("*.npz"):
        arrays = arrays_of(file)
        file.unlink()
        np.save(file.with_suffix(".npy"), np.concatenate([arrays[n].ravel() for n in ("w1", "w3", "w2")]))
    rewrite(path, lambda m: (m.pop("experts"), m.pop("paged")))


def gaps(path: Path) -> None:
    """The third expert is called 17."""
    (path / "experts" / "e00002.npz").rename(path / "experts" / "e00017.npz")

    def rename(manifest: dict[str, Any]) -> None:
        manifest["telemetry"]["uid"][2] = 17
        manifest["telemetry"]["next_uid"] = 18
        manifest["experts"][2].update(id=17, file="e00017.npz")

    rewrite(path, rename)


def slot_tensors(path: Path) -> None:
    arrays = arrays_of(path / "optim.npz")
    arrays |= {f"pool.w1|{kind}": np.ones((3, 8, 16), np.float32) for kind in "mv"}
    (path / "optim.npz").unlink()
    write_npz(path / "optim.npz", arrays)


def unknown_keys(path: Path) -> None:
    def add(manifest: dict[str, Any]) -> None:
        manifest["theirs"] = {"deep": [1, None]}
        manifest["cfg"]["novel"] = "x"
        manifest["telemetry"]["colour"] = ["blue"]

    rewrite(path, add)


DIRECTORIES: dict[str, Callable[[Path], object]] = {
    "as recorded": lambda path: None,
    "without paged": lambda path: rewrite(path, lambda m: m.pop("paged")),
    "without experts' moments": lambda path: moments_as(path, None),
    "moments in fp32": lambda path: moments_as(path, as_fp32),
    "more experts than pool_max": lambda path: rewrite(path, lambda m: m["cfg"].update(pool_max=2)),
    "uids with gaps": gaps,
    "unknown keys": unknown_keys,
    "flat experts": flat,
    "slot tensors": slot_tensors,
    "without optim.npz": lambda path: (path / "optim.npz").unlink(),
    "without telemetry": lambda path: rewrite(path, lambda m: m.pop("telemetry")),
    "without a list of experts": lambda path: rewrite(path, lambda m: m.pop("experts")),
}


@pytest.mark.parametrize(("name", "source"), [("as recorded", RECORDED), *((n, TINY) for n in DIRECTORIES)])
def test_it_is_looked_at_trained_saved_and_opened_again(
    name: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not source.is_dir():
        pytest.skip("the recorded directory ../shared/fixtures/small is not here")
    path = tmp_path / "weights"
    shutil.copytree(source, path, copy_function=shutil.copyfile)
    for folder in (path, path / "experts"):
        folder.chmod(0o755)
    DIRECTORIES[name](path)
    before, found = tree(path), manifest_of(path)

    text = tmp_path / "text.txt"
    text.write_text("Some words to measure it by.")
    about = info(path, capsys)
    assert (about["made"], about["experts"], about["step"]) == (True, found["n_experts"], found["step"])
    assert cli.main(["eval", str(text), "--weights", str(path), "--device", "cpu"]) == 0
    capsys.readouterr()
    assert tree(path) == before, "looking changed something"

    home = Home(tmp_path)
    session = home.open()
    assert session.steps == found["step"]
    said = drive(session, 3)
    assert all(np.isfinite(m.loss) for m in of(protocol.Metrics, said))
    list(session.checkpoint())
    session.close()

    saved = manifest_of(path)
    assert (saved["step"], saved["paged"]) == (found["step"] + 3, True)
    assert saved["n_experts"] == found["n_experts"]
    assert found.get("theirs") == saved.get("theirs")
    assert found["cfg"].get("novel") == saved["cfg"].get("novel")
    names = sorted(file.name for file in (path / "experts").iterdir())
    assert names == sorted(entry["file"] for entry in saved["experts"])
    for file in path.glob("**/*.npz"):
        assert all(np.isfinite(a).all() for a in arrays_of(file).values() if a.dtype.kind == "f")
    for entry in saved["experts"]:
        moments = [n for n in arrays_of(path / "experts" / entry["file"]) if n[-2:] in ("_m", "_v")]
        assert len(moments) == (6 if entry["moments"] else 0)
    assert any(entry["moments"] for entry in saved["experts"]), "those that were stepped"
    again = home.open()
    assert again.steps == found["step"] + 3
    again.close()
    assert info(path, capsys)["step"] == found["step"] + 3


def info(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.main(["info", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)
