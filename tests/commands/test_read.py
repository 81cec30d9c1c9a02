from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from worker_fakes import FakeTrainer

from minagi import cli, protocol
from minagi.commands import read
from minagi.commands.progress import ProgressChannel, sentence
from minagi.errors import LockedError, UsageError
from minagi.training.request import Limits, SessionRequest


class Opener:
    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.request: SessionRequest | None = None
        self.trainer = FakeTrainer()

    def __call__(self, request: SessionRequest) -> FakeTrainer:
        self.request = request
        if self.fault:
            raise self.fault
        self.trainer.dry_run = request.dry_run
        return self.trainer


def test_json_is_the_workers_events_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    opener = Opener()
    opener.trainer.on_step = lambda steps: os.system("echo stray") and None
    assert read.main(["text.txt", "--json", "--steps", "3"], opener) == 0
    out, err = capfd.readouterr()
    events = [protocol.decode_event(line) for line in out.splitlines()]
    assert isinstance(events[0], protocol.Hello)
    assert isinstance(events[-1], protocol.Goodbye)
    assert err == "stray\n" * 3, "what libraries print stays out of the data"


def test_it_is_dry_unless_told_to_save(capsys: pytest.CaptureFixture[str]) -> None:
    dry, kept = Opener(), Opener()
    assert read.main(["text.txt", "--steps", "2"], dry) == 0
    assert ("checkpoint", "", "final") not in dry.trainer.calls
    assert read.main(["text.txt", "--steps", "2", "--save", "--weights", "w"], kept) == 0
    assert ("checkpoint", "", "final") in kept.trainer.calls
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing new was kept" in err
    assert "everything is saved" in err


@pytest.mark.parametrize(
    ("fault", "status"),
    [(LockedError("Process 12 writes here."), 4), (UsageError("No card."), 2), (ValueError("x"), 1)],
)
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_fault_is_told_once_on_stderr(
    fault: Exception, status: int, flags: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert read.main(["text.txt", *flags], Opener(fault)) == status
    out, err = capfd.readouterr()
    assert err.count("\n") == 1
    assert bool(out) == bool(flags)


def test_ctrl_c_ends_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    opener = Opener()
    opener.trainer.on_step = lambda steps: os.kill(os.getpid(), signal.SIGINT)
    assert read.main(["text.txt", "--save", "--weights", "w"], opener) == 130
    assert opener.trainer.calls[-2:] == [("checkpoint", "", "final"), "close"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_request_is_what_the_flags_say() -> None:
    opener = Opener()
    read.main(
        ["text.txt", "--steps=1", "--chars=5", "--weights", "w", "--device", "cpu", "--profile", "cpu"],
        opener,
    )
    assert opener.request
    assert opener.request.paths == (Path("text.txt"),)
    assert opener.request.limits == Limits(chars=5, steps=1)
    assert opener.request.loaded.profile == "cpu"
    assert opener.request.device == "cpu"


@pytest.mark.parametrize(
    "argv",
    [
        ["/no/such"], ["empty"], ["text.txt", "--weights", "text.txt"], ["text.txt", "--lr", "2"],
        ["text.txt", "--save", "--weights", "text.txt/w"], ["text.txt", "--profile", "nonsense"],
        ["text.txt", "--config", "nowhere.yaml"], ["text.txt", "--minutes", "0"],
        ["text.txt", "--save", "--dry-run"],
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence_before_anything_starts(
    argv: list[str], capsys: pytest.CaptureFixture[str], nobody_home: Path
) -> None:
    (nobody_home / "empty").mkdir()
    assert cli.main(["read", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("minagi: ")
    assert err.count("\n") == 1


# --------------------------------------------------------------------------------------- progress

HELLO = protocol.Hello(
    model="w", step=5, parameters=1234567, experts=1, context=256, precision="fp32", dry_run=True,
    notice="The cpu profile was chosen.",
)  # fmt: skip
STORY = [
    HELLO,
    protocol.CorpusFound(files=1, chars=1000, held_out_chars=50, subjects=[{}, {}]),
    protocol.Log(text="The cpu profile was chosen."),
    protocol.Log(text="config.yaml was passed over."),
    protocol.Phase(phase="running"),
    protocol.Metrics(step=6, session_chars=500, loss=2.5, chars_per_second=1234.5),
    protocol.HeldOut(nats=1.5, stderr=0.01, chars=500, best=True),
    protocol.HeldOut(),
    protocol.Window(context=256, sentence="It stays."),
    protocol.Window(context=260, sentence="It grew."),
    protocol.Log(topic="window", text="It grew."),
    protocol.Window(context=260, sentence="It stays again."),
    protocol.Rate(sentence="Held.", notable=False),
    protocol.Rate(sentence="Raised.", notable=True),
    protocol.Log(topic="rate", text="Raised."),
    protocol.Growth(sentence="One was born."),
    protocol.Log(topic="pool", text="One was born."),
    protocol.Saved(snapshot="3", name="mine", step=6),
    protocol.Log(level="warning", text="It diverged."),
    protocol.Reverted(snapshot="3", step=6, reason="It diverged."),
    protocol.Reverted(step=6, reason="asked"),
    protocol.Log(text="a file went\x1b[31m away"),
    protocol.Sampled(
        path="runs/samples.txt",
        samples=[{"subject": "a", "prompt": "Dear x", "raw": "r", "adapted": "and\x1b[31m\nso on" * 40}],
    ),
    protocol.HeldOut(
        nats=1.4, subjects={"a": {"nats": 1.4, "before": 1.5, "change_stderr": 0.01}, "b": {"nats": None}}
    ),
    protocol.Phase(phase="stopping"),
    protocol.Goodbye(reason="done", saved=True, step=6),
]


def told(terminal: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=terminal, width=120, markup=False, highlight=False, color_system=None
    )
    channel = ProgressChannel(Limits(steps=10), console, told="config.yaml was passed over.")
    for message in STORY:
        channel.send(message)
    channel.finish()
    return out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_the_story_of_a_run_is_told_in_sentences(terminal: bool) -> None:
    text = told(terminal)
    for words in (
        "w at step 5: 1,234,567 parameters, 1 expert,", "dry run", "1 file with 1,000 characters",
        "in 2 subjects",
        "Held-out: 2.164 ± 0.014 bits a character after 500 characters, the best so far.", "It grew.",
        "Raised.",
        "One was born.", "Saved as 'mine' at step 6", "Back at snapshot 3, step 6.", "Back at step 6.",
        "everything is saved", "The cpu profile was chosen.", "It diverged.",
        "a: after …'Dear x' it writes 'and",
        "2.164  2.020  -0.144 ± 0.014",
    ):  # fmt: skip
        assert text.count(words) == 1
    assert "passed over" not in text
    assert "It stays again." not in text
    assert "Held." not in text
    assert "\x1b[31m" not in text


def test_one_reading_alone_compares_with_nothing() -> None:
    out = io.StringIO()
    channel = ProgressChannel(Limits(), Console(file=out, width=120))
    channel.send(protocol.HeldOut(nats=1.4, subjects={"a": {"nats": 1.4, "before": 1.4}}))
    channel.send(protocol.Phase(phase="stopping"))
    assert "before" not in out.getvalue()


def test_plain_figures_come_every_ten_seconds() -> None:
    out, now = io.StringIO(), [0.0]
    channel = ProgressChannel(Limits(), Console(file=out, width=120), clock=lambda: now[0])
    for step in range(25):
        channel.send(protocol.Metrics(step=step, session_chars=step * 10, loss_smooth=2.0))
        now[0] += 1.0
    assert out.getvalue().splitlines() == [
        f"Step {n}: loss 2.885 bits a character · {n * 10} characters read" for n in (0, 10, 20)
    ]


@pytest.mark.parametrize(
    ("limits", "share"),
    [
        (Limits(), 0.25), (Limits(chars=1000), 0.5), (Limits(steps=4), 0.25), (Limits(passes=5), 0.05),
        (Limits(chars=1000, steps=2), 0.5), (Limits(minutes=1.0), 0.75),
    ],
)  # fmt: skip
def test_the_bar_shows_the_nearest_limit(limits: Limits, share: float) -> None:
    now = [0.0]
    channel = ProgressChannel(limits, Console(file=io.StringIO()), clock=lambda: now[0])
    channel.send(protocol.CorpusFound(chars=2000))
    now[0] = 45.0
    metrics = protocol.Metrics(step=8, session_chars=500)
    channel._figures(metrics)
    assert channel._done(metrics) == pytest.approx(share)


def test_every_kind_of_event_can_be_told() -> None:
    for kind in protocol.EVENTS.values():
        assert isinstance(sentence(kind()), str)


def test_a_reader_of_json_that_goes_away_ends_the_run(tmp_path: Path) -> None:
    program = tmp_path / "endless.py"
    program.write_text(
        "import sys; from worker_fakes import FakeTrainer; from minagi.commands import read\n"
        "trainer = FakeTrainer(step_seconds=0.002)\n"
        "sys.exit(read.main(['text.txt', '--json'], lambda request: trainer))\n"
    )
    fakes = str(Path(__file__).parent.parent / "worker")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([fakes, *sys.path])}
    done = subprocess.run(
        f"{sys.executable} {program} | head -n 3 > first.txt; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "nobody reads the events any more" in done.stderr
    first = Path("first.txt").read_text().splitlines()[0]
    assert json.loads(first)["type"] == "hello"


def test_what_comes_on_the_way_out_changes_nothing() -> None:
    """Neither another signal, nor a library that fails as it is taken apart."""
    program = """
import atexit, os, signal
from minagi import __main__, cli
from minagi.commands.running import told
from minagi.training.request import Limits

def held(channel, signals):
    os.kill(os.getpid(), signal.SIGTERM)
    return 130

def run():
    status = told(False, Limits(), "", held)
    os.kill(os.getpid(), signal.SIGTERM)
    return status

atexit.register(os.abort)
cli.main = run
__main__.main()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 130
