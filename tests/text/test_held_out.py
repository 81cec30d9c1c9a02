from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.text.collect import collect
from minagi.text.corpus import Corpus, Subject, TextSpan, read_span
from minagi.text.held_out import ENOUGH, FEWEST, split


def share(subject: Subject) -> float:
    return subject.held_out_chars / (subject.chars + subject.held_out_chars)


def overlapping(subject: Subject) -> bool:
    return any(
        a.path == b.path and a.start < b.stop and b.start < a.stop
        for a in subject.train
        for b in subject.held_out
    )


def divide(sizes: list[int], recorded=None, name="s") -> tuple[Subject, dict]:
    root = Path("/nowhere")
    files = [TextSpan(root / f"{i}.txt", 0, size) for i, size in enumerate(sizes)]
    return split(name, root, files, recorded or {})


@given(st.lists(st.integers(FEWEST, 200_000), min_size=1, max_size=60))
def test_about_a_twentieth_of_any_subject(sizes):
    subject, choice = divide(sizes)
    assert not overlapping(subject)
    assert subject.train
    if sum(sizes) < ENOUGH:
        assert not subject.held_out and not choice
        return
    assert 0.02 <= subject.held_out_chars / sum(sizes) <= 0.21
    if sum(sizes) > 2_000:
        assert share(subject) <= 0.11
    assert subject.held_out_chars >= min(FEWEST, sum(sizes) // 5)
    lost = sum(sizes) - subject.chars - subject.held_out_chars
    assert 0 <= lost < 2 * FEWEST


@given(st.lists(st.integers(FEWEST, 50_000), min_size=1, max_size=30))
def test_the_choice_is_the_same_at_every_start_in_any_order(sizes):
    root = Path("/nowhere")
    files = [TextSpan(root / f"{i}.txt", 0, size) for i, size in enumerate(sizes)]
    one, choice = split("s", root, files, {})
    other, again = split("s", root, files[::-1], {})
    assert choice == again and set(one.held_out) == set(other.held_out)
    assert split("s", root, files, choice)[0] == one


def test_the_choice_does_not_depend_on_where_the_folder_lies(tmp_path, folder):
    root = folder({f"{i}.txt": 1_000 for i in range(40)})
    first = collect([root]).choice
    moved = tmp_path / "elsewhere" / "notes"
    shutil.copytree(root, moved)
    assert collect([moved]).choice == first and first


def test_a_single_file_gives_its_middle_cut_between_characters(folder):
    for extra in range(4):  # the cut falls on every byte of a four-byte character
        root = folder({"only.txt": "a" * extra + "🐈" * 1_000}, f"n{extra}")
        (subject,) = collect([root]).subjects
        (before, behind), (held,) = subject.train, subject.held_out
        assert before.stop == held.start and held.stop == behind.start and behind.stop == 4_000 + extra
        assert abs(before.chars - behind.chars) < 9
        assert read_span(before).decode().endswith("🐈") and read_span(held).decode().startswith("🐈")
        assert read_span(behind).decode().startswith("🐈")
        assert 0.04 < share(subject) < 0.06


def test_one_huge_file_beside_small_ones(folder):
    root = folder({"huge.txt": 900_000, **{f"{i}.txt": 500 for i in range(5)}})
    (subject,) = collect([root]).subjects
    assert 0.03 < share(subject) < 0.08
    assert any(span.path.name == "huge.txt" and span.start > 0 for span in subject.held_out)


def test_every_subject_with_enough_text_gives_some(folder):
    root = folder(
        {"a/1.txt": 300, "b/1.txt": 200_000, "c/1.txt": 70, **{f"d/{i}.txt": 100 for i in range(50)}}
    )
    shares = {subject.name: subject.held_out_chars for subject in collect([root]).subjects}
    assert shares["a"] > 0 and shares["b"] > 0 and shares["d"] > 0
    assert shares["c"] == 0


# ------------------------------------------------------------------------------------------- recorded


def test_new_files_never_move_what_is_held_out(folder):
    root = folder({f"{i}.txt": 1_000 for i in range(40)})
    before = collect([root])
    for i in range(100):
        (root / f"new{i}.txt").write_text("new text " * 100)
    after = collect([root], recorded=before.choice)
    assert after.subjects[0].held_out == before.subjects[0].held_out
    assert after.files == 140
    assert after.choice == before.choice


def test_a_file_that_grew_is_read_before_and_behind_what_is_held_out(folder):
    root = folder({"only.txt": 10_000})
    before = collect([root])
    with (root / "only.txt").open("a") as file:
        file.write("x" * 1_000)
    (subject,) = collect([root], recorded=before.choice).subjects
    assert subject.held_out == before.subjects[0].held_out
    assert [(span.start, span.stop) for span in subject.train] == [(0, 4_750), (5_250, 11_000)]


def test_a_choice_whose_files_are_gone_is_made_anew(folder):
    root = folder({f"{i}.txt": 1_000 for i in range(40)})
    before = collect([root])
    for span in before.subjects[0].held_out:
        span.path.unlink()
    after = collect([root], recorded=before.choice)
    assert 0.02 < share(after.subjects[0]) < 0.11


def test_what_is_read_after_another_choice_is_never_held_out_again():
    before = {"s/0.txt": [125, 187], "s/gone.txt": [0, 80]}  # too little is left of what was held out
    subject, choice = divide([312, 348], before)
    assert [span.path.name for span in subject.held_out] == ["1.txt"]
    assert choice["s/0.txt"] == [0, 0]
    assert divide([312, 348], {**before, **choice})[0] == subject


def test_a_choice_that_became_most_of_a_subject_is_made_anew(folder):
    root = folder({f"{i}.txt": 1_000 for i in range(40)})
    before = collect([root])
    kept = {span.path for span in before.subjects[0].held_out}
    for path in root.iterdir():
        if path not in kept:
            path.unlink()
    after = collect([root], recorded=before.choice)
    assert after.subjects[0].train and share(after.subjects[0]) < 0.11


@pytest.mark.parametrize(
    "span", [None, 5, "0,9", [1], [0, "9"], [True, 5], [5, 5], [9, 3], [-5, 100], [0, 10**30], [1.0, 2.0], {}]
)
def test_a_recorded_choice_may_hold_anything(folder, span):
    root = folder({"only.txt": 10_000})
    (subject,) = collect([root], recorded={"notes/only.txt": span, "x": span}).subjects
    assert subject.train and subject.held_out and not overlapping(subject)
    assert 0.04 < share(subject) < 0.06


# ---------------------------------------------------------------------------------- a folder of its own


def by_name(corpus: Corpus) -> dict[str, Subject]:
    return {subject.name: subject for subject in corpus.subjects}


def test_a_folder_of_held_out_text_is_measured_and_nothing_is_kept_back(folder):
    root = folder({"art/a.txt": 5_000, "physics/b.txt": 5_000})
    val = folder({"art/v.txt": 700, "cooking/w.txt": 800}, "val")
    subjects = by_name(collect([root], held_out=val))
    assert subjects["art"].chars == 5_000 and subjects["art"].held_out_chars == 700
    assert subjects["physics"].chars == 5_000 and subjects["physics"].held_out_chars == 0
    assert subjects["cooking"].chars == 0 and subjects["cooking"].held_out_chars == 800


def test_held_out_text_below_the_given_path_is_not_read(folder):
    root = folder({"train/a.txt": 5_000, "val/physics/b.txt": 700, "val/c.txt": 800})
    corpus = collect([root], held_out=root / "val")
    held = {span.path for subject in corpus.subjects for span in subject.held_out}
    train = {span.path for subject in corpus.subjects for span in subject.train}
    assert train == {root / "train" / "a.txt"}
    assert held == {root / "val" / "physics" / "b.txt", root / "val" / "c.txt"}


@pytest.mark.parametrize("content", [{}, {"README.md": "short"}, {"a.png": "x" * 500}])
def test_a_held_out_folder_without_text_is_as_if_absent(folder, content):
    root = folder({"a.txt": 5_000})
    assert collect([root], held_out=folder(content, "val")) == collect([root])
    assert collect([root], held_out=root / "absent") == collect([root])
