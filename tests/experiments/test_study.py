"""Measurements of forgetting with real models, small enough to take a second."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import CHUNK, Home, drive, everything, of, prose, same_numbers, tree

from minagi import protocol
from minagi.errors import MinagiError, UsageError, WeightsError
from minagi.experiments.forgetting import ForgetRequest, Point, cost
from minagi.experiments.study import Study
from minagi.training.evaluate import Measured, Score


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A model that has read letters and a logbook, and poems it has not."""
    home = Home(tmp_path)
    home.made(6)
    for part in range(3):
        poem = home.root / "poems" / f"stanza{part}" / "poem.txt"
        poem.parent.mkdir(parents=True)
        poem.write_text(prose(300, 70 + part).upper())
    return home


def request(home: Home, changes: dict[str, object] | None = None, **asked: Any) -> ForgetRequest:
    given: dict[str, Any] = {"chars": 300, "device": "cpu", **asked}
    return ForgetRequest(home.root / "poems", home.weights, home.loaded(changes), **given)


def measured(asked: ForgetRequest) -> tuple[list[Point], Study]:
    study = Study(asked)
    try:
        for _ in study.run():
            pass
    finally:
        study.close()
    return study.points, study


def test_the_weights_stay_as_they_are_to_the_byte(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth, pruning, eviction and all; and the copy is gone at the end."""
    scratch = home.root / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = tree(home.weights), tree(home.root / "runs")
    changes = {
        "growth.every_chars": 100, "growth.max_gap": 0, "growth.dying_frac_max": 1.0, "pool.ram_cache": 1,
        "growth.keep_ratio_min": 0.0, "growth.max_disk_gb": 0, "prune.survival_chars": 100,
        "training.eval_every_chars": 100, "training.save_every": 1e-9,
    }  # fmt: skip
    for asked in ({"interleave": 0.5}, {"plain": True}):
        measured(request(home, changes, chars=200, **asked))
    assert (tree(home.weights), tree(home.root / "runs")) == before
    assert list(scratch.iterdir()) == []


def test_every_known_subject_and_the_new_one_are_scored_at_every_point(home: Home) -> None:
    points, study = measured(request(home, points=(100, 0, 250, 100)))
    for point, due in zip(points, (0, 100, 250, 300), strict=True):
        assert due <= point.chars < due + 2 * CHUNK
        assert point.read == point.chars
        assert set(point.known) == {"letters", "logbook"}
    assert study.new.name == "poems" and len(study.new.held_out) >= 1
    found = cost(points[0], points[-1])
    assert found.gained.nats > 0.2 and found.retained is not None
    described = study.describe()
    json.dumps(described)
    assert described["known"] == ["letters", "logbook"] and described["trunk_lr_mult"] == 1.0


def test_scores_at_the_start_are_those_of_the_model_as_it_is(home: Home) -> None:
    """The same held-out text, and the same figures, as a run of the trainer measures."""
    points, _ = measured(request(home, {"data.eval_chars": 10**6}, chars=1))
    session = home.open({"data.eval_chars": 10**6}, dry_run=True)
    (event,) = of(protocol.HeldOut, session.evaluate())
    session.close()
    for name, scored in points[0].known.items():
        assert scored.nats == pytest.approx(event.subjects[name]["nats"], rel=1e-12)


def test_the_same_seed_gives_the_same_figures(home: Home) -> None:
    one, two, three = (measured(request(home, seed=seed))[0] for seed in (1, 1, 2))
    assert one == two
    assert one[0] == three[0] and one[-1] != three[-1]


def test_massed_is_what_reading_would_do(home: Home) -> None:
    """Every number as after `minagi read` of as many characters of one folder."""
    alone = home.root / "poems" / "stanza0"
    study = Study(replace(request(home), new=alone))
    for _ in study.run():
        pass
    session = home.open(paths=(alone,), dry_run=True)
    drive(session, study.session.steps - session.steps)
    same_numbers(everything(study.session), everything(session))
    session.close()
    study.close()


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
def test_interleaving_reads_its_share_of_the_old(home: Home, share: float) -> None:
    study = Study(request(home, {"data.passage": 24}, interleave=share))
    subjects = [m.subject for m in study.run() if isinstance(m, protocol.Metrics)]
    study.close()
    last = study.points[-1]
    assert (last.read - last.chars) / last.read == pytest.approx(share, abs=0.06)
    assert set(subjects) == {"poems", "letters", "logbook"}, "every old subject has its turn"
    assert subjects[0] == "poems"


def test_plain_is_everything_at_one_constant_rate_over_the_whole_pool(home: Home) -> None:
    changes = {"training.trunk_lr_mult": 0.01, "training.eval_every_chars": 50}
    study = Study(request(home, changes, plain=True))
    rates = {m.lr for m in study.run() if isinstance(m, protocol.Metrics) and m.step > 100}
    engine = study.session.engine
    assert len(engine.pool.resident()) > 4 and engine.routing.resident == 7
    assert engine.routing.capacity_factor == 0
    assert study.describe()["trunk_lr_mult"] == 1.0
    assert rates <= {0.01}
    study.close()


def test_plain_forgets_a_lowered_rate_and_others_keep_it(home: Home) -> None:
    session = home.open()
    session.rate.halve()
    drive(session, 1)
    list(session.checkpoint())
    session.close()
    for plain, factor in ((True, 1.0), (False, 0.5)):
        study = Study(request(home, {"training.eval_every_chars": 50}, plain=plain))
        factors = {m.rate_factor for m in study.run() if isinstance(m, protocol.Metrics)}
        assert factors == {factor}
        study.close()


def test_a_slow_trunk_changes_less(home: Home) -> None:
    fast, slow = (measured(request(home, {"training.trunk_lr_mult": mult}))[0] for mult in (1.0, 0.01))
    assert fast[0] == slow[0]
    assert cost(fast[0], fast[-1]).gained.nats > cost(slow[0], slow[-1]).gained.nats


# ------------------------------------------------------------------------------------ what is known


def test_known_text_can_be_named(home: Home) -> None:
    points, _ = measured(request(home, old=(home.text / "letters",), chars=1))
    assert set(points[0].known) == {"letters"}


def test_paths_of_every_run_are_recorded_once(home: Home) -> None:
    more = home.root / "more"
    more.mkdir()
    (more / "a.txt").write_text(prose(300, 5))
    for path in (more, home.text, Path(f"{more}/../more")):
        session = home.open(paths=(path,))
        drive(session, 1)
        list(session.checkpoint())
        session.close()
    ours = json.loads((home.weights / "manifest.json").read_text())["minagi"]
    assert ours["paths"][:2] == [str(home.text), str(more)]
    points, study = measured(request(home, chars=1))
    assert set(points[0].known) == {"letters", "logbook", "more"}
    assert study.notice == ""


def test_new_text_among_the_known_is_taken_out_of_it_and_told(home: Home) -> None:
    asked = replace(request(home, chars=1), new=home.text / "letters")
    points, study = measured(asked)
    assert set(points[0].known) == {"logbook"}
    assert "letters lies in" in study.notice
    with pytest.raises(UsageError, match="Nothing is left of the known text"):
        Study(replace(asked, old=(home.text / "letters",)))


def test_like_named_subjects_are_told_apart(home: Home) -> None:
    other = home.root / "elsewhere" / "letters"
    other.mkdir(parents=True)
    (other / "a.txt").write_text(prose(300, 8))
    points, study = measured(replace(request(home, chars=1), new=other))
    assert study.new.name == "letters" and set(points[0].known) == {"letters (known)", "logbook"}


def test_held_out_folders_name_known_subjects_too(home: Home) -> None:
    apart = home.root / "val"
    (apart / "sermons").mkdir(parents=True)
    (apart / "sermons" / "one.txt").write_text(prose(300, 9))
    points, study = measured(request(home, {"data.held_out": str(apart)}, chars=1))
    assert set(points[0].known) == {"sermons"}
    assert study.new.held_out, "the new text is scored all the same"
    changes = {"data.held_out": str(apart), "data.passage": 24}
    study = Study(request(home, changes, interleave=0.5))
    subjects = {m.subject for m in study.run() if isinstance(m, protocol.Metrics)}
    study.close()
    assert subjects == {"poems", "letters", "logbook"}, "what is not scored can still be read again"
    with pytest.raises(UsageError):
        Study(request(home, changes, old=(apart,), interleave=0.5))


HOSTILE = (None, 3, "x", {}, [None, 4, {}], ["/no/such"], ["x\0y"], ["y" * 5000], ["\udcff"])


def test_a_record_that_names_nothing_asks_for_a_name(home: Home) -> None:
    file = home.weights / "manifest.json"
    manifest = json.loads(file.read_text())
    for paths in HOSTILE:
        manifest["minagi"]["paths"] = paths
        file.unlink()
        file.write_text(json.dumps(manifest))
        with pytest.raises(UsageError, match="--old PATH"):
            Study(request(home))
    home.open(paths=(home.text,)).close()
    assert measured(request(home, old=(home.text,), chars=1))[0]


# --------------------------------------------------------------------------------------- bad input


def test_faults_are_sentences_and_leave_nothing_open(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = home.root / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    short = home.root / "short.txt"
    short.write_text("x" * 257 + "\n")
    binary = home.root / "binary.txt"
    binary.write_bytes(b"\0" * 5000)
    faults: list[tuple[ForgetRequest, type[MinagiError], str]] = [
        (replace(request(home), weights=home.root / "none"), WeightsError, "holds no model yet"),
        (replace(request(home), new=binary), UsageError, "binary"),
        (request(home, old=(binary,)), UsageError, "binary"),
        (request(home, old=(home.root / "poems",)), UsageError, "Nothing is left of the known"),
    ]
    for asked, kind, words in faults:
        with pytest.raises(kind, match=words):
            Study(asked)
    assert list(scratch.iterdir()) == []
    (home.weights / "core.npz").write_bytes(b"not a core")
    with pytest.raises(WeightsError):
        Study(request(home))
    assert list(scratch.iterdir()) == []


def test_new_text_too_short_to_be_scored(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minagi.text.held_out.ENOUGH", 10**9)
    with pytest.raises(UsageError, match="too short to keep text back"):
        Study(request(home))


def test_text_that_changes_meanwhile_ends_in_words(home: Home) -> None:
    study = Study(request(home))
    events = study.run()
    while not study.points:
        next(events)
    for file in (home.text / "letters").iterdir():
        file.write_text("gone")
    with pytest.raises(MinagiError):
        for _ in events:
            pass
        cost(study.points[0], study.points[-1])
    study.close()


def broken(*args: Any) -> Iterator[None]:
    """A reading that came out as no number."""
    score = Score()
    score.add(np.full(4, math.nan), 4)
    yield
    return Measured(score, {"poems": score})


def test_a_run_that_breaks_down_ends_in_words(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(request(home))
    study.session.stepper._backward = lambda loss: None  # type: ignore[method-assign]
    with pytest.raises(MinagiError, match="Stopped, back at the last checkpoint: 3 steps running"):
        for _ in study.run():
            pass
    study.close()
    study = Study(request(home))
    monkeypatch.setattr(study.session.engine.evaluator, "held_out", broken)
    with pytest.raises(MinagiError, match="no finite score"):
        for _ in study.run():
            pass
    study.close()


def test_it_can_be_left_at_any_event(home: Home) -> None:
    before = tree(home.weights)
    study = Study(request(home))
    events: Iterator[Any] = study.run()
    for _ in range(30):
        next(events)
    study.close()
    assert tree(home.weights) == before
