"""Whatever is typed: a sentence and a documented status, never a traceback, and nothing started."""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minagi import cli
from minagi.commands import COMMANDS
from minagi.config import KEYS

STATUSES = {0, 1, 2, 3, 4}
VALUES = [
    "", " ", "nan", "-inf", "-1", "0", "1e999", "1e14", "9" * 400,
    "é\u202e\x1b[2J\x07", "../../..", "/dev/zero",
    "/dev/full", "\udcff", "true", "1,2;3", "%s{0}$(id)", "-", "--", "text.txt",
]  # fmt: skip
# Arguments with which a command, given whatever else, cannot get to work: what it would work on is not there.
HELPLESS = {
    "read": ["/no/such"], "write": ["--prompt", "x", "--weights", "nowhere"],
    "pack": ["/no/such", "--out", "o"], "eval": ["text.txt", "--weights", "nowhere"],
    "forget": ["text.txt", "--weights", "nowhere"],
    "probe": ["--weights", "nowhere"], "stream": ["--mix", "/no/such", "--out", "o"], "info": ["nowhere"],
    "snapshots": ["nowhere"], "revert": ["nowhere", "--to", "1"], "history": ["--history", "nowhere"],
    "plot": ["--history", "nowhere"], "config": [], "bench": ["train", "--shape", "nowhere"], "doctor": None,
    "completion": ["fish"],
}  # fmt: skip


def parsers() -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Every command with arguments that keep it from working, and its parser."""
    for name, base in HELPLESS.items():
        module = importlib.import_module(f"minagi.commands.{name}")
        if name == "bench":
            for what, parser in module.parsers().items():
                yield (
                    [name, what, *(["--shape", "nowhere"] if what not in ("start", "ui", "learn") else [])],
                    parser,
                )
        elif base is not None:
            yield [name, *base], module.parser()


def flags(parser: argparse.ArgumentParser, *, settings: bool) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if action.option_strings and action.nargs != 0 and (action.dest in KEYS) is settings
    ]


def check(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A run with these arguments ends as documented."""
    status = cli.main(argv)
    out, err = capsys.readouterr()
    assert status in STATUSES, argv
    assert "something went wrong inside" not in err, argv
    assert not {"\x1b", "\u202e", "\x07"} & set(err), argv
    if status:
        assert out == "", argv
        assert err.count("\n") <= 2 and err.strip(), argv


def test_every_command_is_swept() -> None:
    assert set(HELPLESS) == set(COMMANDS)


@pytest.mark.parametrize(
    ("base", "parser"), [pytest.param(*each, id=" ".join(each[0][:2])) for each in parsers()]
)
def test_flags_of_a_command_with_hostile_values(
    base: list[str], parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    if base[:2] in (["bench", "start"], ["bench", "ui"], ["bench", "learn"]):
        base = [*base, "--no-such-flag"]  # they would start, but for this
    for action in flags(parser, settings=False):
        for value in VALUES:
            check([*base, f"{action.option_strings[0]}={value}"], capsys)
        check([*base, action.option_strings[0]], capsys)
    for value in VALUES:
        check([base[0], *([base[1]] if base[0] == "bench" else []), "--no-such", value], capsys)


def test_settings_with_hostile_values(capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module("minagi.commands.config")
    for action in flags(module.parser(), settings=True):
        for value in VALUES:
            check(["config", f"{action.option_strings[0]}={value}"], capsys)


@pytest.mark.parametrize(
    "name", [n for n in COMMANDS if n not in ("doctor", "config", "completion", "bench")]
)
def test_hostile_paths(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not text, a folder or a weights directory where one has to be."""
    lead = {
        "read": ["--steps", "1"], "write": ["--prompt", "x", "--weights"], "eval": ["text.txt", "--weights"],
        "forget": ["text.txt", "--weights"], "probe": ["--weights"], "pack": ["--out", "o"],
        "stream": ["--out", "o", "--mix"], "revert": ["--to", "1"], "history": ["--history"],
        "plot": ["--history"],
    }.get(name, [])  # fmt: skip
    for value in (
        "",
        "/dev/zero",
        "/dev/full",
        "\udcff",
        "x" * 5000,
        "text.txt/inside",
        "/proc/self/mem",
        ".",
    ):
        if (name, value) != ("read", "."):  # which is a folder with text in it
            if (name, value) == ("pack", "."):
                continue
            check([name, *lead, value], capsys)


# ----------------------------------------------------------------------------------- the streams

RUNS = [
    ["--help"],
    ["--version"],
    ["config"],
    ["config", "--help"],
    ["completion", "zsh"],
    ["bench", "--help"],
]


def ran(argv: list[str], **streams: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        **streams,  # type: ignore[call-overload]
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "argv", [*(["minagi", *run] for run in RUNS), ["tui", "--help"], ["tui", "--version"]]
)
def test_no_room_for_the_output_is_a_sentence(argv: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        status, err = ran(argv, stdout=full)
    assert status == 1
    assert err.endswith("No space left on device.\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("argv", [*(["minagi", *run] for run in RUNS), ["tui", "--help"]])
def test_a_reader_that_went_away_is_a_sentence(argv: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        status, err = ran(argv, stdout=write_end)
    finally:
        os.close(write_end)
    assert status == 1
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "argv", [["minagi", "write", "--prompt", "x", "--weights", "w"], ["minagi", "read", "no"]]
)
def test_closed_input_is_borne(argv: list[str]) -> None:
    line = " ".join([sys.executable, "-m", *argv, "<&-"])
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_the_page_names_every_command_and_status() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    for name in COMMANDS:
        assert f"`{name}" in page or f" `{name}" in page, name
    for status in itertools.chain(STATUSES, [130]):
        assert f"| {status} |" in page
    for name in COMMANDS:
        assert name in cli.OVERVIEW.format(commands="\n".join(COMMANDS))
