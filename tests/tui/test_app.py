"""Everything that is told before the screen is taken: one sentence, an exit status, nothing drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fake_run as fr
import pytest

from minagi import protocol as p
from minagi.errors import EXIT_USAGE
from tui import app, terminal
from tui.client import Worker
from tui.recording import Recording


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with something to read, its name full of spaces and emoji."""
    notes = tmp_path / "my notes 🌱"
    notes.mkdir()
    (notes / "a.txt").write_text("words and more words\n" * 400)
    return notes


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the machine's, no terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("MINAGI_CONFIG", raising=False)


def refused(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    """The one sentence with which a command line is refused."""
    assert app.main([str(part) for part in argv]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.strip().endswith((".", ").", "?"))
    assert "\x1b" not in err
    return err


def test_no_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert "minagi-tui ~/notes" in refused(capsys)


def test_paths_that_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    binaries = tmp_path / "binaries"
    binaries.mkdir()
    (binaries / "a.txt").write_bytes(b"\0\1\2" * 1000)
    for path in ("nowhere", "empty", "binaries"):
        assert path in refused(capsys, tmp_path / path)


def test_what_only_links_lead_to_is_read_when_they_are_followed(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "a.txt").symlink_to(folder / "a.txt")
    refused(capsys, linked)
    arguments = app.parser().parse([str(linked), "--follow-symlinks"])
    assert isinstance(app._source(arguments), Worker)


def test_weights_that_are_a_file(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "is a file" in refused(capsys, folder, "--weights", folder / "a.txt")


def test_settings_that_are_wrong(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("ui: {keys: {paws: p}}\n")
    assert "Did you mean pause?" in refused(capsys, folder, "--config", tmp_path / "bad.yaml")
    assert "no theme" in refused(capsys, folder, "--theme", "sunny")
    assert "no flag --lrr" in refused(capsys, folder, "--lrr", "1")
    assert "--speed" in refused(capsys, "--replay", folder / "a.txt", "--speed", "-1")
    assert "no recording" in refused(capsys, "--replay", "none.jsonl")


def test_no_terminal_and_no_wish_to_go_without(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "needs a terminal" in refused(capsys, folder, "--no-headless", "--weights", folder.parent / "w")
    assert "needs a terminal" in refused(capsys, "--replay", folder / "a.txt")


def test_without_a_terminal_the_headless_reader_takes_over(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Replaced(Exception):
        pass

    def execv(program: str, argv: list[str]) -> None:
        assert program == sys.executable
        assert argv[1:4] == ["-m", "minagi", "read"]
        assert argv[-2:] == ["--", str(folder)]
        assert "--save" in argv
        assert "--lr=0.01" in argv
        raise Replaced

    monkeypatch.setattr(app.os, "execv", execv)
    with pytest.raises(Replaced):
        app.main([str(folder), "--weights", str(folder.parent / "w"), "--lr", "0.01"])
    assert "reading without a screen" in capsys.readouterr().err


def test_the_worker_gets_the_flags_and_not_the_apps_own(folder: Path) -> None:
    argv = [
        str(folder),
        "--dry-run",
        "--theme",
        "nord",
        "--profile",
        "cpu",
        "--weights",
        str(folder.parent / "w"),
    ]
    arguments = app.parser().parse(argv)
    source = app._source(arguments)
    assert isinstance(source, Worker)
    assert source.command[1:3] == ["-m", "minagi.worker"]
    assert "--dry-run" in source.command and "--profile=cpu" in source.command
    assert not any("theme" in part for part in source.command)


def test_a_recording_needs_no_paths(folder: Path) -> None:
    arguments = app.parser().parse(["--replay", str(folder / "a.txt"), "--speed", "4"])
    source = app._source(arguments)
    assert isinstance(source, Recording) and source.speed == 4.0


def test_help_is_short_and_version_true(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.main(["--help"])
    told = capsys.readouterr().out
    assert "minagi-tui ~/notes" in told and "--replay" in told
    assert len(told.splitlines()) < 70
    with pytest.raises(SystemExit):
        app.main(["--version"])
    assert capsys.readouterr().out.startswith("minagi ")


def test_neither_torch_nor_plotext_is_imported() -> None:
    heavy = "('torch', 'plotext', 'numpy')"
    code = f"import sys, tui.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------- the terminal


class Broken:
    """A terminal that went away after some writes."""

    encoding = "utf-8"

    def __init__(self, good: int) -> None:
        self.good, self.taken = good, ""

    def write(self, text: str) -> int:
        if self.good <= 0:
            raise OSError(5, "Input/output error")
        self.good -= 1
        self.taken += text
        return len(text)

    def flush(self) -> None:
        self.write("")

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


def test_a_stream_outlasts_its_terminal_and_says_once_that_it_is_gone() -> None:
    gone: list[int] = []
    broken = Broken(good=2)
    stream = terminal.LastingStream(broken)  # type: ignore[arg-type]
    stream.on_gone = lambda: gone.append(1)
    for _ in range(5):
        stream.write("x")
        stream.flush()
    assert broken.taken == "x"
    assert gone == [1]
    assert not stream.isatty()


def test_titles_cannot_smuggle() -> None:
    assert terminal.title_sequence("a\x07\x1b]0;b\nc") == "\x1b]0;a]0;b c\x07"


async def test_a_recording_that_is_left_claims_nothing_of_the_run_it_shows() -> None:
    fake = fr.FakeSource([fr.hello(), p.Goodbye("finished", True, 1694, 9000)])
    async with fr.opened(fake) as (shown, _pilot):
        assert "everything is saved" in app._last_words(shown)
        fake.recorded = True
        assert "recording" in app._last_words(shown)
        assert "saved" not in app._last_words(shown) and "/home/ada" not in app._last_words(shown)
