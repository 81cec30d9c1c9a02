from __future__ import annotations

import shutil
import subprocess

import pytest

from minagi import cli
from minagi.commands import COMMANDS
from minagi.completion import SHELLS
from tui import app


def printed(capsys: pytest.CaptureFixture[str], shell: str, program: str = "minagi") -> str:
    if program == "minagi":
        assert cli.main(["completion", shell]) == 0
    else:
        with pytest.raises(SystemExit, match="0"):
            app.main(["--completion", shell])
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_its_flags_are_known_to_every_shell(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, shell)
    for name in COMMANDS:
        assert name in out
    for flag in ("weights-dir", "halting", "trunk-lr-mult", "minutes"):
        assert flag in out
    assert "no-headless" in printed(capsys, shell, "minagi-tui")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("program", "words", "offered"),
    [
        ("minagi", ["b"], "bench"), ("minagi", ["bench", "p"], "page pool"),
        ("minagi", ["read", "--trunk"], "--trunk-lr-mult"), ("minagi", ["eval", "--profile", "c"], "cpu"),
        ("minagi", ["bench", "train", "--halting", "h"], "half"),
        ("minagi", ["read", "--precision", "bf"], "bf16"), ("minagi-tui", ["--no-h"], "--no-headless"),
    ],
)  # fmt: skip
def test_bash_offers_what_fits(
    program: str, words: list[str], offered: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = " ".join([program, *words])
    ask = (
        f"\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; COMP_LINE='{line}'; COMP_POINT={len(line)}\n"
        f'_shtab_{program.replace("-", "_")}; echo "${{COMPREPLY[@]}}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc"], input=printed(capsys, "bash", program) + ask, capture_output=True, text=True
    )
    assert done.stdout.split() == offered.split()


@pytest.mark.parametrize("argv", [["completion"], ["completion", "fish"], ["completion", "bash", "zsh"]])
def test_a_shell_that_is_not_served_is_a_sentence(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    assert capsys.readouterr().err.count("\n") == 1
