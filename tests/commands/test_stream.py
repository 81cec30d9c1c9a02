"""`minagi stream`: its flags, how it is driven, and what cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from minagi import cli, protocol
from minagi.commands import stream
from minagi.errors import MinagiError, UsageError, WeightsError
from minagi.protocol import Message
from minagi.text.mix import Source
from minagi.text.packed import TRAIN, VAL
from minagi.training.stream_request import StreamRequest
from minagi.weights import Store


def make_corpus(folder: Path, ids: int = 20_000) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name in (TRAIN, VAL):
        rng.integers(97, 110, ids).astype("<u2").tofile(folder / name)
    return folder


@pytest.fixture
def corpora(nobody_home: Path) -> Path:
    for name in ("one", "two"):
        make_corpus(nobody_home / name)
    return nobody_home


class FakeStreamer:
    """Makes steps of ten characters until there are `total`."""

    dry_run = False

    def __init__(self, total: int = 3, done: int = 0) -> None:
        self.total, self.done = total, done
        self.steps = self.chars = self.unsaved_chars = 0
        self.calls: list[str] = []
        self.guarded = None
        self.on_step = lambda: None

    @property
    def concluded(self) -> bool:
        return self.done >= self.total

    def greet(self) -> Iterator[Message]:
        self.calls.append("greet")
        yield protocol.Hello(model="out")

    def step(self) -> Iterator[Message]:
        self.on_step()
        self.done += 1
        self.steps += 1
        self.chars += 10
        self.unsaved_chars += 10
        yield protocol.Phase(phase="running")
        yield protocol.Metrics(step=self.steps, loss=2.0)
        if self.concluded:
            yield from self.checkpoint(kind="best")

    def checkpoint(self, name: str = "", kind: str = "asked") -> Iterator[Message]:
        self.calls.append(kind)
        self.unsaved_chars = 0
        yield protocol.Saved(snapshot="1", step=self.steps)

    def conclude(self) -> Iterator[Message]:
        yield protocol.Log(text="What was under way is saved.")

    def close(self) -> None:
        self.calls.append("close")


def run(argv: list[str], fake: FakeStreamer | None = None) -> tuple[int, StreamRequest, FakeStreamer]:
    fake = fake or FakeStreamer()
    asked: list[StreamRequest] = []

    def open_stream(request: StreamRequest) -> FakeStreamer:
        asked.append(request)
        return fake

    return stream.main(argv, open_stream), asked[0], fake


def test_the_request_is_what_the_flags_say(corpora: Path) -> None:
    line = (
        "--mix one:2.5,two --out m --context 512 --ctx-start 128 --chunk 64 --accum 4 --steps 2e3 --lr 1e-3 "
        "--trunk-lr-mult 0.5 --warmup 30 --wd 0.2 --clip 0.7 --seed 9 --log-every 5 --eval-every 50 "
        "--eval-chunks 7 --grow-k 2 --grow-min-age 400 --grow-mem-frac 0.5 --pool-max 32 --replay 0.25 "
        "--replay-burst 3 --revert-factor 2 --max-reverts 5 --device cpu --threads 2 --profile cpu"
    )
    status, request, _ = run(line.split())
    assert status == 0
    assert request.mix == (Source("one", Path("one"), 2.5), Source("two", Path("two"), 1.0))
    assert request.out == corpora / "m"
    settings = request.loaded.settings
    assert request.lengths(settings) == (64, 128, 512)
    assert (request.steps, request.accum, request.warmup_steps, request.seed) == (2_000, 4, 30, 9)
    assert (settings.training.lr, settings.training.trunk_lr_mult) == (1e-3, 0.5)
    assert (settings.training.weight_decay, settings.training.clip) == (0.2, 0.7)
    assert (request.log_every, request.eval_every, request.eval_chunks) == (5, 50, 7)
    assert (settings.growth.k, settings.growth.mem_frac, request.pool_max) == (2, 0.5, 32)
    assert request.in_steps(settings).prune.survival_chars == 400 * 4 * 64
    assert (request.replay, request.replay_burst) == (0.25, 3)
    assert (request.revert_factor, request.max_reverts) == (2.0, 5)
    assert (request.device, request.threads, request.loaded.profile) == ("cpu", 2, "cpu")


def test_what_is_not_given_comes_from_the_settings(corpora: Path) -> None:
    _, request, _ = run(["--mix", "one", "--weights-dir", "m"])
    settings = request.loaded.settings
    assert request.in_steps(settings).prune == settings.prune
    assert request.warmup_steps == 100
    assert request.out == corpora / "m"
    short = run(["--mix", "one", "--steps", "50", "--out", "m"])[1]
    assert short.warmup_steps == 5


def test_a_corpus_may_be_named_by_its_place_among_the_data(
    corpora: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_corpus(corpora / "data" / "books")
    monkeypatch.setenv("MINAGI_DATA_TRAIN", str(corpora / "data" / "train"))
    request = run(["--mix", "books:2,one", "--out", "m"])[1]
    assert [source.folder for source in request.mix] == [corpora / "data" / "books", Path("one")]


def test_it_is_driven_to_its_end_and_told_on_stderr(
    corpora: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, fake = run(["--mix", "one", "--out", "m"])
    assert status == 0
    assert fake.calls == ["greet", "best", "close"]
    out, err = capsys.readouterr()
    assert out == ""
    assert "Ended at step 3: 3 steps were made, the last of the stream; everything is saved." in err


def test_a_stream_that_is_done_says_so(corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, fake = run(["--mix", "one", "--out", "m"], FakeStreamer(3, done=3))
    assert status == 0
    assert fake.calls == ["greet", "close"]
    assert "every step was made before" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stream_state", "flags", "left"),
    [
        ({"done": 30}, [], 70), ({"done": 300}, [], 0), ({"done": 30}, ["--restart"], 100), (None, [], 100),
        ({"done": "x"}, [], 100), ([], [], 100), ({}, [], 100),
    ],
)  # fmt: skip
def test_the_bar_shows_what_is_left(
    stream_state: object, flags: list[str], left: int, corpora: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = stream.parser().parse(["--mix", "one", "--out", "m", "--steps", "100", *flags])
    request = stream.stream_request(arguments)
    assert stream.steps_left(request) == 100
    monkeypatch.setattr(Store, "manifest", {"minagi": {"stream": stream_state}})
    assert stream.steps_left(request) == left


def test_json_is_events_on_stdout(corpora: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--mix", "one", "--out", "m", "--json"])[0] == 0
    out, err = capfd.readouterr()
    events = [json.loads(line)["type"] for line in out.splitlines()]
    assert events[0] == "hello" and events[-1] == "goodbye"
    assert events.count("phase") == 1, "a phase is told when it changes"
    assert events[-2] == "log", "what was under way is told before the end"
    assert err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_leaves(number: int, corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeStreamer(total=1_000)
    fake.on_step = lambda: os.kill(os.getpid(), number) if fake.steps == 4 else None
    assert run(["--mix", "one", "--out", "m"], fake)[0] == 130
    assert fake.calls == ["greet", "final", "close"]
    assert f"stopped by {signal.Signals(number).name}; everything is saved" in capsys.readouterr().err


def test_a_second_signal_leaves_at_once(corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeStreamer(total=1_000)

    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    fake.on_step = twice
    assert run(["--mix", "one", "--out", "m"], fake)[0] == 130
    assert fake.calls == ["greet", "close"]
    assert "stopped at once" in capsys.readouterr().err


def test_ctrl_c_at_the_start_opens_greets_and_leaves(corpora: Path) -> None:
    fake = FakeStreamer(total=1_000)

    def open_stream(request: StreamRequest) -> FakeStreamer:
        os.kill(os.getpid(), signal.SIGINT)
        return fake

    assert stream.main(["--mix", "one", "--out", "m"], open_stream) == 130
    assert fake.calls == ["greet", "close"]


@pytest.mark.parametrize(
    ("fault", "status"), [(MinagiError("It diverged."), 1), (WeightsError("core.npz is damaged."), 3)]
)
def test_what_goes_wrong_meanwhile_is_saved_and_told(
    fault: MinagiError, status: int, corpora: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeStreamer(total=1_000)

    def fail() -> None:
        if fake.steps == 2:
            raise fault

    fake.on_step = fail
    assert run(["--mix", "one", "--out", "m"], fake)[0] == status
    assert fake.calls == ["greet", "final", "close"]
    assert str(fault) in capsys.readouterr().err


# ------------------------------------------------------------------------------------ what cannot be

HOSTILE = [
    "", "--mix", "--mix one --mix", "--mix=", "--mix ,", "--mix one,", "--mix one:0", "--mix one:-1",
    "--mix one:nan", "--mix one:inf", "--mix one:x", "--mix one:", "--mix :2", "--mix one,one",
    "--mix one:1,one:2", "--mix one,./one", "--mix one --steps 0", "--mix one --steps -3",
    "--mix one --steps 1.5", "--mix one --accum 0", "--mix one --warmup 11 --steps 10",
    "--mix one --warmup -1", "--mix one --replay 1", "--mix one --replay -0.1", "--mix one --replay nan",
    "--mix one --replay-burst 0", "--mix one --log-every 0", "--mix one --eval-every 0",
    "--mix one --eval-chunks 0", "--mix one --grow-min-age 0", "--mix one --pool-max -1",
    "--mix one --revert-factor 0", "--mix one --max-reverts -1", "--mix one --lr 0", "--mix one --lr nan",
    "--mix one --wd -1", "--mix one --clip 0", "--mix one --trunk-lr-mult -1", "--mix one --grow-k -1",
    "--mix one --grow-mem-frac 2", "--mix one --context 4", "--mix one --ctx-start 2048 --context 1024",
    "--mix one --chunk 2048 --context 1024", "--mix one --seed x", "--mix one --profile none",
    "--mix one --config none.yaml", "--mix one --out text.txt", "--mix one --out text.txt/m",
    "--mix one --out one", "--mix one --out ./one/../one", "--mix one --out=", "--mix one --stepz 3",
    "--mix one extra", "--mix one --threads 0", "--mix one --again-lr-mult 0.5", "--mix one --ngram-renew",
]  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE)
def test_what_cannot_be_is_one_sentence_before_anything_starts(
    line: str, corpora: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_open", lambda request: pytest.fail("it was opened"))
    before = sorted(corpora.rglob("*"))
    assert cli.main(["stream", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("minagi: ") and err.count("\n") == 1
    assert sorted(corpora.rglob("*")) == before


def test_help_is_true_and_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stream", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in (
        "mix", "out", "context", "ctx-start", "chunk", "accum", "steps", "lr", "trunk-lr-mult", "warmup",
        "wd", "clip", "seed", "log-every", "eval-every", "eval-chunks", "grow-k", "grow-min-age",
        "grow-mem-frac", "pool-max", "replay", "replay-burst", "revert-factor", "max-reverts", "weights",
        "weights-dir", "device", "config", "profile", "json", "restart",
    ):  # fmt: skip
        assert f"--{flag}" in text
    assert "minagi stream --mix" in text and "exit status" in text


# ---------------------------------------------------------------------------------- the real program

SMALL = (
    "--d-model 16 --n-head 2 --d-ff 24 --n-prelude 1 --max-steps 2 --experts 4 --expert-width 8 --top-k 2 "
    "--resident 4 --context 64 --ctx-start 32 --chunk 32 --eval-chunks 2 --device cpu --threads 1"
)


def minagi(line: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "minagi", *line.split()]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def test_a_real_stream_then_eval_info_and_more_steps(corpora: Path) -> None:
    done = minagi(f"stream --mix one:1,two:3 --out m --steps 6 --json {SMALL}")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"hello", "corpus", "metrics", "held_out", "saved", "goodbye"} <= {e["type"] for e in events}
    kept = [json.loads(line) for line in Path("m/events.jsonl").read_text().splitlines()]
    assert [e["type"] for e in kept] == [
        e["type"] for e in events if e["type"] not in ("metrics", "phase", "pool", "memory", "subjects")
    ]
    assert {e["weights"] for e in kept} == {str(Path("m").absolute())}
    assert json.loads(minagi("info m --json").stdout)["step"] == 6
    told = json.loads(minagi("eval text.txt --weights m --json").stdout)
    assert told["bytes"] > 8_000 and told["context"] == 64
    line = f"{sys.executable} -m minagi stream --mix one:1,two:3 --out m --steps 8 {SMALL} <&- >&-"
    again = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, timeout=120)
    assert again.returncode == 0
    assert "2 steps were made, the last of the stream" in again.stderr
    kinds = [json.loads(line)["kind"] for line in Path("m/history.jsonl").read_text().splitlines()]
    assert kinds.count("start") == kinds.count("done") == 2


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("missing", "There is no val.bin"), ("odd", "an odd number of bytes"), ("empty", "is empty"),
        ("foreign", "the id 50256 at place 3"),
        ("folder", "cannot be read"), ("nowhere", "There is no corpus folder"), ("file", "is a file"),
    ],
)  # fmt: skip
def test_a_corpus_that_is_none(
    spoil: str, said: str, corpora: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    two = corpora / "two"
    if spoil == "missing":
        (two / VAL).unlink()
    elif spoil == "odd":
        (two / TRAIN).write_bytes(b"abc")
    elif spoil == "empty":
        (two / TRAIN).write_bytes(b"")
    elif spoil == "foreign":
        np.array([1, 2, 3, 50256], "<u2").tofile(two / TRAIN)
    elif spoil == "folder":
        (two / TRAIN).unlink()
        (two / TRAIN).mkdir()
    else:
        for name in (TRAIN, VAL):
            (two / name).unlink()
        two.rmdir()
        if spoil == "file":
            two.write_text("x")
    assert cli.main(["stream", "--mix", "one,two", "--out", "m", *SMALL.split()]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err
    assert not Path("m").exists()


def test_a_reader_of_json_that_goes_away_ends_it_saved(corpora: Path) -> None:
    line = f"{sys.executable} -m minagi stream --mix one --out m --steps 100000 --json {SMALL}"
    done = subprocess.run(
        f"{line} | head -n 3 > first.txt; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "nobody reads the events any more" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(Path("m/manifest.json").read_text())["step"] < 100_000


def test_flags_of_settings_say_where_they_are_wrong() -> None:
    with pytest.raises(UsageError, match=r"weight_decay is '-1'"):
        stream.main(["--mix", "one", "--wd", "-1"])
