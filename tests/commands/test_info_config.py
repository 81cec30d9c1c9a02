from __future__ import annotations

import json
from pathlib import Path

import pytest

from minagi import cli
from minagi.config import KEYS

FIXTURE = Path(__file__).parents[3] / "shared" / "fixtures" / "small" / "weights"
needs_fixture = pytest.mark.skipif(not FIXTURE.is_dir(), reason="needs ../shared/fixtures/small/weights")


@needs_fixture
def test_info_of_a_public_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", str(FIXTURE), "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["step"], body["chars"], body["experts"], body["context"]) == (120, 23040, 12, 192)
    assert body["made"] is True
    assert body["snapshots"] == []
    assert body["parameters"] == _numbers_in(FIXTURE)
    assert cli.main(["info", str(FIXTURE)]) == 0
    assert "experts      12 of width 96" in capsys.readouterr().out


def test_info_tells_of_ngrams(nobody_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from minagi.config import load_settings
    from minagi.hardware import Hardware
    from minagi.training.engine import Engine
    from minagi.weights import Store

    sizes = {
        "model.d_model": 8,
        "model.n_head": 1,
        "model.ngram": 3,
        "model.ngram_rows": 50,
        "model.word_rows": 1200,
        "pool.experts": 2,
        "pool.top_k": 1,
    }
    settings = load_settings(sizes, environ={}, cwd=nobody_home, user_dir=nobody_home).settings
    with Store.open(nobody_home / "w", write=True) as store:
        processor = Hardware("cpu", "test", "fp32", 1, 10**12, False, False, "")
        store.checkpoint(Engine.fresh(store, settings, processor, 0).state({}))
    assert cli.main(["info", "w"]) == 0
    said = capsys.readouterr().out
    assert "n-grams      of 2 to 3 characters, 50 rows each" in said
    assert "words        1,200 rows each for the word so far, and for it with the word before" in said
    assert cli.main(["info", "w", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == _numbers_in(nobody_home / "w")


def _numbers_in(weights: Path) -> int:
    """Every number that is learnt, counted from the files themselves."""
    import numpy as np

    total = 0
    for path in (weights / "core.npz", weights / "routers.npz", *(weights / "experts").glob("*.npz")):
        with np.load(path) as archive:
            total += sum(
                archive[name].size
                for name in archive
                if name not in ("head.weight", "ngram.squares") and name[-2:] not in ("_m", "_v", "_a")
            )
    return total


def test_info_where_no_model_was_made(nobody_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nobody_home / "w").mkdir()
    assert cli.main(["info", "--weights", "w", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["made"] is False
    assert cli.main(["info", "w"]) == 0
    assert "no model has been made here yet" in capsys.readouterr().out
    assert list((nobody_home / "w").iterdir()) == []


def test_info_of_somebodys_folder(nobody_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "."]) == 3
    assert "text.txt" in capsys.readouterr().err


def test_config_says_where_each_value_comes_from(
    nobody_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (nobody_home / "config.yaml").write_text("training:\n  clip: 2.0\n")
    monkeypatch.setenv("MINAGI_POOL_TOP_K", "4")
    argv = ["config", "--profile", "cpu", "--lr", "1e-3", "--json"]
    assert cli.main(argv) == 0
    body = json.loads(capsys.readouterr().out)
    assert list(body) == list(KEYS)
    assert body["training.lr"] == {"value": 0.001, "from": "the command line"}
    assert body["pool.top_k"] == {"value": 4, "from": "the environment"}
    assert body["training.clip"]["from"].endswith("config.yaml")
    assert body["model.d_model"]["from"] == "the profile cpu"
    assert body["plots.last"]["from"] == "the defaults"


def test_config_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "--no-halt-freeze"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(KEYS)
    (line,) = [line for line in lines if line.startswith("model.halt_freeze")]
    assert line.split("#")[0].strip() == "model.halt_freeze: false"
    assert line.endswith("# the command line")


def test_config_tells_of_a_file_it_passed_over(nobody_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nobody_home / "config.yaml").write_text("services:\n  web: {}\n")
    assert cli.main(["config"]) == 0
    assert "passed over" in capsys.readouterr().err
