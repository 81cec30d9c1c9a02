"""n-gram rows that begin anew with every round through the text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import CHUNK, Home, drive, losses, of

from minagi import protocol
from minagi.model.ngram import NgramEmbedding
from minagi.training.session import Session

ANEW: dict[str, object] = {
    "training.ngram_renew": True, "training.again_lr_mult": 0.1, "data.passage": CHUNK,
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def short(home: Home) -> Path:
    folder = home.root / "short"
    folder.mkdir()
    (folder / "a.txt").write_text("a text of few characters, read again and again. " * 10)
    return folder


def rows_of(session: Session) -> NgramEmbedding:
    assert session.engine.net.ngram is not None
    return session.engine.net.ngram


def until_young(session: Session) -> None:
    while rows_of(session).young is None:
        drive(session, 1)


def test_rows_begin_anew_with_every_round_and_what_is_read_again_counts_as_new(
    home: Home, short: Path
) -> None:
    session = home.open(ANEW, paths=(short,))
    table, states, said = rows_of(session), [], []
    while len(states) < 5:
        before = table.weight.clone()
        messages = drive(session, 1)
        said += [note for note in of(protocol.Log, messages) if "learned anew" in note.text]
        young = table.young is not None
        assert young == torch.equal(table.weight, before), "reading uses what is not being learned"
        if not states or states[-1][0] != young:
            states.append((young, session.chars))
        (lr,) = (pulse.lr for pulse in of(protocol.Metrics, messages))
        assert lr == pytest.approx(0.01 * session.rate.factor * session.rate.warmup(session.steps - 1))
    assert [young for young, _ in states] == [False, True, False, True, False]
    assert len(said) == 1, "a short text is read through many times a minute"
    _, first, taken, second, taken_again = (chars for _, chars in states)
    assert taken - first == pytest.approx(0.7 * first, abs=2 * CHUNK)
    assert taken_again - second == pytest.approx(0.7 * (second - first), abs=2 * CHUNK)
    session.close()


def test_a_run_that_goes_on_with_young_rows_is_the_unbroken_one(home: Home, short: Path) -> None:
    session = home.open(ANEW, paths=(short,))
    drive(session, 4)
    list(session.checkpoint("old"))
    until_young(session)
    drive(session, 5)
    list(session.checkpoint("young"))
    with np.load(home.weights / "core.npz") as core:
        assert np.array_equal(core["ngram.young"], rows_of(session).learning[0].numpy())
    unbroken = losses(drive(session, 20))
    session.close()
    again = home.open(ANEW, paths=(short,))
    assert losses(drive(again, 20)) == unbroken
    list(again.revert("old"))
    assert rows_of(again).young is None
    list(again.revert("young"))
    assert rows_of(again).young is not None
    assert losses(drive(again, 20)) == unbroken
    again.close()


def test_who_does_not_renew_goes_on_with_the_rows_that_are_read_with(home: Home, short: Path) -> None:
    session = home.open(ANEW, paths=(short,))
    until_young(session)
    drive(session, 2)
    list(session.checkpoint())
    read_with = rows_of(session).weight.clone()
    session.close()
    again = home.open({**ANEW, "training.ngram_renew": False}, paths=(short,))
    assert rows_of(again).young is None and torch.equal(rows_of(again).weight, read_with)
    drive(again, 1)
    assert not torch.equal(rows_of(again).weight, read_with)
    list(again.checkpoint())
    again.close()
    renewing = home.open(ANEW, paths=(short,))
    (pulse,) = of(protocol.Metrics, drive(renewing, 1))
    full = 0.01 * renewing.rate.factor * renewing.rate.warmup(renewing.steps - 1)
    assert pulse.lr < 0.2 * full, "these rows have read the text before"
    renewing.close()
    with np.load(home.weights / "core.npz") as core:
        assert "ngram.young" not in core


def test_a_directory_from_before_there_were_young_rows(home: Home, short: Path) -> None:
    session = home.open(ANEW, paths=(short,))
    drive(session, 3)
    list(session.checkpoint())
    session.close()
    path = home.weights / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["cfg"]["ngram_young"], manifest["minagi"]["renewal"], manifest["minagi"]["reader"]["round"]
    path.write_text(json.dumps(manifest))
    session = home.open(ANEW, paths=(short,))
    assert rows_of(session).young is None
    until_young(session)
    session.close()


def test_rows_that_know_other_text_than_is_read_now_are_kept(home: Home, short: Path) -> None:
    home.made(3)
    session = home.open(ANEW, paths=(short,))
    rates = set()
    while session.chars < 2_000:
        (pulse,) = of(protocol.Metrics, drive(session, 1))
        assert rows_of(session).young is None
        rates.add(round(pulse.lr / session.rate.factor / session.rate.warmup(session.steps - 1), 5))
    assert rates == {0.01, 0.001, 0.0001}, "read again, and by the same rows"
    session.close()


def test_what_is_read_no_more_before_young_rows_have_learned_it_is_not_lost(home: Home, short: Path) -> None:
    other = home.root / "other" / "b.txt"
    other.parent.mkdir()
    other.write_text((short / "a.txt").read_text().upper())
    session = home.open(ANEW, paths=(short, other.parent))
    until_young(session)
    drive(session, 2)
    list(session.checkpoint())
    read_with = rows_of(session).weight.clone()
    session.close()
    again = home.open(ANEW, paths=(short,))
    assert rows_of(again).young is not None
    while rows_of(again).young is not None:
        assert torch.equal(rows_of(again).weight, read_with)
        drive(again, 1)
    changed = (rows_of(again).weight != read_with).any(1)
    assert bool(changed.any()) and not bool(changed.all())
    again.close()
