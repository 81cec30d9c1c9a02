from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from minagi import cli
from minagi.bench import machine
from minagi.commands import doctor


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SECONDS", 0.0)
    monkeypatch.setattr(machine, "PRODUCT_SIZE", 8)


def looked(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> dict[str, dict[str, Any]]:
    """The findings by name, after a run that ends with `status`."""
    assert cli.main(["doctor", "--json", *argv]) == status
    body = json.loads(capsys.readouterr().out)
    assert body["ok"] == (status == 0)
    return {finding["name"]: finding for finding in body["findings"]}


def test_everything_is_looked_at_and_nothing_written(
    nobody_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(nobody_home.iterdir())
    found = looked(capsys, "--weights", "w", "--threads", "1")
    assert list(found) == [
        "settings", "versions", "compute", "memory", "weights", "disk", "terminal", "graphs",
    ]  # fmt: skip
    assert found["compute"]["figures"]["device"] == "cpu"
    assert found["compute"]["figures"]["gflops_fp32"] >= 0
    assert found["versions"]["figures"].keys() >= {"python", "torch", "textual", "minagi"}
    assert found["disk"]["figures"]["free"] > 0
    assert sorted(nobody_home.iterdir()) == before


def test_lines_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--weights", "w"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ok    disk") for line in lines)
    assert any(line.startswith("note  terminal") for line in lines)


def test_one_broken_piece_stops_none_of_the_rest(
    nobody_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", missing)
    monkeypatch.setattr("minagi.hardware.detect", lambda *_: 1 // 0)
    monkeypatch.setattr("psutil.virtual_memory", lambda: (_ for _ in ()).throw(ImportError("no psutil")))
    (nobody_home / "config.yaml").write_text("training: {lr: fast}\n")
    found = looked(capsys, status=1)
    assert {name for name, finding in found.items() if finding["state"] == "wrong"} == {
        "settings", "versions", "compute", "memory",
    }  # fmt: skip
    assert "training.lr" in found["settings"]["text"]
    assert "ZeroDivisionError" in found["compute"]["text"]
    assert "pip install" in found["memory"]["remedy"]
    assert found["graphs"]["state"] in ("ok", "note")


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (lambda w: w.write_text("x"), "disk", "is a file"),
        (lambda w: (w.mkdir(), (w / "mine.txt").write_text("x")), "weights", "mine.txt"),
        (lambda w: (w.mkdir(), (w / "core.npz").write_bytes(b"PK")), "weights", "w"),
    ],
)
def test_weights_that_cannot_be_used(
    make: Any, name: str, words: str, nobody_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(nobody_home / "w")
    found = looked(capsys, "--weights", "w", status=1)
    assert found[name]["state"] == "wrong"
    assert words in found[name]["text"]


def test_a_folder_that_cannot_be_written(
    nobody_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    found = looked(capsys, "--weights", "w", status=1)
    assert found["disk"]["remedy"] == "Name another directory with --weights."


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no device" in looked(capsys, "--device", "abacus", status=1)["compute"]["text"]


@pytest.mark.parametrize(
    ("environ", "colours"),
    [
        ({"TERM": "xterm"}, "16"), ({"TERM": "xterm-256color"}, "256"), ({"TERM": "dumb"}, "no"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "16.7 million"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "no"), ({}, "no"),
    ],
)  # fmt: skip
def test_colours(environ: dict[str, str], colours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TERM", "COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert doctor._colours() == colours


def test_the_terminal_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    for name in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{name}", Terminal())
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")
    monkeypatch.setattr("locale.getpreferredencoding", lambda _: "UTF-8")
    assert doctor._terminal().state == "ok"
    monkeypatch.setattr("locale.getpreferredencoding", lambda _: "ANSI_X3.4-1968")
    assert "LC_ALL" in doctor._terminal().remedy
    monkeypatch.setenv("LINES", "5")
    assert "40×12" in doctor._terminal().remedy
