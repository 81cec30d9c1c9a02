from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minagi import cli
from minagi.errors import LockedError, WeightsError
from minagi.worker.signals import INTERRUPT

MINAGI = [sys.executable, "-m", "minagi"]


def test_version_and_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("minagi ")
    assert cli.main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(command in overview for command in cli.COMMANDS)
    assert "130 stopped by a signal" in overview
    assert cli.main([]) == 2


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"  minagi {command} " in shown or f"  minagi {command}\n" in shown
    assert "example" in shown


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_wrong_flag_is_status_2_and_a_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--no-such-flag"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--no-such-flag" in err or "required" in err
    assert "Traceback" not in err


def test_a_mistyped_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["raed"]) == 2
    assert "The nearest there is: read." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        (WeightsError("core.npz is damaged. Revert."), 3, "minagi: core.npz is damaged. Revert.\n"),
        (LockedError("Process 12 writes here."), 4, "minagi: Process 12 writes here.\n"),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (OSError(28, "No space left on device", "x.txt"), 1, "minagi: No space left on device (x.txt).\n"),
        (SystemExit(0), 0, ""),
    ],
)
def test_faults_are_sentences_with_their_status(
    fault: BaseException,
    status: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(argv: list[str]) -> int:
        raise fault

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main(["read"]) == status
    assert capsys.readouterr().err == words


def test_a_defect_goes_to_the_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "_run", lambda argv: 1 // 0)
    assert cli.main(["read"]) == 1
    err = capsys.readouterr().err
    (log,) = (tmp_path / "home" / "state").rglob("minagi.log")
    assert str(log) in err
    assert "Traceback" not in err
    assert "Traceback" in log.read_text()


def test_what_a_library_makes_of_ctrl_c_is_no_defect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(argv: list[str]) -> int:
        try:
            INTERRUPT(signal.SIGINT, None)
        except KeyboardInterrupt:
            raise ImportError("half of it is there") from None
        return 0

    monkeypatch.setattr(INTERRUPT, "came", False)
    monkeypatch.setattr(cli, "_run", load)
    assert cli.main(["write"]) == 130
    assert capsys.readouterr().err == "Stopped.\n"


def test_steering_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "x\x1b[2J\u202e\x07y"]) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\u202e" not in err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_borne(closed: str) -> None:
    done = subprocess.run(
        f"{' '.join(MINAGI)} config {closed}", shell=True, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_broken_pipe_is_a_sentence() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*MINAGI, "config"], stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write_end)
    assert done.returncode == 1
    assert done.stderr == "minagi: nobody reads the output any more.\n"


@pytest.mark.parametrize(
    "argv", [["--help"], ["config"], ["info", "here"], ["read", "--help"], ["read", "/no/such"]]
)
def test_what_needs_no_model_loads_no_torch(argv: list[str], nobody_home: Path) -> None:
    (nobody_home / "here").mkdir()
    code = f"import sys; from minagi.cli import main; main({argv}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize(
    "argv",
    [
        ["info", "--threads", "2"], ["snapshots", "--device", "cpu"],
        ["revert", "--to", "1", "--threads", "2"], ["config", "--device", "cpu"],
        ["eval", "x", "--eval-chars", "9"], ["write", "--prompt", "x", "--eval-chars", "9"],
    ],
)  # fmt: skip
def test_no_command_takes_a_flag_that_would_do_nothing(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    assert "There is no flag" in capsys.readouterr().err
