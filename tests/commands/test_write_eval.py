"""`minagi write` and `minagi eval` with a model that is none."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi import cli
from minagi.commands import eval as evaluate
from minagi.commands import write
from minagi.commands.output import TextOut, harmless
from minagi.config import LoadedSettings
from minagi.errors import WeightsError
from minagi.training.request import Written
from tui.sanitise import clean_text

TEXT = "né\x1b[2Jxt".encode() + b"\xff\xc3"


class FakeReader:
    def __init__(self) -> None:
        self.asked: tuple[Any, ...] = ()
        self.closed = False
        self.figures: dict[str, Any] = {
            "nats": 1.5, "bits_per_byte": 1.5 / math.log(2), "bytes": 99, "stderr": math.nan, "subjects": {},
            "context": 256,
        }  # fmt: skip

    def write(
        self,
        prompt: bytes,
        chars: int,
        raw: bool = False,
        strength: float | None = None,
        on_char: Callable[[bytes, int], None] | None = None,
    ) -> Written:
        self.asked = (prompt, chars, raw)
        for byte in TEXT if on_char else b"":
            on_char(bytes([byte]), 2)  # type: ignore[misc]
        return Written(TEXT, list(TEXT), [2] * len(TEXT))

    def evaluate(self, path: Path) -> dict[str, Any]:
        self.asked = (path,)
        if path.name == "damaged":
            raise WeightsError("core.npz is damaged.")
        return self.figures

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def reader(nobody_home: Path) -> FakeReader:
    (nobody_home / "w").mkdir()
    return FakeReader()


def opener(reader: FakeReader) -> Callable[[Path, LoadedSettings, str], FakeReader]:
    return lambda weights, loaded, device: reader


def test_text_goes_to_a_pipe_byte_for_byte(
    reader: FakeReader, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    argv = ["--weights", "w", "--prompt", "Höre", "--chars", "9", "--raw"]
    assert write.main(argv, opener(reader)) == 0
    out, err = capfdbinary.readouterr()
    assert out == TEXT
    assert err == b""
    assert reader.asked == ("Höre".encode(), 9, True)
    assert reader.closed


def test_text_on_a_terminal_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdout", terminal)
    out = TextOut()
    for byte in TEXT:
        out.write(bytes([byte]))
    out.end()
    assert terminal.getvalue() == "né\ufffd[2Jxt\ufffd\ufffd\n"


@given(st.text(alphabet=st.characters(codec=None)))
def test_the_command_line_shows_nothing_that_the_app_would_not(text: str) -> None:
    shown = harmless(text)
    assert clean_text(shown) == shown.replace("\t", "    ")
    assert harmless("a\tb\nc \u202ed\u2069\ufeff \u2028") == "a\tb\nc d \ufffd"


def test_json_is_one_object_with_one_row_a_character(
    reader: FakeReader, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write.main(["--weights", "w", "--prompt", "x", "--json"], opener(reader)) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    body = json.loads(out)
    assert body["text"] == TEXT.decode("utf-8", "replace")
    assert len(body["ids"]) == len(body["rows"]) == len(TEXT)
    assert reader.asked[1] == 400


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["write", "--prompt", "x", "--weights", "nowhere"], "no weights at"),
        (["write", "--prompt", "x", "--weights", "text.txt"], "is a file"),
        (["write", "--weights", "w"], "--prompt"),
        (["write", "--prompt", "x", "--chars", "0"], "--chars"),
        (["write", "--prompt", "x", "--chars", "1e12"], "--chars"),
        (["write", "--prompt", "x", "--precision", "fp5"], "training.precision"),
        (["write", "--prompt", "x", "--adapt-strength", "-1"], "decoding.adapt_strength"),
        (["eval", "nowhere.txt", "--weights", "w"], "nowhere.txt"),
        (["eval", "text.txt", "--weights", "nowhere"], "no weights at"),
        (["eval", "--weights", "w"], "path"),
        (["info", "nowhere"], "does not exist"),
        (["info", "text.txt"], "is a file"),
    ],
)
def test_bad_input_is_a_sentence(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], reader: FakeReader
) -> None:
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err.replace("PATH", "path")
    assert err.count("\n") == 1


def test_eval_json_is_one_object_without_nan(reader: FakeReader, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["text.txt", "--weights", "w", "--json"], opener(reader)) == 0
    body = json.loads(capsys.readouterr().out)
    assert body == {**reader.figures, "stderr": None}
    assert reader.asked == (Path("text.txt"),)
    assert reader.closed


def test_eval_in_words(reader: FakeReader, capsys: pytest.CaptureFixture[str]) -> None:
    part = {"nats": 1.0, "stderr": 0.1, "bytes": 9}
    reader.figures |= {"stderr": 0.01, "subjects": {"a\x1b": part, "b": {**part, "nats": None}}}
    assert evaluate.main(["text.txt", "--weights", "w"], opener(reader)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "all: 2.1640 ± 0.0144 bits a character, 99 characters"
    assert lines[1].startswith("a\ufffd: 1.4427")
    assert lines[2] == "b: nothing to score"
    assert lines[3] == "context: 256"


def test_a_model_that_fails_is_closed(reader: FakeReader) -> None:
    Path("damaged").write_text("x")
    with pytest.raises(WeightsError):
        evaluate.main(["damaged", "--weights", "w"], opener(reader))
    assert reader.closed
