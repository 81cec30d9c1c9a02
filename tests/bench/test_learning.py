from __future__ import annotations

import json
from pathlib import Path

import pytest

from minagi import cli
from minagi.bench import ngram
from minagi.bench.learning import learn
from minagi.errors import UsageError

TEXT = b"".join(b"%d green bottles hanging on the wall.\n" % n for n in range(600))
SMALL: dict[str, object] = {
    "model.d_model": 16, "model.n_head": 2, "model.d_ff": 16, "model.context_start": 32, "pool.experts": 4,
    "pool.width": 16, "pool.resident": 2, "training.chunk": 32, "training.eval_every_chars": 2000,
    "data.eval_chars": 256, "training.precision": "fp32",
}  # fmt: skip


class Clock:
    """Every look at it is two seconds later."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 2.0
        return self.now


@pytest.fixture
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "bottles.txt"
    path.write_bytes(TEXT)
    return path


@pytest.mark.usefixtures("nothing_left")
def test_a_newborn_is_scored_on_the_way_and_at_the_end(text: Path) -> None:
    told: list[str] = []
    found = learn(text, 4.0, changes=SMALL, device="cpu", tell=told.append, clock=Clock())
    split = int(len(TEXT) * 0.9)
    assert found["scored_bytes"] == len(TEXT) - split
    assert list(found["minutes"]) == ["1", "3", "4"]
    points = list(found["minutes"].values())
    assert [point["steps"] for point in points] == [30, 90, 120], "two seconds of training a step"
    assert points[-1]["characters"] == 120 * 32
    assert points[-1]["bits_per_byte"] < points[0]["bits_per_byte"] < 8
    assert found["ngram"]["by_order"]["3"] == round(ngram.bits_per_byte(TEXT[:split], TEXT[split:])[2], 4)
    assert found["ngram"]["bits_per_byte"] == min(found["ngram"]["by_order"].values())
    assert found["characters_per_second"] == round(120 * 32 / 240, 1)
    assert len(told) == 4
    json.dumps(found, allow_nan=False)


@pytest.mark.usefixtures("nothing_left")
def test_the_same_seed_learns_the_same(text: Path) -> None:
    first, again, other = (
        learn(text, 0.5, seed=seed, changes=SMALL, device="cpu", clock=Clock())["minutes"]["0.5"]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first["bits_per_byte"] != other["bits_per_byte"]


@pytest.mark.parametrize("content", [b"", b"too short", None])
def test_a_text_that_cannot_be_used_is_told(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"t\.txt"):
        learn(path, 1.0)


@pytest.mark.parametrize(
    "argv",
    [
        [], ["--text", "x", "--minutes", "0"], ["--text", "x", "--minutes", "nan"],
        ["--text", "", "--minutes", "1"], ["--text", "/nowhere", "--minutes", "1"],
        ["--text", "/", "--minutes", "1"], ["--text", "x", "--minutes", "1", "--seed", "-1"],
    ],
)  # fmt: skip
def test_bad_flags_are_a_sentence(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "learn", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith("minagi: ")
    assert err.count("\n") == 1
