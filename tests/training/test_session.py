"""Opening a session or a reader: in words when it cannot be, and leaving nothing behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import Home, drive, everything, losses, of, same_numbers, tree

from minagi import protocol
from minagi.errors import LockedError, UsageError, WeightsError
from minagi.training.session import Reader, open_reader

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tiny" / "weights"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def reader_of(home: Home, changes: dict[str, object] | None = None) -> Reader:
    return open_reader(home.weights, home.loaded(changes), "cpu")


# ------------------------------------------------------------------------------------------- sessions


def test_a_newborn_without_a_gpu_gets_the_cpu_profile_and_says_so(home: Home) -> None:
    session = home.open()
    (hello,) = of(protocol.Hello, session.greet())
    assert hello.profile == "cpu" and "no GPU" in hello.notice
    drive(session, 2)
    list(session.checkpoint())
    session.close()
    again = home.open()
    (hello,) = of(protocol.Hello, again.greet())
    assert hello.profile == "cpu" and "no GPU" not in hello.notice and not hello.fresh
    again.close()


def test_text_that_is_not_there_is_told_before_anything_is_made(home: Home) -> None:
    for paths in ((home.root / "nowhere",), (home.root / "runs",)):
        (home.root / "runs").mkdir(exist_ok=True)
        with pytest.raises(UsageError):
            home.open(paths=paths)
    session = home.open()  # nothing is left locked
    session.close()


def test_one_writer(home: Home) -> None:
    home.made(2)
    session = home.open()
    with pytest.raises(LockedError):
        home.open()
    beside = home.open(dry_run=True)  # readers and dry runs need no lock
    drive(beside, 1)
    beside.close()
    session.close()
    home.open().close()


def test_what_was_held_out_stays_held_out(home: Home) -> None:
    home.made(2)
    first = json.loads((home.weights / "manifest.json").read_text())["minagi"]["held_out"]
    for number in range(12):
        (home.text / "letters" / f"new{number}.txt").write_text("Something else was written. " * 40)
    session = home.open()
    assert {key: session.corpus.choice[key] for key in first} == first
    session.close()


def test_a_subject_that_was_away_keeps_what_was_held_out_of_it(home: Home) -> None:
    home.made(2)
    both = home.open()
    kept = {span.path for subject in both.corpus.subjects for span in subject.held_out}
    both.close()
    alone = home.open(paths=(home.text / "letters",))
    drive(alone, 2)
    list(alone.checkpoint())
    alone.close()
    for number in range(6):  # more text, which a new choice would be made from
        (home.text / "logbook" / f"new{number}.txt").write_text(f"{number} " * 400)
    again = home.open()
    now = {span.path for subject in again.corpus.subjects for span in subject.held_out}
    assert kept <= now
    again.close()


def test_the_full_rate_can_be_asked_for(home: Home) -> None:
    session = home.open()
    drive(session, 2)
    session.rate.halve()
    list(session.checkpoint())
    session.close()
    for reset, factor in ((False, 0.5), (True, 1.0)):
        again = home.open(lr_reset=reset, dry_run=True)
        assert again.rate.factor == factor
        again.close()


def test_a_seed_changes_what_is_read(home: Home) -> None:
    told = []
    for seed in (0, 0, 1):
        session = home.open(dry_run=True, seed=seed)
        told.append(losses(drive(session, 3)))
        session.close()
    assert told[0] == told[1] != told[2]


HOSTILE = (
    None, 3, [], "x", {"held_out": [1, 2], "best": True, "profile": 9},
    {"rate": 5, "window": [], "reader": {"visit": 3, "first": 7, "turn": []}, "best": "low"},
    {"progress": {"loss": "nan", "evaluated_chars": -5, "grown_chars": 1e300}, "window": {"context": 10**9}},
    {"profile": "no such profile", "held_out": {"letters/0.txt": "all"}, "reader": {"visit": {"lane": 1}}},
)  # fmt: skip


def test_hostile_state_under_our_key_refuses_no_model(home: Home) -> None:
    home.made(3)
    path = home.weights / "manifest.json"
    manifest = json.loads(path.read_text())
    telemetry = {"uid": list(range(7)), "segments": "x"}
    for ours in HOSTILE:
        path.unlink()
        path.write_text(json.dumps({**manifest, "minagi": ours, "telemetry": telemetry}))
        session = home.open(dry_run=True)
        list(session.greet())
        assert session.steps == 3
        drive(session, 1)
        session.close()


def test_a_public_directory_is_opened_trained_and_saved(home: Home) -> None:
    """One written elsewhere, without anything of ours in it."""
    shutil.copytree(FIXTURE, home.weights)
    session = home.open({"model.context_start": 24})
    list(session.greet())
    assert session.steps == 24 and session.window.context == 24
    drive(session, 4)
    list(session.checkpoint())
    saved = everything(session)
    session.close()
    again = home.open()
    assert again.steps == 28
    same_numbers(everything(again), saved)
    again.close()


# -------------------------------------------------------------------------------------------- readers


def test_writing_beside_a_live_trainer_changes_no_byte(home: Home) -> None:
    home.made(10)
    session = home.open()
    before = tree(home.root)
    reader = reader_of(home)
    heard: list[tuple[bytes, int]] = []
    written = reader.write(b"The letters", 15, on_char=lambda data, rows: heard.append((data, rows)))
    reader.close()
    assert tree(home.root) == before
    assert len(written.ids) == len(written.rows) == len(heard) <= 15
    assert b"".join(data for data, _ in heard) == written.text
    assert [rows for _, rows in heard] == written.rows
    drive(session, 2)
    list(session.checkpoint())
    session.close()


def test_raw_and_strength(home: Home) -> None:
    home.made(10)
    reader = reader_of(home)
    raw = reader.write(b"Ab", 20, raw=True)
    assert raw == reader.write(b"Ab", 20, strength=0.0)
    assert raw != reader.write(b"Ab", 20, strength=8.0)
    with pytest.raises(UsageError, match="no prompt"):
        reader.write(b"", 5)
    assert reader.write(b"\xff\x00<user>", 3).ids
    assert len(reader.write(b"long " * 20_000, 2).rows) <= 2
    reader.close()


def test_evaluating_scores_every_byte_once(home: Home) -> None:
    home.made(5)
    folder = home.root / "measured"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "x.txt").write_text("Some text to measure. " * 6)
    (folder / "b.txt").write_text("Other text.")
    reader = reader_of(home)
    found = reader.evaluate(folder)
    assert found["bytes"] == 22 * 6 - 1 + 10
    assert found["bits_per_byte"] == pytest.approx(found["nats"] / np.log(2))
    assert found["context"] == 24 and found["stderr"] > 0
    assert len(found["subjects"]) == 2
    total = sum(s["nats"] * s["bytes"] for s in found["subjects"].values())
    assert total / found["bytes"] == pytest.approx(found["nats"])
    assert reader.evaluate(folder) == found
    single = reader.evaluate(folder / "b.txt")
    assert single["bytes"] == 10
    with pytest.raises(UsageError):
        reader.evaluate(folder / "nowhere")
    reader.close()


def test_a_marker_is_as_many_bytes_as_it_is_long(home: Home) -> None:
    home.made(2)
    text = b"<user>who goes there</user><bot>a friend, and no other</bot>"
    (home.root / "talk.txt").write_bytes(text)
    reader = reader_of(home)
    found = reader.evaluate(home.root / "talk.txt")
    assert found["bytes"] == len(text) - len(b"<user>")  # all after the first symbol
    reader.close()


def test_the_records_of_runs_are_not_read_unless_they_were_given(home: Home) -> None:
    runs = home.text / "runs"
    runs.mkdir()
    (runs / "old.txt").write_text("records of an earlier run " * 20)
    inside = {"data.history": str(runs / "history.jsonl")}
    session = home.open(inside)
    assert not any(span.path.is_relative_to(runs) for s in session.corpus.subjects for span in s.train)
    session.close()
    beside = {"data.history": str(home.text / "history.jsonl")}
    session = home.open(beside)
    assert session.corpus.files == 9
    session.close()


def test_use_of_experts_is_counted_in_training_only(home: Home) -> None:
    session = home.open()
    drive(session, 3)
    use = session.engine.pool.telemetry.use.copy()
    assert use.sum() == pytest.approx(1 - 0.999**3)
    list(session.reply(protocol.Write(id=1, prompt="Hello", chars=5)))
    assert (session.engine.pool.telemetry.use == use).all()
    session.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_looking_at_a_text_tells_rows_and_expectations(home: Home, temperature: float) -> None:
    home.made(5)
    before = tree(home.weights)
    reader = reader_of(home, {"pool.select_temperature": temperature})
    looked = reader.look(b"The <user>letters")
    assert looked == reader.look(b"The <user>letters")
    assert len(looked.rows) == len(looked.expected) == 4 + 1 + 7
    assert set(looked.rows) <= {1, 2, 3} and all(0 <= symbol < 265 for symbol in looked.expected)
    assert tree(home.weights) == before
    first = reader.write(b"The letters", 1, raw=True)
    assert first.ids == reader.look(b"The letters").expected[-1:]
    reader.close()


def test_a_reader_needs_a_model(home: Home) -> None:
    with pytest.raises(WeightsError, match="holds no model yet"):
        reader_of(home)
    assert not home.weights.exists()


def test_a_scratch_folder_goes_with_its_reader(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = home.root / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    home.made(3)
    reader = reader_of(home)
    reader.write(b"The letters", 5)
    reader.close()
    with pytest.raises(WeightsError):
        open_reader(home.root / "nothing", home.loaded(), "cpu")
    session = home.open(dry_run=True)
    drive(session, 12)
    session.close()
    assert list(scratch.iterdir()) == []
