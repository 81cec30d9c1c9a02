from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import Home, drive, of, prose

from minagi import protocol
from minagi.text.collect import collect
from minagi.training.elsewhere import elsewhere
from minagi.training.history import History
from minagi.training.progress import Before, Progress
from minagi.training.report import found, name_of, reckoning
from minagi.training.request import Limits
from minagi.worker.loop import run


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize(
    ("count", "told"),
    [(1, "1 file was passed over (binary): a.bin."),
     (2, "2 files were passed over (binary), for example a.bin.")],
)  # fmt: skip
def test_an_example_is_one_of_several(count: int, told: str) -> None:
    corpus = SimpleNamespace(
        summary=dict, skipped={"binary": count}, skipped_examples={"binary": [Path("a.bin")]}
    )
    assert [m.text for m in found(corpus) if isinstance(m, protocol.Log)] == [told]  # type: ignore[arg-type]


# ----------------------------------------------------------------------------- before and after

WINDOWS = st.lists(st.floats(0.1, 9.0), min_size=2, max_size=20)


@given(WINDOWS, st.floats(-1.0, 1.0))
def test_a_change_that_every_window_shares_is_certain(windows: list[float], change: float) -> None:
    """The windows differ a lot from each other; what reading changed in them does not."""
    error = Before(1.0, windows).change_stderr([window + change for window in windows])
    assert error == pytest.approx(0.0, abs=1e-9)


@given(WINDOWS, WINDOWS)
def test_windows_that_cannot_be_paired_are_independent(before: list[float], now: list[float]) -> None:
    if len(before) != len(now):
        variances = [np.var(windows, ddof=1) / len(windows) for windows in (before, now)]
        assert Before(1.0, before).change_stderr(now) == pytest.approx(math.sqrt(sum(variances)))


def test_one_window_has_no_error_and_broken_ones_have_none_that_is_finite() -> None:
    assert Before(1.0, [2.0]).change_stderr([1.0]) is None
    assert not math.isfinite(Before(1.0, [2.0, 3.0]).change_stderr([math.nan, math.inf]) or 0.0)


def test_the_first_reading_of_a_session_is_what_later_ones_are_held_against() -> None:
    subject = Progress().subject("a")
    assert subject.measured(None, []).nats is None
    assert subject.measured(2.0, [2.0, 2.0]).nats == 2.0
    assert subject.measured(1.0, [1.0, 1.0]).nats == 2.0


def held_out(**subjects: tuple[float | None, float | None, float | None]) -> protocol.HeldOut:
    names = ("before", "nats", "change_stderr")
    return protocol.HeldOut(subjects={n: dict(zip(names, s, strict=True)) for n, s in subjects.items()})


def test_what_got_worse_beyond_its_error_is_named() -> None:
    (log,) = reckoning(held_out(worse=(1.0, 1.2, 0.05), unsure=(1.0, 1.02, 0.05), better=(1.0, 0.5, 0.1)))
    assert log.level == "warning" and log.topic == "held-out"
    words = "Reading cost ground in worse: its held-out text went from 1.443 to 1.731 bits a character"
    assert log.text == f"{words} (+0.289 ± 0.072)."


def test_gain_without_loss_is_told_too_and_nothing_of_nothing() -> None:
    (log,) = reckoning(held_out(a=(1.0, 0.9, 0.05), b=(1.0, 1.0, 0.0), c=(None, 1.0, None)))
    assert log.text == "Held-out text got better in 1 of 3 subjects and worse in none."
    assert not list(reckoning(held_out(a=(1.0, 0.99, 0.05), b=(1.0, None, None), c=(1.0, math.nan, 0.1))))
    assert not list(reckoning(protocol.HeldOut()))


def test_a_run_says_what_it_gained(home: Home) -> None:
    session = home.open()
    list(session.evaluate())
    drive(session, 30)
    (reading,) = of(protocol.HeldOut, session.evaluate())
    for score in reading.subjects.values():
        assert score["nats"] < score["before"] and score["change_stderr"] > 0
    (log,) = of(protocol.Log, session.conclude())
    assert "better in 2 of 2 subjects" in log.text
    session.close()


def test_other_text_is_compared_with_nothing(home: Home) -> None:
    session = home.open()
    list(session.evaluate())
    session._forget_readings()
    assert not list(session.conclude())
    (reading,) = of(protocol.HeldOut, session.evaluate())
    assert all(score["before"] == score["nats"] for score in reading.subjects.values())
    session.close()


# --------------------------------------------------------------------------------------- elsewhere


def other_text(home: Home) -> Path:
    folder = home.root / "new"
    for part in range(3):
        file = folder / "recipes" / f"{part}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{17 * number * (part + 3) % 9973}\n" for number in range(600)))
    return folder


def test_what_a_model_knows_and_is_not_reading_is_measured_first_and_last(home: Home) -> None:
    """Reading new text costs the old ground, and that is said, though no decision is made by it."""
    session = home.open()
    drive(session, 60)
    list(session.checkpoint())
    session.close()
    session = home.open(paths=(other_text(home),))
    list(session.greet())
    said = drive(session, 80)
    (first,) = of(protocol.HeldOut, said)
    assert set(first.subjects) == {"recipes"} and set(first.elsewhere) == {"letters", "logbook"}
    assert first.nats == pytest.approx(first.subjects["recipes"]["nats"])
    session.settings.training.__dict__["eval_every_chars"] = 1
    (between,) = of(protocol.HeldOut, drive(session, 2))
    assert between.elsewhere == {}
    (last,) = of(protocol.HeldOut, session.evaluate())
    for score in last.elsewhere.values():
        assert score["before"] is not None and score["change_stderr"] is not None
    worse = {n for n, s in last.elsewhere.items() if s["nats"] - s["before"] > s["change_stderr"]}
    texts = [log.text for log in of(protocol.Log, session.conclude())]
    assert worse and all(any(f"cost ground in {name}" in text for text in texts) for name in worse)
    list(session.checkpoint())
    session.close()
    manifest = json.loads((home.weights / "manifest.json").read_text())
    assert len(manifest["minagi"]["paths"]) == 2


def test_nothing_is_elsewhere_on_the_same_text_or_beside_a_held_out_folder(home: Home) -> None:
    home.made(3)
    same = home.open()
    assert not same.start.elsewhere.subjects
    same.close()
    apart = home.root / "val" / "letters"
    apart.mkdir(parents=True)
    (apart / "a.txt").write_text(prose(200, 1))
    covered = home.open({"data.held_out": str(home.root / "val")}, paths=(other_text(home),))
    assert not covered.start.elsewhere.subjects
    covered.close()


def test_text_whose_held_out_part_is_gone_is_no_measure(home: Home) -> None:
    home.made(3)
    ours = json.loads((home.weights / "manifest.json").read_text())["minagi"]
    new = collect([other_text(home)])
    assert {subject.name for subject in elsewhere(ours, new).subjects} == {"letters", "logbook"}
    for key in ours["held_out"]:
        if key.startswith("letters/"):
            (home.text / key).unlink()  # what would be chosen in its place was trained on
    assert {subject.name for subject in elsewhere(ours, new).subjects} == {"logbook"}


@pytest.mark.parametrize(
    "ours",
    [{}, {"paths": 3}, {"paths": ["/no/such", "\0", 5]}, {"paths": ["TEXT"]},
     {"paths": ["TEXT"], "held_out": 7},
     {"paths": ["TEXT"], "held_out": {"letters/0.txt": "x"}}, {"paths": ["EMPTY"], "held_out": {}}],
)  # fmt: skip
def test_what_a_manifest_may_say_instead(home: Home, ours: dict) -> None:
    (home.root / "empty").mkdir()
    places = {"TEXT": str(home.text), "EMPTY": str(home.root / "empty")}
    if isinstance(ours.get("paths"), list):
        ours = {**ours, "paths": [places.get(path, path) for path in ours["paths"]]}
    assert not elsewhere(ours, collect([other_text(home)])).subjects


# ------------------------------------------------------------------------------------- the history


def test_a_row_says_how_the_run_stands(home: Home) -> None:
    session = home.open()
    drive(session, 5)
    list(session.evaluate())
    list(session.checkpoint())
    (row,) = History(home.history).rows()
    experts = list(row["uid"])
    for name in ("gate", "use", "admits", "born", "last_seen"):
        assert len(row[name]) == len(experts) == row["experts"] == 7
    assert row["time"] > 0 and row["memory"] > 0 and row["model"] == str(home.weights)
    assert (row["step"], row["chars"], row["context"], row["rate"]) == (5, session.chars, 24, 1.0)
    assert (
        row["val_chars"] == session.chars
        and row["val"] == session.progress.val
        and row["loss"] == session.progress.loss.value
    )
    assert set(row["subjects"]) == {"letters", "logbook"}
    for subject in row["subjects"].values():
        assert set(subject) == {"chars", "loss", "val", "stderr"} and subject["val"] > 0
    list(session.revert())
    drive(session, 2)
    list(session.checkpoint())
    last = list(History(home.history).rows())[-1]
    assert last["subjects"]["letters"]["val"] is None, "measured before going back: of another model"
    session.close()


class Unheard:
    """A channel that keeps what is said and commands nothing."""

    closed = ""

    def __init__(self) -> None:
        self.said: list[protocol.Message] = []
        self.send = self.said.append

    def poll(self) -> list[protocol.Command]:
        return []

    def wait(self, seconds: float) -> None: ...

    def finish(self) -> None: ...


def test_experts_born_are_saved_at_once_or_when_it_is_due(home: Home) -> None:
    changes = {
        "growth.every_chars": 240, "growth.max_gap": 0, "growth.dying_frac_max": 1.0,
        "growth.keep_ratio_min": 0.0, "growth.max_disk_gb": 0, "growth.k": 2,
    }  # fmt: skip
    for wanted in (True, False):
        session = home.open(changes, pool_checkpoint=wanted, weights=home.root / f"w{wanted}")
        said = [*drive(session, 20), *session.conclude()]
        session.close()
        assert any(event.born for event in of(protocol.Growth, said))
        assert bool(of(protocol.Saved, said)) is wanted


def test_the_reading_at_the_end_is_kept_though_the_last_step_was_saved_for_its_births(home: Home) -> None:
    changes = {
        "growth.every_chars": 240, "growth.max_gap": 0, "growth.dying_frac_max": 1.0,
        "growth.keep_ratio_min": 0.0, "growth.max_disk_gb": 0, "growth.k": 2,
    }  # fmt: skip
    session = home.open(changes, pool_checkpoint=True)
    channel = Unheard()
    run(session, channel, Limits(chars=240))
    grown = of(protocol.Growth, channel.said)[-1]
    assert grown.born and grown.chars == session.chars, "the run ended where experts were born"
    assert session.engine.store.manifest["val"] == of(protocol.HeldOut, channel.said)[-1].nats
    session.close()


@pytest.mark.parametrize(
    ("weights", "text", "name"),
    [
        ("/home/ada/models/notes", ["/home/ada/letters"], "notes"),
        ("/home/ada/weights", ["/home/ada/letters"], "letters"),
        ("/home/ada/weights", ["/home/ada/letters/.", "/home/ada/poems"], "letters + 1"),
        ("/home/ada/weights", ["/"], "weights"),
        ("/home/ada/weights", [], "weights"),
    ],
)
def test_a_model_is_called_by_a_name_somebody_chose(weights: str, text: list[str], name: str) -> None:
    assert name_of(Path(weights), [Path(path) for path in text]) == name
