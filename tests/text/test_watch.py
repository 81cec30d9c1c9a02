from __future__ import annotations

import os
import shutil

import pytest

from minagi.text.collect import collect
from minagi.text.watch import EVERY, RESTRAINT, CorpusWatcher


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watched(folder):
    root = folder({f"{i}.txt": 1_000 for i in range(30)})
    clock = Clock()
    watcher = CorpusWatcher([root], collect([root]), clock=clock)

    def later():
        clock.now += EVERY
        return watcher.poll()

    return root, watcher, clock, later


def test_nothing_new_is_none(watched):
    _, watcher, _, later = watched
    assert watcher.poll() is None
    assert later() is None


def test_new_changed_and_deleted_files_are_noticed(watched):
    root, _, _, later = watched
    before = collect([root])
    (root / "new.txt").write_text("brand new words " * 50)
    (root / "sub").mkdir()
    (root / "sub" / "deep.txt").write_text("further down " * 50)
    with (root / "0.txt").open("a") as file:
        file.write("and one more line " * 20)
    (root / "1.txt").unlink()
    change = later()
    assert set(change.changed) == {root / "new.txt", root / "sub" / "deep.txt", root / "0.txt"}
    assert change.removed == (root / "1.txt",)
    assert [subject.name for subject in change.corpus.subjects] == ["notes", "sub"]
    assert change.corpus.files == before.files + 1
    assert later() is None


def test_a_change_of_the_same_length_is_noticed_by_its_time(watched):
    root, _, _, later = watched
    (root / "3.txt").write_text("y" * 1_000)
    os.utime(root / "3.txt", (5, 5))
    assert later().changed == (root / "3.txt",)


def test_what_is_held_out_stays_so(watched):
    root, _, _, later = watched
    held = collect([root]).subjects[0].held_out
    for i in range(60):
        (root / f"more{i}.txt").write_text("more and more " * 60)
    assert later().corpus.subjects[0].held_out == held


def test_it_does_not_look_more_often_than_it_should(watched):
    root, watcher, clock, _ = watched
    (root / "new.txt").write_text("brand new words " * 50)
    clock.now += EVERY / 2
    assert watcher.poll() is None
    clock.now += EVERY / 2
    assert watcher.poll() is not None


def test_a_slow_disk_is_looked_at_less(watched, monkeypatch):
    root, watcher, clock, later = watched
    look = watcher._look

    def slowly():
        clock.now += 2.0
        return look()

    monkeypatch.setattr(watcher, "_look", slowly)
    assert later() is None
    (root / "new.txt").write_text("brand new words " * 50)
    clock.now += 2.0 * RESTRAINT - 1
    assert watcher.poll() is None
    clock.now += 1
    assert watcher.poll() is not None


def test_while_everything_is_gone_the_old_corpus_stands(watched, tmp_path):
    root, _, _, later = watched
    held = collect([root]).choice
    shutil.move(root, tmp_path / "away")
    assert later() is None
    assert later() is None
    shutil.move(tmp_path / "away", root)
    (root / "new.txt").write_text("brand new words " * 50)
    change = later()
    assert change.changed == (root / "new.txt",)
    assert change.corpus.choice == held


def test_excluded_folders_are_not_watched(folder):
    root = folder({"a.txt": 1_000, "weights/manifest.json": 1_000})
    clock = Clock()
    exclude = [root / "weights"]
    watcher = CorpusWatcher([root], collect([root], exclude=exclude), exclude=exclude, clock=clock)
    (root / "weights" / "manifest.json").write_text("{}" * 800)
    clock.now += EVERY
    assert watcher.poll() is None


def test_a_transcript_is_noticed_when_it_begins_and_when_it_grows(folder, tmp_path):
    root, transcript = folder({"a.txt": 1_000}), tmp_path / "transcript.txt"
    clock = Clock()
    watcher = CorpusWatcher([root], collect([root]), transcript=transcript, clock=clock)
    for _ in range(2):
        with transcript.open("a") as file:
            file.write("and so on " * 10)
        clock.now += EVERY
        change = watcher.poll()
        assert change.changed == (transcript,)
        assert change.corpus.subjects[-1].chars == transcript.stat().st_size
        clock.now += EVERY
        assert watcher.poll() is None
