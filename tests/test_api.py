from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from training.tiny_runs import TINY, tree

import minagi
from minagi.errors import LockedError, MinagiError, UsageError, WeightsError
from minagi.protocol import Metrics

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
TEXT = "".join(f"In winter {n} crows sat on the wall and {n * 7} more came.\n" for n in range(120))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with poems, and settings that make every model small."""
    for name, value in TINY.items():
        monkeypatch.setenv("MINAGI_" + name.replace(".", "_").upper(), str(value))
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MINAGI_DATA_HISTORY", str(tmp_path / "runs" / "history.jsonl"))
    (tmp_path / "poems").mkdir()
    (tmp_path / "poems" / "winter.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(**given: Any) -> Any:
    return minagi.open("w", read="poems", device="cpu", **given)


def test_the_page_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/api.md", "exec"), names)
    assert len(names["losses"]) == 10
    assert names["learnt"].steps == 20
    assert names["before"] != names["undo"]
    out = capsys.readouterr().out
    assert "bits a character" in out
    assert "There are no weights at weights/nowhere" in out


def test_leaving_keeps_what_was_read_even_after_a_fault() -> None:
    with pytest.raises(ZeroDivisionError), opened() as model:
        model.read(steps=3)
        raise ZeroDivisionError
    with minagi.open("w") as kept:
        assert (kept.step, kept.chars) == (3, 72)
        assert kept.window == 24
        assert len(kept.snapshots()) == 1


def test_nothing_is_kept_when_told_so(place: Path) -> None:
    with opened() as model:
        model.read(steps=1)
    before = tree(place / "w")
    with opened(save=False) as model:
        assert model.read(steps=4).chars == 96
        assert model.step == 5
        with pytest.raises(UsageError, match="dry run"):
            model.snapshot("x")
        assert model.write("In winter ", 5).ids
    assert tree(place / "w") == before


def test_it_goes_back_exactly() -> None:
    with opened(seed=3) as model:
        model.read(steps=2)
        mark = model.snapshot("here")
        there = model.evaluate("poems")
        first = [event.loss for event in model.events(steps=3) if isinstance(event, Metrics)]
        undo = model.revert("here")
        assert model.step == 2
        assert model.evaluate("poems") == there
        assert [e.loss for e in model.events(steps=3) if isinstance(e, Metrics)] == first
        model.revert(undo)
        assert model.step == 5
        assert mark in {kept.id for kept in model.snapshots()}


def test_a_snapshot_is_told_apart_from_one_that_training_began() -> None:
    with opened() as model:
        model.read(steps=2)
        list(model._session.checkpoints.begin("auto"))
        mark = model.snapshot("mine")
        assert [kept.id for kept in model.snapshots() if kept.name == "mine"] == [mark]


def test_writing_and_measuring_change_nothing_that_is_learnt() -> None:
    def losses(between: bool) -> list[float]:
        with minagi.open("w2", read="poems", save=False, seed=1, device="cpu") as model:
            found = []
            for _ in range(3):
                found += [e.loss for e in model.events(steps=1) if isinstance(e, Metrics)]
                if between:
                    model.write("In ", 3)
                    model.evaluate("poems/winter.txt")
            return found

    assert losses(True) == losses(False)


@pytest.mark.parametrize(
    "limits", [{}, {"steps": 0}, {"chars": -1}, {"minutes": 0.0}, {"minutes": float("nan")}]
)
def test_limits_that_mean_nothing(limits: dict[str, float]) -> None:
    with opened(save=False) as model, pytest.raises(UsageError):
        model.read(**limits)


def test_the_first_limit_counts() -> None:
    with opened(save=False) as model:
        assert model.read(steps=100, chars=50).steps == 3


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: minagi.open("nowhere"), UsageError, "no weights"),
        (lambda: minagi.open("w", read="nowhere"), UsageError, "nowhere"),
        (lambda: minagi.open("w", read=[]), UsageError, "Name a folder"),
        (lambda: minagi.open("poems/winter.txt", read="poems"), MinagiError, "winter.txt"),
        (lambda: minagi.open("poems", read="poems"), WeightsError, "winter.txt"),
        (lambda: minagi.open("w", read="poems", profile="huge"), UsageError, "no profile"),
        (lambda: minagi.open("w", read="poems", config="no.yaml"), UsageError, "no.yaml"),
        (lambda: minagi.open("w", read="poems", settings={"training.lr": "fast"}), UsageError, "training.lr"),
        (lambda: minagi.open("w", read="poems", settings={"lr": 1}), UsageError, "lr"),
        (lambda: minagi.open("w", read="poems", device="abacus"), UsageError, "abacus"),
        (lambda: minagi.open("w", read="poems", threads=0), UsageError, "thread"),
        (lambda: minagi.open("w", read="poems", seed=-1), UsageError, "seed"),
    ],
)
def test_bad_arguments_are_told_in_words(call: Any, kind: type[MinagiError], words: str, place: Path) -> None:
    with pytest.raises(kind, match=words):
        call()
    assert not (place / "w").exists()


def test_what_cannot_be_asked_of_a_model() -> None:
    with opened() as model:
        model.read(steps=1)
        with pytest.raises(LockedError):
            opened()
        with pytest.raises(UsageError, match="prompt"):
            model.write("")
        with pytest.raises(UsageError, match="chars"):
            model.write("x", chars=0)
        with pytest.raises(UsageError, match=r"nowhere\.txt"):
            model.evaluate("nowhere.txt")
        with pytest.raises(UsageError, match="nothing"):
            model.revert("nothing")
    with minagi.open("w") as kept:
        for ask in (kept.snapshot, kept.revert, lambda: kept.read(steps=1)):
            with pytest.raises(UsageError, match="read="):
                ask()
    for ask in (kept.snapshots, lambda: kept.write("x"), lambda: kept.window):
        with pytest.raises(UsageError, match="closed"):
            ask()
    kept.close()


def test_an_interrupt_waits_for_the_step_in_flight() -> None:
    with opened() as model:
        session = model._session
        step, made = session.step, []

        def interrupted() -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            yield from step()
            made.append(session.steps)

        session.step = interrupted
        with pytest.raises(KeyboardInterrupt):
            model.read(steps=5)
        assert made == [1]
    with minagi.open("w") as kept:
        assert kept.step == 1


def test_importing_it_loads_no_torch() -> None:
    code = "import sys, minagi; sys.exit('torch' in sys.modules or not hasattr(minagi, 'open'))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
