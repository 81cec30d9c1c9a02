"""The two commands of the README: what a newcomer's machine may lack is said in a sentence."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import without_root_powers

pytestmark = [
    pytest.mark.pty,
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
]
ROOT = Path(__file__).parents[2]
# Stands in for the environment's Python: notes what it was asked, installs nothing
STUB = '#!/bin/sh\nfor word; do printf "[%s]" "$word"; done >> "$NOTES"\necho >> "$NOTES"\n'


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# What a make that runs the tests hands down, by which the one under test would know itself to be inside it.
_MAKES_OWN = ("DIR", "ARGS", "PYTHON", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout under a name with a space and more, without an environment."""
    folder = tmp_path / "my check'out é"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(ROOT / name, folder)
    return folder


def make(checkout: Path, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if k not in _MAKES_OWN}
    environ["NOTES"] = str(checkout / "notes")
    return subprocess.run(
        ["make", *words], cwd=checkout, env=environ, capture_output=True, text=True, timeout=60, **options
    )


def asked(checkout: Path) -> list[str]:
    """What the environment's Python was asked, one line a call."""
    notes = checkout / "notes"
    return notes.read_text().splitlines() if notes.exists() else []


def test_without_a_folder_it_says_what_to_do_and_installs_nothing(checkout: Path) -> None:
    done = make(checkout, "tui")
    assert done.returncode != 0
    assert "make tui DIR=~/notes" in done.stdout
    assert not (checkout / ".venv").exists()


def test_it_sets_up_once_and_opens_the_folder_that_was_named(checkout: Path) -> None:
    program(checkout / ".venv/bin/python", STUB)
    folder = 'it\'s a "folder" & more'
    begun = make(checkout, "tui", f"DIR={folder}", "ARGS=--seed 7")
    assert begun.returncode == 0
    told = " ".join(begun.stdout.split())
    assert "sets itself up here, this once" in told and "two to ten minutes" in told
    assert all(len(line) < 80 for line in begun.stdout.splitlines())
    again = make(checkout, "tui", f"DIR={folder}")
    assert (again.returncode, again.stdout) == (0, "")
    check, install, first, second = asked(checkout)
    assert check.startswith("[-m][pip]")
    assert install.startswith("[-m][pip][install]")
    assert install.endswith("[-e][.[dev]]")
    assert first == f"[-m][tui][--seed][7][{folder}]"
    assert second == f"[-m][tui][{folder}]"


def test_it_sets_up_again_when_what_is_needed_changes(checkout: Path) -> None:
    program(checkout / ".venv/bin/python", STUB)
    make(checkout, "env")
    made = (checkout / ".venv/.installed").stat().st_mtime
    os.utime(checkout / "pyproject.toml", (made + 5, made + 5))
    assert "up to date" in make(checkout, "env").stdout
    assert sum("[install]" in line for line in asked(checkout)) == 2


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.1\nexit 1\n', "this is Python 3.8.1"),
        ('#!/bin/sh\n[ "$2" != venv ]\n', "apt install python3-venv"),
    ],
    ids=["too old", "no venv"],
)
def test_a_python_that_will_not_do(python: str, words: str, checkout: Path) -> None:
    stub = program(checkout / "a python", python)
    done = make(checkout, "env", f"PYTHON={stub}")
    assert done.returncode != 0
    assert words in done.stdout
    assert not (checkout / ".venv/bin").exists(), "no half-made environment stays"


def test_no_python_at_all(checkout: Path) -> None:
    done = make(checkout, "env", "PYTHON=python9.9")
    assert done.returncode != 0
    assert "There is no python9.9 here" in done.stdout


def test_an_environment_left_half_made_is_made_anew(checkout: Path) -> None:
    program(checkout / ".venv/bin/python", "#!/bin/sh\nexit 1\n")  # as ensurepip leaves it behind: no pip
    program(checkout / "stub", STUB)
    stub = program(checkout / "python", '#!/bin/sh\n[ "$2" != venv ] || cp stub .venv/bin/python\n')
    assert make(checkout, "env", f"PYTHON={stub}").returncode == 0
    assert any("[install]" in line for line in asked(checkout))


def test_packages_that_cannot_be_installed_are_tried_again(checkout: Path) -> None:
    program(checkout / ".venv/bin/python", '#!/bin/sh\n[ "$3" != install ]\n')
    for _ in range(2):
        done = make(checkout, "env")
        assert done.returncode != 0
        assert "could not be installed" in done.stdout


def test_a_checkout_that_cannot_be_written_in(checkout: Path) -> None:
    powerless = without_root_powers()
    checkout.chmod(0o555)
    try:
        done = make(checkout, "env", f"PYTHON={sys.executable}", preexec_fn=powerless)
    finally:
        checkout.chmod(0o755)
    assert done.returncode != 0
    assert "Nothing can be written in" in done.stdout
