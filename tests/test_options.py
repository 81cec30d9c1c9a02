"""Flags made from the table of settings, shared by the command line, the worker and the app."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.config import KEYS
from minagi.errors import UsageError
from minagi.options import (
    ENGINE,
    Parser,
    add_machine,
    add_run,
    add_settings,
    engine_flags,
    loaded_settings,
    session_request,
)


def parser(saves: bool = False) -> Parser:
    made = Parser(prog="minagi read")
    add_run(made, saves=saves)
    add_machine(made)
    add_settings(made, (*ENGINE, "plots", "ui"))
    return made


@pytest.fixture(autouse=True)
def nobody_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "some text é😀.txt"
    path.write_text("some text to read\n" * 500)
    return path


def test_every_setting_but_mappings_has_a_flag() -> None:
    shown = parser().format_help()
    for key in KEYS.values():
        assert (f"--{key.flag}" in shown) == (key.default != {})


def test_a_flag_is_a_setting() -> None:
    arguments = parser().parse(
        ["--d-model", "96", "--n-head=4", "--lr", "1e-3", "--no-halt-freeze", "--weights-dir", "w"]
    )
    loaded = loaded_settings(arguments)
    assert loaded.settings.model.d_model == 96
    assert loaded.settings.training.lr == 1e-3
    assert loaded.settings.model.halt_freeze is False
    assert loaded.settings.data.weights == Path.cwd() / "w"
    assert loaded.origin["model.d_model"] == "the command line"
    assert loaded.origin["model.d_ff"] != "the command line"


def test_paths_and_flags_mix_in_any_order() -> None:
    arguments = parser().parse(["a", "--save", "b c", "--chars", "3", "é😀"])
    assert arguments.paths == [Path("a"), Path("b c"), Path("é😀")]
    assert (arguments.dry_run, arguments.chars) == (False, 3)
    assert parser().parse(["--save", "--", "-x", "--chars"]).paths == [Path("-x"), Path("--chars")]


def test_dry_or_not_by_default() -> None:
    assert parser(saves=False).parse(["x"]).dry_run
    assert not parser(saves=True).parse(["x"]).dry_run
    assert parser(saves=True).parse(["x", "--dry-run"]).dry_run


WRONG = [
    (["--minutes", "0"], "--minutes"),
    (["--minutes", "-1"], "--minutes"),
    (["--minutes", "nan"], "--minutes"),
    (["--minutes", "inf"], "--minutes"),
    (["--chars", "0"], "--chars"),
    (["--chars", "1.5"], "--chars"),
    (["--chars", "9" * 30], "--chars"),
    (["--steps", "-3"], "--steps"),
    (["--steps", "many"], "--steps"),
    (["--passes", "0"], "--passes"),
    (["--seed", "-1"], "--seed"),
    (["--threads", "0"], "--threads"),
    (["--max-reverts", "-1"], "--max-reverts"),
    (["--revert-factor", "x"], "--revert-factor"),
    (["--sample-chars", "0"], "--sample-chars"),
    (["--trace-chunks", "none"], "--trace-chunks"),
    (["--trace-routes", ""], "empty"),
    (["--save", "--dry-run"], "--dry-run"),
    (["--contxt-end", "5"], "--context-end"),
    (["--lr-horizon", "5"], "held-out"),
    (["--lr-warmup"], "held-out"),
    (["--top-k"], "--top-k"),
    ([""], "empty"),
    (["a\0b"], "empty"),
]


@pytest.mark.parametrize(("flags", "named"), WRONG, ids=[" ".join(flags)[:20] for flags, _ in WRONG])
def test_a_wrong_flag_is_a_sentence_that_names_it(flags: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named) as refused:
        parser().parse(["x", *flags])
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "flags",
    [["--d-model", "-8"], ["--top-k", "1.5"], ["--precision", "fp7"], ["--context-end", "ten"], ["--clip=0"]],
)
def test_a_wrong_setting_is_told_when_all_are_read(flags: list[str]) -> None:
    with pytest.raises(UsageError, match="the command line"):
        loaded_settings(parser().parse(["x", *flags]))


def test_counts_may_be_written_as_people_do() -> None:
    assert parser().parse(["--chars", "2e6"]).chars == 2_000_000
    assert parser().parse(["--chars", "1_000_000"]).chars == 1_000_000


def test_a_request_holds_what_was_asked(text: Path) -> None:
    flags = [
        "--weights",
        "w",
        "--steps",
        "5",
        "--minutes",
        "1.5",
        "--seed",
        "7",
        "--lr-reset",
        "--save",
        "--threads",
        "2",
    ]
    request = session_request(parser().parse([str(text), *flags]), "the.log")
    assert request.paths == (text,)
    assert request.weights == Path.cwd() / "w"
    assert (request.limits.steps, request.limits.minutes, request.limits.chars) == (5, 1.5, None)
    assert (request.seed, request.lr_reset, request.threads, request.dry_run) == (7, True, 2, False)
    assert request.log == "the.log"


def test_without_a_path_the_settings_text_is_read(text: Path) -> None:
    request = session_request(parser().parse(["--train", str(text)]))
    assert request.paths == (text,)


def test_weights_that_cannot_be(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for flags in (["--weights", str(text)], ["--weights", str(text / "below"), "--save"]):
        with pytest.raises(UsageError, match="is a file"):
            session_request(parser().parse([str(text), *flags]))
    monkeypatch.setattr("minagi.options.os.access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(UsageError, match="Nothing can be written"):
        session_request(parser().parse([str(text), "--weights", "new/weights", "--save"]))
    session_request(parser().parse([str(text), "--weights", "new/weights"]))  # a dry run writes nothing


@pytest.mark.parametrize(
    ("file", "words"), [(".", "folder"), ("no/such/t.npz", "no folder"), ("text.txt/t.npz", "no folder")]
)
def test_a_trace_that_cannot_be_written(text: Path, file: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        session_request(parser().parse([str(text), "--trace-routes", file]))


def test_what_is_recorded_is_in_the_request(text: Path) -> None:
    flags = ["--sample-chars", "9", "--sample-raw-only", "--trace-routes", "t.npz", "--trace-chunks", "3"]
    request = session_request(parser().parse([str(text), *flags, "--no-pool-checkpoint"]))
    assert (request.sample_chars, request.sample_raw_only, request.pool_checkpoint) == (9, True, False)
    assert (request.trace_routes, request.trace_chunks) == (Path("t.npz"), 3)
    usual = session_request(parser().parse([str(text)]))
    assert (usual.sample_raw_only, usual.pool_checkpoint, usual.trace_routes) == (False, True, None)


@pytest.mark.parametrize("flags", [["/no/such/folder"], ["empty"], ["binary"], []])
def test_text_that_is_not_there(text: Path, flags: list[str]) -> None:
    Path("empty").mkdir()
    Path("binary").write_bytes(bytes(range(256)) * 40)
    with pytest.raises(UsageError):
        session_request(parser().parse(flags))


NUMBERS = st.integers(1, 10**6)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "--chars": NUMBERS, "--steps": NUMBERS, "--seed": NUMBERS, "--d-model": NUMBERS, "--lr": NUMBERS,
            "--sample-chars": NUMBERS, "--trace-chunks": NUMBERS, "--trace-routes": st.just("a b.npz"),
            "--profile": st.just("cpu"), "--config": st.just("a b.yaml"), "--device": st.just("cuda:1"),
        },
    ),
    st.sets(st.sampled_from(["--save", "--lr-reset", "--follow-symlinks", "--no-halt-freeze", "--unified",
                             "--sample-raw-only", "--no-pool-checkpoint", "--no-plots"])),
    st.lists(st.sampled_from(["a", "-b", "--c", "d e"]), max_size=3),
)  # fmt: skip
def test_a_workers_flags_mean_what_the_apps_meant(values: dict, switches: set, paths: list) -> None:
    flags = [f"{name}={value}" for name, value in values.items()] + sorted(switches)
    asked = parser(saves=True).parse([*flags, "--theme", "nord", "--", *paths])
    again = parser(saves=False).parse(engine_flags(asked))
    ours = {name: value for name, value in vars(asked).items() if not name.startswith("ui.")}
    theirs = {name: value for name, value in vars(again).items() if not name.startswith("ui.")}
    assert theirs == ours
    assert vars(again)["ui.theme"] is None


def test_flags_cost_no_torch() -> None:
    code = "import sys, minagi.options; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
