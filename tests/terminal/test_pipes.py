"""The commands in a pipe, without input, and stopped by signals: no traceback, nothing lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from conftest import SCRIPTS, Place
from terminal_program import CTRL_C, Program

from minagi import protocol

pytestmark = pytest.mark.pty
MINAGI = SCRIPTS / "minagi"


def shell(place: Place, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", command], cwd=place.folder, env=place.environ, capture_output=True, text=True,
        errors="replace", timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("read text.txt --weights w --save --json", 1),
        ("write --weights w --prompt 'we rowed' --chars 1000000", 1),
        ("info w --json", None),
    ],
)
def test_a_reader_that_has_seen_enough(command: str, status: int | None, made: Place) -> None:
    done = shell(made, f"{MINAGI} {command} | head -c 40; exit ${{PIPESTATUS[0]}}")
    assert len(done.stdout) <= 40
    assert status is None or done.returncode == status
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    made.saved_step()  # the weights open


def test_closed_input_is_no_end(made: Place) -> None:
    done = shell(made, f"{MINAGI} read text.txt --weights w --save --steps 3 --json <&-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["type"] == "goodbye"
    assert made.saved_step() == 43


def test_ctrl_c_ends_a_reading_in_order(made: Place, start: Callable[..., Program]) -> None:
    reading = start(made, "minagi", "read", "text.txt", "--weights", "w", "--save")
    reading.until("loss")
    reading.press(CTRL_C)
    assert reading.end() == 130
    assert "everything is saved" in reading.parting.replace("\n", " ")
    assert "Traceback" not in reading.parting
    assert reading.left_on() == []
    assert made.saved_step() > 40


def worker(place: Place) -> subprocess.Popen[bytes]:
    """The worker as the app starts it, seen to be training."""
    started = subprocess.Popen(
        [sys.executable, "-m", "minagi.worker", "text.txt", "--weights", "w"],
        cwd=place.folder, env=place.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdout
    for line in started.stdout:
        if isinstance(protocol.decode_event(line), protocol.Metrics):
            return started
    raise AssertionError("the worker ended")


def test_a_worker_that_is_told_to_go_saves_and_leaves(made: Place) -> None:
    saved = 40
    for number in (signal.SIGTERM, signal.SIGHUP):
        process = worker(made)
        process.send_signal(number)
        told, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        goodbye = protocol.decode_event(told.splitlines()[-1])
        assert isinstance(goodbye, protocol.Goodbye)
        assert goodbye.saved
        assert made.saved_step() == goodbye.step > saved
        saved = goodbye.step
