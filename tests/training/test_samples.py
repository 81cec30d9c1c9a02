from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import Home, drive, everything, losses, of, prose, same_numbers

from minagi import protocol
from minagi.text.corpus import Subject, TextSpan
from minagi.training import samples
from minagi.training.samples import heading, page, prompt_of, repeated
from minagi.training.session import Session

OFTEN = {"training.sample_every": 1e-9}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def sampled(session: Session, steps: int) -> list[Any]:
    return of(protocol.Sampled, drive(session, steps))


def text(home: Home) -> str:
    return (home.root / "runs" / "samples.txt").read_text()


# ------------------------------------------------------------------------------------------ figures


def test_repeated_8_grams() -> None:
    assert repeated(b"abcdefgh") == repeated(b"") == repeated(b"short") == 0
    assert repeated(b"abcdefghij" * 2) == pytest.approx(3 / 13)
    assert repeated(b"x" * 107) == pytest.approx(0.99)


@given(st.binary(max_size=300))
def test_repeated_is_a_share_that_doubling_never_lowers(data: bytes) -> None:
    assert 0 <= repeated(data) < 1
    assert repeated(data + data) >= repeated(data)


def test_every_figure_is_there() -> None:
    pulse = protocol.Metrics(
        step=1234, chars=56_789, corpus_share=0.125, context=300, chars_per_second=4321.0, grad_norm=0.5,
        loss_smooth=1.5, rate_factor=0.75,
    )  # fmt: skip
    window = protocol.Window(context=300, gain=0.02, gain_min=0.015)
    held_out = protocol.HeldOut(
        step=1200, nats=math.log(4), stderr=0.01, gap=0.1,
        subjects={"letters": {"nats": math.log(2), "stderr": 0.02}, "empty": {"nats": None, "stderr": None}},
    )  # fmt: skip
    rate = protocol.Rate(verdict=2.5, sentence="Held-out keeps falling.")
    said = heading("/models/mine", pulse, window, 1.0, held_out, rate)
    for part in (
        "/models/mine", "step 1,234", "56,789 characters (12.5% of the corpus)", "300 characters",
        "+0.0289 bits", "0.0216 needed", "4,321 characters a second",
        "norm 0.500, clipped at 1", "2.1640 bits a character",
        "2.0000 ± 0.0144 bits a character, perplexity 4.00", "gap to train +0.1443 bits", "step 1,200",
        "1.0000 ± 0.0289 bits a character  letters", "not measured  empty", "factor 0.750",
        "evidence +2.50. Held-out keeps falling.",
    ):  # fmt: skip
        assert part in said, part


def test_figures_that_are_not_there_yet_are_said_to_be() -> None:
    said = heading("m", protocol.Metrics(grad_norm=math.nan), protocol.Window(), 1.0, None, None)
    assert "nan" not in said and "None" not in said
    assert "norm unknown" in said and "not measured yet" in said and "evidence none yet" in said
    endless = heading("m", protocol.Metrics(), protocol.Window(), 1.0, protocol.HeldOut(nats=1e6), None)
    assert "perplexity" in endless


def test_a_page_shows_both_ways_of_writing_and_steers_no_terminal() -> None:
    sample = samples.Sample("a\x1b[31m", "Dear", "\x1b]0;x\x07\u202eraw", 0.5, "fine", 0.25)
    said = page([sample], "figures", 321.0)
    assert "[raw, 50% of 8-grams repeated]" in said and "[adapted, 25% of 8-grams repeated] fine" in said
    assert "321.0 characters a second" in said
    assert not any(character in said for character in "\x1b\x07\u202e")
    assert "adapted" not in page([samples.Sample("a", "p", "r", 0.0)], "", None)


# ------------------------------------------------------------------------------------------ prompts


def subject_of(path: Path, train: tuple[int, int], held_out: tuple[int, int] | None) -> Subject:
    held = (TextSpan(path, *held_out),) if held_out else ()
    return Subject("s", path, (TextSpan(path, *train),), held)


def test_the_prompt_is_the_beginning_of_the_held_out_text(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("a" * 500 + "ä" * 500)
    prompt = prompt_of(subject_of(path, (0, 500), (500, 1500)))
    assert prompt == "ä".encode() * 48
    assert prompt_of(subject_of(path, (0, 499), (499, 1500))) == b"a" + "ä".encode() * 47, "no half character"
    assert prompt_of(subject_of(path, (0, 9), None)) == b"a" * 9
    path.unlink()
    assert prompt_of(subject_of(path, (0, 500), (500, 1500))) == b""


# -------------------------------------------------------------------------------------------- a run


def test_samples_are_told_and_kept(home: Home) -> None:
    session = home.open({**OFTEN, "training.eval_every_chars": 60}, sample_chars=20)
    told = sampled(session, 6)
    session.close()
    first = told[0]
    assert first.path == str(home.root / "runs" / "samples.txt") and first.chars_per_second > 0
    assert [sample["subject"] for sample in first.samples] == ["letters", "logbook"]
    for sample in first.samples:
        assert sample["prompt"] and 1 <= len(sample["raw"]) <= 260  # markers are spelled out
        assert 1 <= len(sample["adapted"]) <= 260
        assert 0 <= sample["raw_repeated"] <= 1 and 0 <= sample["adapted_repeated"] <= 1
    assert first.samples[0]["prompt"] == told[-1].samples[0]["prompt"], "so that one can compare"
    pages = text(home).split("=" * 78)[1:]
    assert len(pages) == len(told)
    assert "--- letters" in pages[-1] and "--- logbook" in pages[-1] and "bits a character" in pages[-1]


def test_only_raw(home: Home) -> None:
    session = home.open(OFTEN, sample_chars=20, sample_raw_only=True)
    (sample, _) = sampled(session, 3)[0].samples
    session.close()
    assert sample["adapted"] is None and sample["adapted_repeated"] is None
    assert "[adapted" not in text(home)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sampling_leaves_the_losses_as_they_were(home: Home, temperature: float) -> None:
    """To the bit: no weight, no random stream, no loss."""
    changes = {"pool.select_temperature": temperature, "training.sample_every": 0}
    quiet, other = (
        home.open(changes),
        home.open({**changes, **OFTEN}, weights=home.root / "other", sample_chars=20),
    )
    expected = losses(drive(quiet, 10))
    said = drive(other, 10)
    assert len(of(protocol.Sampled, said)) >= 8
    assert losses(said) == expected
    same_numbers(everything(other), everything(quiet))
    quiet.close()
    other.close()


def test_writing_comes_in_slices_between_which_one_can_talk(home: Home) -> None:
    session = home.open(OFTEN, sample_chars=30)
    ticks = itertools.count()
    session.sampling._clock = lambda: next(ticks) * 0.03  # a slice is a few characters
    session.sampling._sampled_at = -1.0
    drive(session, 1)
    slices = 0
    while session.phase == "sampling":
        said = list(session.step())
        assert not of(protocol.Metrics, said)
        assert isinstance(said[0], protocol.Phase) and said[0].phase == "sampling"
        assert of(protocol.ReplyEnded, session.reply(protocol.Write(id=1, prompt="Hello", chars=3)))
        slices += 1
    assert slices > 10 and of(protocol.Sampled, said)
    session.close()


def test_they_come_every_so_many_minutes_or_never(home: Home) -> None:
    now = [0.0]
    session = home.open({"training.sample_every": 10}, sample_chars=5)
    session.sampling._clock = lambda: now[0]
    session.sampling._sampled_at = 0.0
    assert not sampled(session, 5)
    now[0] = 600.0
    said = drive(session, 5)
    (event,) = of(protocol.Sampled, said)
    assert [log.text for log in of(protocol.Log, said)] == [f"What it writes now is in {event.path}."]
    now[0] = 1199.0
    assert not sampled(session, 2)
    now[0] = 1201.0
    assert len(sampled(session, 5)) == 1
    session.close()
    never = home.open({"training.sample_every": 0}, weights=home.root / "other")
    never.sampling._clock = lambda: 1e12
    assert not sampled(never, 5)
    never.close()


def test_a_dry_run_only_tells(home: Home) -> None:
    session = home.open(OFTEN, dry_run=True, sample_chars=5)
    assert sampled(session, 4)[0].path == ""
    session.close()
    assert not (home.root / "runs").exists()


def test_many_subjects_take_turns(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SUBJECTS_MAX", 2)
    third = home.text / "third" / "a.txt"
    third.parent.mkdir()
    third.write_text(prose(300, 5))
    session = home.open(OFTEN, sample_chars=2)
    told = sampled(session, 4)
    session.close()
    assert [[sample["subject"] for sample in event.samples] for event in told[:3]] == [
        ["letters", "logbook"], ["third", "letters"], ["logbook", "third"],
    ]  # fmt: skip


def test_trouble_with_the_file_is_told_and_ends_nothing(home: Home) -> None:
    (home.root / "runs" / "samples.txt").mkdir(parents=True)  # in the way
    session = home.open(OFTEN, sample_chars=2)
    said = drive(session, 3)
    session.close()
    assert of(protocol.Sampled, said)[0].path == ""
    assert "samples.txt" in of(protocol.Log, said)[0].text


def test_going_back_gives_up_what_was_being_written(home: Home) -> None:
    session = home.open(OFTEN, sample_chars=5)
    drive(session, 1)
    list(session.checkpoint())
    session.sampling._clock = lambda: 0.0
    assert session.phase == "sampling"
    list(session.revert())
    assert session.phase == "running"
    session.close()


def test_text_that_vanished_is_passed_over(home: Home) -> None:
    session = home.open(OFTEN, sample_chars=2)
    drive(session, 1)
    for path in (home.text / "letters").iterdir():
        path.unlink()
    (event,) = [m for _ in range(3) for m in session.step() if isinstance(m, protocol.Sampled)][:1]
    assert [sample["subject"] for sample in event.samples] == ["logbook"]
    session.close()
