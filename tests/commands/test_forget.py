"""`minagi forget` over a study that is none: what is asked for, what is told, and how it is left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minagi import cli
from minagi.commands import forget
from minagi.errors import MinagiError
from minagi.experiments.forgetting import CHANCE, CHARS, ForgetRequest, Point, Scored
from minagi.protocol import Log, Message, Phase


class FakeStudy:
    """Gains 1 nat and loses 0.25 and 0.15 by the end; `act` is called after the first point."""

    def __init__(self, act: Any = None) -> None:
        self.request: ForgetRequest | None = None
        self.points: list[Point] = []
        self.notice, self.chars, self.act, self.closed = "", 0, act, False

    def __call__(self, request: ForgetRequest) -> FakeStudy:
        self.request = request
        return self

    def describe(self) -> dict[str, Any]:
        return {"new": "poems\x1b[2J", "known": ["a\u202e", "b"]}

    def run(self) -> Iterator[Message | Point]:
        assert self.request is not None
        for part in (0.0, 0.5, 1.0):
            self.chars = int(part * self.request.chars)
            yield Phase(phase="evaluating")
            known = {"a\u202e": scored(1.0, 0.25 * part), "b": scored(2.0, 0.15 * part)}
            self.points.append(Point(self.chars, self.chars, scored(3.0, -part), known))
            yield self.points[-1]
            yield Log(at=0, level="info", topic="rate", text="not worth telling")
            if self.act and len(self.points) == 1:
                self.act()
        yield Log(at=0, level="warning", topic="files", text="x\x1b[2J.txt vanished.")

    def close(self) -> None:
        self.closed = True


def scored(nats: float, change: float) -> Scored:
    return Scored(nats + change, (nats + change - 0.5, nats + change + 0.5))


@pytest.fixture
def here(nobody_home: Path) -> Path:
    (nobody_home / "w").mkdir()
    return nobody_home


def run(study: FakeStudy, *argv: str) -> int:
    return forget.main(["text.txt", "--weights", "w", *argv], study)


def test_a_table_of_points_and_what_came_of_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = FakeStudy()
    assert run(study) == 0 and study.closed
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["new", "read", "new", "known", "gained", "lost", "gained/lost", "retained"]
    assert lines[1] == ["0", "4.328", "2.164", "+0.000", "+0.000", "100.0%"]
    assert lines[3] == ["100,000", "2.885", "2.453", "+1.443", "+0.289", "5.00", "95.1%"]
    assert out.splitlines()[4:] == [
        "lost on a: +0.361 ± 0.000 bits a character",
        "lost on b: +0.216 ± 0.000 bits a character",
        "gained on poems\ufffd[2J: +1.443 ± 0.000 bits a character",
        "lost on what was known: +0.289 ± 0.000 bits a character",
    ]
    assert "After 50,000 characters: new 3.607, known 2.308 bits a character.\n" in err
    assert "vanished" in err and "not worth telling" not in err
    assert "\x1b" not in out + err


def test_json_is_one_object(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FakeStudy(), "--json") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert (found["new"], found["stopped"], found["chance"]) == ("poems\x1b[2J", "", CHANCE)
    assert [point["chars"] for point in found["points"]] == [0, 50_000, 100_000]
    assert found["points"][2]["gained_per_lost"] == pytest.approx(5)


def test_what_is_asked_for(here: Path) -> None:
    study = FakeStudy()
    (here / "old").mkdir()
    (here / "old" / "a.txt").write_text("words " * 100)
    flags = ["--old", "old", "old/a.txt", "--old", "text.txt", "--chars", "8e3", "--points", "10, 7_000"]
    assert run(study, *flags, "--interleave", "0.25", "--seed", "3", "--trunk-lr-mult", "0.1") == 0
    asked = study.request
    assert asked is not None
    assert asked.old == (Path("old"), Path("old/a.txt"), Path("text.txt"))
    assert (asked.chars, asked.points, asked.interleave, asked.seed) == (8000, (10, 7000), 0.25, 3)
    assert asked.loaded.settings.training.trunk_lr_mult == 0.1 and not asked.plain
    study = FakeStudy()
    assert run(study, "--plain") == 0 and study.request is not None
    assert study.request.plain and study.request.chars == CHARS
    assert study.request.points == (CHARS // 4, CHARS // 2, CHARS * 3 // 4)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_with_what_was_measured(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = FakeStudy(lambda: os.kill(os.getpid(), getattr(signal, name)))
    assert run(study, "--json") == 130 and study.closed
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["stopped"] == name and len(found["points"]) <= 2
    assert f"Stopped by {name} after" in err


def test_a_study_that_fails_is_closed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise MinagiError("Nothing is left to read.")

    study = FakeStudy(fail)
    with pytest.raises(MinagiError):
        run(study)
    assert study.closed and capsys.readouterr().out == ""


def test_a_notice_is_told_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = FakeStudy()
    study.notice = "poems lies in notes."
    assert run(study) == 0
    assert capsys.readouterr().err.startswith("poems lies in notes.\n")


BAD = [
    ([], "NEW_TEXT"),
    (["nowhere", "--weights", "w"], "nowhere"),
    (["text.txt", "--weights", "nowhere"], "no weights at"),
    (["text.txt", "--weights", "text.txt"], "is a file"),
    (["text.txt", "--weights", "w"], "holds no model yet"),
    (["empty", "--weights", "w"], "empty"),
    (["text.txt", "--weights", "w", "--old", "nowhere"], "nowhere"),
    (["text.txt", "--weights", "w", "--old"], "--old"),
    (["text.txt", "--weights", "w", "--chars", "0"], "--chars"),
    (["text.txt", "--weights", "w", "--chars", "1e12"], "--chars is 1000000000000: at most"),
    (["text.txt", "--weights", "w", "--points", "5,x"], "--points"),
    (["text.txt", "--weights", "w", "--points", "-5"], "--points"),
    (["text.txt", "--weights", "w", "--points", ""], "--points"),
    (["text.txt", "--weights", "w", "--points", "1," * 2000], "at most 1,000 points"),
    (["text.txt", "--weights", "w", "--chars", "9", "--points", "10"], "past the 9 of --chars"),
    (["text.txt", "--weights", "w", "--interleave", "0"], "--interleave"),
    (["text.txt", "--weights", "w", "--interleave", "1"], "--interleave"),
    (["text.txt", "--weights", "w", "--interleave", "nan"], "--interleave"),
    (["text.txt", "--weights", "w", "--interleave", "0.5", "--plain"], "--plain"),
    (["text.txt", "--weights", "w", "--plain", "--trunk-lr-mult", "1"], "leave out --trunk-lr-mult"),
    (["text.txt", "--weights", "w", "--trunk-lr-mult", "-1"], "training.trunk_lr_mult"),
    (["text.txt", "--weights", "w", "--seed", "-1"], "--seed"),
    (["text.txt", "--weights", "w", "--device", "cuda:99"], "holds no model yet"),
    (["text.txt", "--weights", "w", "--lr-horizon", "9"], "--lr-horizon"),
    (["text.txt", "--weights", "w", "--save"], "There is no flag --save"),
]


@pytest.mark.parametrize(("argv", "words"), BAD)
def test_bad_input_is_a_sentence(
    argv: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty").write_text("")
    before = sorted(here.rglob("*"))
    assert cli.main(["forget", *argv]) in (2, 3)
    out, err = capsys.readouterr()
    assert out == "" and words in err and err.count("\n") == 1 and "Traceback" not in err
    assert sorted(here.rglob("*")) == before
