from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minagi import cli
from minagi.text import packing
from minagi.text.packed import TRAIN, VAL


def test_files_become_a_corpus(capsys: pytest.CaptureFixture[str], nobody_home: Path) -> None:
    (nobody_home / "picture.png").write_bytes(b"x" * 100)
    assert cli.main(["pack", ".", "--out", "corpora/mine", "--json", "--held-out", "0.2"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["out"] == str(nobody_home / "corpora/mine")
    assert told["skipped"] == {"binary": 1}
    assert (told["files"], told["subjects"], told["lost"]) == (1, 1, [])
    assert told["train_chars"] * 2 == (nobody_home / "corpora/mine" / TRAIN).stat().st_size
    assert told["held_out_chars"] * 2 == (nobody_home / "corpora/mine" / VAL).stat().st_size
    assert 0.19 < told["held_out_chars"] / (told["train_chars"] + told["held_out_chars"]) < 0.21
    assert "Passed over: 1 binary." in err
    assert "minagi stream --mix corpora/mine" in err


def test_without_json_nothing_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pack", "text.txt", "--out", "c"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        [], ["text.txt"], ["--out", "c"], ["/no/such", "--out", "c"], ["text.txt", "nowhere", "--out", "c"],
        ["text.txt", "--out", ""], ["text.txt", "--out", "text.txt"], ["text.txt", "--out", "text.txt/c"],
        ["text.txt", "--out", "."], ["text.txt", "--out", "c", "--held-out", "0"],
        ["text.txt", "--out", "c", "--held-out", "0.51"], ["text.txt", "--out", "c", "--held-out", "nan"],
        ["text.txt", "--out", "c", "--held-out", "some"], ["empty", "--out", "c"],
        ["text.txt", "--out", "c", "--hold-out", "0.1"], ["text.txt", "--out", "closed/c"],
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(
    argv: list[str], capsys: pytest.CaptureFixture[str], nobody_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nobody_home / "empty").mkdir()
    (nobody_home / "closed").mkdir()
    if "closed/c" in argv:

        def refuse(path: Path, *args: object, **kwargs: object) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "mkdir", refuse)
    assert cli.main(["pack", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("minagi: ")
    assert err.count("\n") == 1
    assert not (nobody_home / "c").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing(
    number: int, capsys: pytest.CaptureFixture[str], nobody_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = packing.read_span

    def interrupted(*args: object) -> bytes:
        os.kill(os.getpid(), number)
        return read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(packing, "read_span", interrupted)
    assert cli.main(["pack", "text.txt", "--out", "c"]) == 130
    assert not (nobody_home / "c").exists()
    assert capsys.readouterr().err == "Stopped.\n"


def test_a_pipe_that_nobody_reads(nobody_home: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m minagi pack text.txt --out c --json | true; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode in (0, 1)  # it may have been written before the reader left
    assert "Traceback" not in done.stderr
    assert (nobody_home / "c" / TRAIN).exists()


def test_it_loads_no_torch(nobody_home: Path) -> None:
    program = "import sys; from minagi import cli; cli.main(sys.argv[1:]); assert 'torch' not in sys.modules"
    argv = [sys.executable, "-c", program, "pack", "text.txt", "--out", "c"]
    assert subprocess.run(argv, timeout=60).returncode == 0
