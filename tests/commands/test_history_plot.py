from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "plots"))

from plot_rows import HOSTILE, read_rows, stream_rows

from minagi import cli
from minagi.training.history import History


@pytest.fixture
def history(nobody_home: Path) -> Path:
    """Two models in one file; the one written last is "mine"."""
    file = History(nobody_home / "runs" / "history.jsonl")
    for row in [*read_rows(3, str(nobody_home / "other")), *read_rows(12, str(nobody_home / "mine"))]:
        file.append(row)
    return file.path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = cli.main(list(argv))
    return (status, *capsys.readouterr())


def test_a_table_of_the_run_written_last(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "history", "--history", str(history))
    lines = out.splitlines()
    assert status == 0 and len(lines) == 13 and "mine" in err
    assert lines[0].split() == [
        "time", "step", "characters", "train", "held-out", "experts", "window", "rate", "memory",
    ]  # fmt: skip
    assert "1,200" in lines[-1] and "600,000" in lines[-1] and "954 MiB" in lines[-1]
    assert lines[10].endswith("1 born") and not lines[9].endswith("born")


def test_the_last_rows_only(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "history", "--history", str(history), "--last", "2")
    assert len(out.splitlines()) == 3 and "10 earlier rows are not shown" in err
    _, out, err = run(capsys, "history", "--history", str(history), "--last", "0")
    assert len(out.splitlines()) == 13 and "earlier" not in err


def test_one_model_of_several(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "history", "--history", str(history), "--weights", "other", "--json")
    found = json.loads(out)
    assert found["model"].endswith("other") and found["count"] == len(found["rows"]) == 3
    assert found["rows"][-1]["step"] == 300 and "uid" not in found["rows"][-1]
    status, out, err = run(capsys, "history", "--history", str(history), "--weights", "nobody")
    assert (status, out) == (0, "") and "no rows" in err


def test_the_setting_says_where_it_is(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINAGI_DATA_HISTORY", str(history))
    assert len(run(capsys, "history", "--weights-dir", "other")[1].splitlines()) == 4


def test_a_stream_lies_beside_its_model(nobody_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = nobody_home / "out"
    for row in stream_rows(str(out)):
        History(out / "history.jsonl").append(row)
    _, shown, _ = run(capsys, "history", "--weights", "out")
    lines = shown.splitlines()
    assert len(lines) == 11
    assert lines[2].endswith("step") and "3.00e-04" in lines[2]
    assert lines[-2].endswith("reverted: It diverged.") and lines[-1].endswith("done")
    status, shown, _ = run(capsys, "plot", "--weights", "out")
    assert status == 0 and "Learning rate: 0.0002" in shown


def test_charts_without_escapes_into_a_pipe(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "plot", "--history", str(history), "--width", "60")
    assert status == 0 and "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 60
    assert "holds 2 models" in err and "Loss, bits a character" in out


def test_pictures(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the optional package plots is not installed")
    status, out, _ = run(
        capsys, "plot", "--history", str(history), "--png", "new/graphs", "--plots-last", "0.2"
    )
    assert status == 0
    assert out.splitlines() == ["new/graphs/training_progress.png", "new/graphs/dashboard.png"]
    assert all(Path(line).is_file() for line in out.splitlines())


def test_no_matplotlib_is_a_sentence(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, out, err = run(capsys, "plot", "--history", str(history), "--png", "graphs")
    assert (status, out) == (2, "") and "pip install 'minagi[plots]'" in err


@pytest.mark.parametrize("command", ["history", "plot"])
@pytest.mark.parametrize("text", ["", "\n\n", "not json\n", '{"step": 1', "[1]\n" * 3])
def test_a_history_with_nothing_in_it(
    nobody_home: Path, capsys: pytest.CaptureFixture[str], command: str, text: str
) -> None:
    (nobody_home / "h.jsonl").write_text(text)
    status, out, err = run(capsys, command, "--history", "h.jsonl")
    assert (status, out) == (0, "") and err.count("\n") == 1 and "yet" in err


@pytest.mark.parametrize("command", ["history", "plot"])
def test_hostile_rows_are_passed_over(
    nobody_home: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    lines = [json.dumps(row) for row in [*read_rows(2), *HOSTILE, *read_rows(1)]]
    (nobody_home / "h.jsonl").write_text("\n".join([*lines, "torn {", "\x1b[31m"]))
    status, out, _ = run(capsys, command, "--history", "h.jsonl")
    assert status == 0 and out and "\x1b" not in out
    assert run(capsys, command, "--history", "h.jsonl", "--weights", "/models/mine")[0] == 0
    if command == "history":
        status, out, _ = run(capsys, command, "--history", "h.jsonl", "--json", "--last", "0")
        assert status == 0 and len(json.loads(out)["rows"]) == 3


@pytest.mark.parametrize("command", ["history", "plot"])
@pytest.mark.parametrize(
    "argv", [["--history", "no/such.jsonl"], ["--history", "."], ["--history", os.devnull], ["--last", "x"],
             ["--width", "0"], ["--png", "text.txt", "--history", "h.jsonl"], ["--plots-last", "0"],
             ["stray"]]
)  # fmt: skip
def test_what_cannot_be_is_a_sentence(
    nobody_home: Path, capsys: pytest.CaptureFixture[str], command: str, argv: list[str]
) -> None:
    (nobody_home / "h.jsonl").write_text(json.dumps(read_rows(1)[0]))
    status, out, err = run(capsys, command, *argv)
    assert status == 2 and out == "" and err.startswith("minagi: ") and err.count("\n") == 1


def test_a_pipe_in_place_of_a_history_is_not_waited_for(
    nobody_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(nobody_home / "pipe")
    status, _, err = run(capsys, "history", "--history", "pipe")
    assert status == 2 and "no plain file" in err


def test_drawing_costs_no_torch(history: Path) -> None:
    import subprocess

    code = (
        "import sys; from minagi import cli; "
        f"cli.main(['plot', '--history', {str(history)!r}]); sys.exit('torch' in sys.modules)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, timeout=60)
    assert done.returncode == 0 and b"Loss" in done.stdout
    ascii_only = subprocess.run(
        [sys.executable, "-c", code],
        env={**environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
    )
    assert ascii_only.returncode == 0 and ascii_only.stdout.isascii() and b"Loss" in ascii_only.stdout
