"""The app as `minagi bench start` and `ui` drive it: what they see, never how soon."""

from __future__ import annotations

import json
import os
import sys

import pytest

from minagi.bench import program
from minagi.errors import MinagiError
from tui.endurance import endure, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")


@pytest.mark.pty
@pytest.mark.usefixtures("nothing_left")
def test_the_real_app_is_started_and_left() -> None:
    found = program.start(threads=1, runs=1)
    assert 0 < found["first_frame_seconds"] < found["first_step_seconds"]


@pytest.mark.pty
@pytest.mark.usefixtures("nothing_left")
def test_keys_are_seen_in_the_real_app() -> None:
    found = program.ui(threads=1, keys=10, hours=0.01)
    assert found["keys"] == 10
    delays = found["key_milliseconds"]
    assert 0 < delays["p50"] <= delays["p95"] <= delays["worst"]
    assert found["torch_loaded"] in (False, None)
    assert found["days"]["torch_loaded"] is False


def test_an_app_that_ends_early_is_told_with_its_words() -> None:
    app = program.App(["/no/such/folder"], os.environ)
    try:
        with pytest.raises(MinagiError, match="/no/such/folder"):
            app.until(lambda text: "never" in text, "a frame")
    finally:
        app.close()


def test_an_endurance_run_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MinagiError, match="2 hours"):
        program.endurance(2.0)


async def test_hours_pass_in_seconds() -> None:
    found = await endure(0.05)
    assert found["events"] == sum(1 for _ in run(180))
    assert found["bytes_at_end"]
    json.dumps(found)


def test_a_run_holds_every_kind_of_event_and_time_never_turns_back() -> None:
    events = list(run(600))
    times = [at for at, _ in events]
    assert times == sorted(times)
    kinds = {message.type for _, message in events}
    assert kinds >= {
        "metrics",
        "pool",
        "memory",
        "subjects",
        "held_out",
        "growth",
        "saved",
        "log",
        "reply_chunk",
    }
