"""From the command to the first step: what cannot be is one sentence, everything else just works."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from conftest import SCRIPTS, Place, without_root_powers
from terminal_program import ENTER, Program

pytestmark = pytest.mark.pty
Start = Callable[..., Program]


def test_the_first_frame_waits_for_nothing(place: Place, start: Start) -> None:
    app = start(place)
    app.until("starting")
    assert app.seconds < 10, "bench/ measures it; this is only to notice torch being waited for"


def test_a_new_model_is_shown_first_and_one_key_starts_it(place: Place, start: Start) -> None:
    app = start(place, welcome=True)
    app.until("A new model")
    app.until("to read it all")
    app.until("‖ paused")
    step = app.step
    app.pump(0.5)
    assert app.step == step, "it waits"
    app.press(ENTER)
    app.until_gone("A new model")
    app.until_step()
    app.signal(signal.SIGTERM)
    assert app.end() == 143
    assert place.saved_step() > step
    again = start(place, welcome=True)
    again.until_step()
    assert "A new model" not in again.screen


def test_a_new_model_that_is_not_wanted_leaves_nothing(place: Place, start: Start) -> None:
    app = start(place, welcome=True)
    app.until("to read it all")
    app.press("q")
    assert app.end() == 0
    assert app.left_on() == []
    assert not place.weights.exists(), "neither a lock nor an empty folder"


def nowhere(place: Place) -> tuple[str, ...]:
    return ("no/such/folder",)


def empty(place: Place) -> tuple[str, ...]:
    (place.folder / "void").mkdir()
    return ("void",)


def binaries(place: Place) -> tuple[str, ...]:
    (place.folder / "bin").mkdir()
    for number in range(3):
        (place.folder / "bin" / f"{number}.dat").write_bytes(bytes(range(256)) * 9)
    return ("bin",)


def unreadable(place: Place) -> tuple[str, ...]:
    (place.folder / "secret").mkdir()
    (place.folder / "secret" / "a.txt").write_text("words " * 100)
    (place.folder / "secret").chmod(0o000)
    return ("secret",)


def unreadable_file(place: Place) -> tuple[str, ...]:
    (place.folder / "mine.txt").write_text("words " * 100)
    (place.folder / "mine.txt").chmod(0o000)
    return ("mine.txt",)


def weights_a_file(place: Place) -> tuple[str, ...]:
    return ("text.txt", "--weights", "text.txt")


def weights_unwritable(place: Place) -> tuple[str, ...]:
    (place.folder / "locked").mkdir()
    (place.folder / "locked").chmod(0o555)
    return ("text.txt", "--weights", "locked/w")


def broken_config(place: Place) -> tuple[str, ...]:
    (place.folder / "config.yaml").write_text("training:\n  lr: [1e-3\n")
    return ("text.txt",)


def config_of_the_wrong_kind(place: Place) -> tuple[str, ...]:
    (place.folder / "config.yaml").write_text("training: {lr: fast}\n")
    return ("text.txt",)


def no_path(place: Place) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (nowhere, ("no/such/folder", "does not exist")),
        (empty, ("void", "no files to read")),
        (binaries, ("bin", "3 binary")),
        (unreadable, ("secret", "cannot be read")),
        (unreadable_file, ("mine.txt", "cannot be read")),
        (weights_a_file, ("text.txt", "directory")),
        (weights_unwritable, ("locked", "Nothing can be written")),
        (broken_config, ("config.yaml", "not valid YAML")),
        (config_of_the_wrong_kind, ("config.yaml", "training.lr")),
        (no_path, ("minagi-tui ~/notes",)),
    ],
)
def test_what_cannot_be_is_one_sentence_before_the_screen_is_taken(
    prepare: Callable[[Place], tuple[str, ...]], words: tuple[str, ...], place: Place, start: Start
) -> None:
    arguments = prepare(place)
    app = start(place, "minagi-tui", *arguments, columns=400, preexec=without_root_powers())
    assert app.end() == 2
    (sentence,) = app.parting.strip().splitlines()
    assert all(word in sentence for word in words), sentence
    assert b"\x1b[?1049h" not in app.output
    assert app.left_on() == []


def test_three_thousand_files_under_a_path_with_spaces_and_emoji(place: Place, start: Start) -> None:
    folder = place.folder / "my notes 🌙 [draft]"
    for number in range(3_000):
        (folder / f"día {number % 7}").mkdir(parents=True, exist_ok=True)
        (folder / f"día {number % 7}" / f"{number} 🐟.md").write_text(f"page {number} of the long story " * 3)
    app = start(place, "minagi-tui", folder, "--weights", "w ✶ x")
    app.until_step()
    app.until("3,000 files")
    app.signal(signal.SIGTERM)
    assert app.end() == 143
    assert (place.folder / "w ✶ x" / "manifest.json").exists()


def test_weights_that_cannot_be_opened_end_the_app_with_the_sentence(made: Place, start: Start) -> None:
    (core,) = made.weights.glob("core*")
    core.write_bytes(b"nothing of the kind")
    app = start(made, "minagi-tui", "text.txt", "--weights", "w", columns=400)
    assert app.end() == 3
    assert core.name in app.parting
    assert "Traceback" not in app.parting
    assert app.left_on() == []


def test_without_a_terminal_it_reads_unseen(place: Place) -> None:
    done = place.run("minagi-tui", "text.txt", "--weights", "w", "--steps", "3")
    assert done.returncode == 0
    assert "There is no terminal on standard input nor standard error" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert place.saved_step() == 3


def test_without_a_terminal_it_fails_when_asked_to(place: Place, start: Start) -> None:
    shell = Program(
        ["/bin/sh", "-c", f"{SCRIPTS}/minagi-tui text.txt --weights w --no-headless 2>told; echo status $?"],
        place.folder, place.environ,
    )  # fmt: skip
    shell.until("status 2")
    told = (place.folder / "told").read_text()
    assert told == "The app needs a terminal, and there is none on standard error.\n"
    shell.close()


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_terminal(closed: str, place: Place) -> None:
    command = f"{SCRIPTS}/minagi-tui text.txt --weights w --no-headless {closed}"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=place.folder, env=place.environ, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_signal_as_soon_as_the_screen_is_taken(place: Place, start: Start) -> None:
    app = start(place)
    while b"\x1b[?1049h" not in app.output:
        app.pump(0.01)
    app.signal(signal.SIGTERM)
    assert app.end() == 143
    assert app.left_on() == []
    assert "Traceback" not in app.parting


def test_a_locale_that_is_not_utf8(place: Place, start: Start) -> None:
    app = start(Place(place.folder, {**place.environ, "PYTHONIOENCODING": "latin-1"}))
    app.until("… starting")


def test_a_folder_that_was_removed_behind_the_shell(place: Place) -> None:
    (place.folder / "here").mkdir()
    command = f"cd here && rmdir ../here && {SCRIPTS}/minagi-tui ../text.txt"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=place.folder, env=place.environ, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "The folder this was started in is gone. Change to another one first.\n"


@pytest.mark.parametrize(
    ("program", "loaded"),
    [("tui", "tui.app"), ("minagi", "minagi.cli"), ("minagi.worker", "minagi.worker.process")],
)
def test_ctrl_c_while_it_is_loading_prints_nothing(program: str, loaded: str) -> None:
    code = (
        "import signal, sys, types\n"
        f"loading = sys.modules[{loaded!r}] = types.ModuleType({loaded!r})\n"
        "loading.__getattr__ = lambda name: signal.raise_signal(signal.SIGINT)\n"
        f"from {program}.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
