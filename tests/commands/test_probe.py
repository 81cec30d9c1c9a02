"""`minagi probe` with a model that is none, and once with a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minagi import cli
from minagi.commands import probe
from minagi.errors import WeightsError
from minagi.experiments.additions import lines
from minagi.training.request import Looked


class FakeReader:
    """Takes as many rows as the numbers have digits, and answers right or never."""

    def __init__(self, right: bool = True) -> None:
        self.right, self.closed = right, False

    def look(self, text: bytes) -> Looked:
        digits = text.index(b"+") - 1
        return Looked([digits] * len(text), [*text[1:], 0] if self.right else [0] * len(text))

    def close(self) -> None:
        self.closed = True


def run(reader: Any, *argv: str) -> int:
    Path("w").mkdir(exist_ok=True)
    return probe.main(["--weights", "w", *argv], lambda weights, loaded, device: reader)


def test_a_table_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    reader = FakeReader()
    assert run(reader) == 0 and reader.closed
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["digits", "rows", "spread", "largest", "right"]
    assert rows[1] == ["1", "1.000", "0.000", "1", "100%"]
    assert rows[8] == ["8", "8.000", "0.000", "8", "100%"]
    assert out.splitlines()[-1].startswith("working: depth follows difficulty; 8 digits take +7.000 rows")
    assert err == "" and "\x1b" not in out


def test_json_is_one_object_and_a_flat_verdict_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    reader = FakeReader(right=False)
    reader.look = lambda text: Looked([2] * len(text), [0] * len(text))  # type: ignore[method-assign]
    assert run(reader, "--json", "--samples", "3", "--seed", "7") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert out.count("\n") == 1
    assert (found["verdict"], found["difference"], found["samples"], found["seed"]) == ("flat", 0, 3, 7)
    assert found["lengths"][7] == {"digits": 8, "mean": 2, "spread": 0, "largest": 2, "right": 0}
    assert "answers no addition right" in err


def test_a_model_that_fails_is_closed() -> None:
    reader = FakeReader()
    reader.look = lambda text: (_ for _ in ()).throw(WeightsError("e00001.npz is damaged."))  # type: ignore
    with pytest.raises(WeightsError):
        run(reader)
    assert reader.closed


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--weights", "nowhere"], "no weights at"),
        (["--samples", "0"], "--samples"),
        (["--samples", "1e9"], "--samples is 1000000000: at most"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "x"], "--seed"),
        (["--out", "x"], "--out is where --generate writes"),
        (["--generate", "0"], "--generate"),
        (["--generate", "1e12"], "--generate is 1000000000000: at most"),
        (["--generate", "3", "--json"], "leave out --json"),
        (["--generate", "3", "--out", "text.txt"], "is there already"),
        (["--generate", "3", "--out", "text.txt/x"], "text.txt/x cannot be written"),
        (["--generate", "3", "--out", "/proc/no/x"], "/proc/no/x cannot be written"),
        (["--generate", "3", "--out", "text\0"], "a path must not be empty"),
    ],
)
def test_bad_input_is_a_sentence(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["probe", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err and err.count("\n") == 1


def test_text_to_learn_from(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert cli.main(["probe", "--generate", "50", "--seed", "3"]) == 0
    expected = b"".join(lines(50, 3))
    assert capfdbinary.readouterr().out == expected
    out = Path("deep") / "er" / "additions.txt"
    assert cli.main(["probe", "--generate", "50", "--seed", "3", "--out", str(out)]) == 0
    assert out.read_bytes() == expected and [p.name for p in out.parent.iterdir()] == [out.name]
    assert b"50 additions are in" in capfdbinary.readouterr().err


def test_a_file_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(count: int, seed: int) -> Any:
        yield b"1+1=2\n"
        raise KeyboardInterrupt

    monkeypatch.setattr(probe, "lines", broken)
    assert cli.main(["probe", "--generate", "5", "--out", "half/additions.txt"]) == 130
    assert list(Path("half").iterdir()) == []


def test_a_dangling_link_is_not_written_through(capsys: pytest.CaptureFixture[str]) -> None:
    Path("link").symlink_to("elsewhere")
    assert cli.main(["probe", "--generate", "5", "--out", "link"]) == 2
    assert "is there already" in capsys.readouterr().err and not Path("elsewhere").exists()
