"""When births and deaths are decided, what decides them, and why not, in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_runs import Home, drive

from minagi.errors import WeightsError
from minagi.protocol import Growth
from minagi.training.selection import Selection, _sentence
from minagi.training.session import Session
from minagi.weights import ExpertRecord

OPEN: dict[str, object] = {
    "growth.max_gap": 0.4, "growth.dying_frac_max": 1.0, "growth.keep_ratio_min": 0.0,
    "growth.max_disk_gb": 0, "growth.every_chars": 10**9,
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def session(home: Home) -> Iterator[Session]:
    opened = home.open(OPEN)
    drive(opened, 6)
    yield opened
    opened.close()


def decide(session: Session, gap: float | None = 0.0, **limits: object) -> Growth:
    selection = session.selection
    if limits:
        from dataclasses import replace

        selection.limits = replace(selection.limits, **limits)  # type: ignore[arg-type]
    return selection.decide(session.progress, gap)


def test_a_birth(session: Session) -> None:
    event = decide(session)
    assert event.born == [7] and event.pruned == []
    assert event.sentence == "Expert 7 was born; the pool has 8 experts."
    assert event.next_at_chars == session.chars + 10**9
    assert len(session.selection.parents[7]) == 7
    assert session.engine.net.pool.gate.shape == (8,)
    assert float(session.engine.net.pool.gate[7].detach()) == pytest.approx(0.001)


def test_the_same_life_gives_the_same_births(home: Home) -> None:
    parents = []
    for folder in ("one", "two"):
        session = home.open(OPEN, weights=home.root / folder)
        drive(session, 6)
        decide(session)
        parents.append(session.engine.store.read_expert(7).weights["w1"].tobytes())
        session.close()
    assert parents[0] == parents[1]


@pytest.mark.parametrize(
    ("limits", "gap", "words"),
    [
        ({"max_disk_gb": 1e-9}, 0.0, "No room on disk"),
        ({"mem_frac": 1e-9}, 0.0, "No room in memory"),
        ({"max_in_flight": 0}, 0.0, "Enough newborns"),
        ({}, 0.5, "learn by heart"),
    ],
)
def test_each_brake_is_told(session: Session, limits: dict[str, object], gap: float, words: str) -> None:
    event = decide(session, gap, **limits)
    assert event.born == [] and event.pruned == []
    assert event.sentence.startswith("The pool stays at 7 experts.") and words in event.sentence


def test_on_a_full_disk_nobody_is_born_and_the_run_goes_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uids = session.engine.store, list(session.engine.pool.telemetry.uid)

    def full(record: ExpertRecord) -> None:
        raise WeightsError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "spill_expert", full)
        event = decide(session)
    assert event.born == [] and event.sentence == "The pool stays at 7 experts. the disk is full"
    assert session.engine.pool.telemetry.uid == uids and session.engine.net.pool.gate.shape == (7,)
    assert decide(session).born == [7]


def test_growth_that_is_off_says_so_and_prunes_all_the_same(home: Home) -> None:
    session = home.open({**OPEN, "growth.k": 0, "prune.survival_chars": 48})
    drive(session, 8)
    telemetry = session.engine.pool.telemetry
    telemetry.last_seen[:] = 0
    on_card = set(session.engine.pool.resident())
    event = decide(session)
    assert sorted(event.pruned) == sorted(set(range(7)) - on_card) and event.born == []
    assert set(telemetry.uid) == on_card
    assert "unused for the whole survival time" in event.sentence and "growth.k is 0" in event.sentence
    drive(session, 3)
    session.close()


def test_when_it_is_due(session: Session) -> None:
    selection, progress = session.selection, session.progress
    assert not selection.due(progress)
    progress.grown_chars = progress.chars - 10**9
    assert selection.due(progress)
    decide(session)
    assert not selection.due(progress) and progress.grown_chars == progress.chars


def test_survival_is_counted_in_the_pools_own_texts(session: Session) -> None:
    selection = session.selection
    assert isinstance(selection, Selection)
    chars = selection.prune.survival_chars
    assert selection.lifetime(session.steps).survival == pytest.approx(chars / 24)
    session.engine.pool.telemetry.segments *= 2  # two texts a step, say
    assert selection.lifetime(session.steps).survival == pytest.approx(2 * chars / 24)


def test_sentences() -> None:
    assert _sentence([3], [], "", 9) == "Expert 3 was born; the pool has 9 experts."
    assert "Each of the experts 3, 4 and 5 was born" in _sentence([3, 4, 5], [], "", 9)
    told = _sentence([], [1, 2], "No room.", 7)
    assert told == (
        "Each of the experts 1 and 2 went unused for the whole survival time and was deleted. "
        "The pool stays at 7 experts. No room."
    )


def test_why_it_did_not_grow_is_known_after_a_restart(home: Home, session: Session) -> None:
    said = decide(session, gap=9.0).sentence
    at = session.chars
    list(session.checkpoint())
    drive(session, 1)
    session.close()
    again = home.open(OPEN)
    try:
        told = next(event for event in again.greet() if isinstance(event, Growth))
        assert told.sentence == f"Last decided at {at:,} characters: {said}"
        for held in (None, "x", {"sentence": 3}, {"chars": 5}):
            again.selection.remember(held)
            assert again.selection.waiting(again.progress).sentence.startswith("It is decided every")
    finally:
        again.close()
