from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.errors import UsageError
from minagi.protocol import CorpusFound, decode_event, encode
from minagi.text import collect as collecting
from minagi.text.collect import check_paths, collect, collect_to_measure, judge_sample
from minagi.text.corpus import Corpus, TextGoneError, TextSpan, read_span, shown_path


def names(corpus: Corpus) -> list[str]:
    return [subject.name for subject in corpus.subjects]


def read(corpus: Corpus) -> set[Path]:
    return {span.path for subject in corpus.subjects for span in (*subject.train, *subject.held_out)}


def refusal(paths) -> str:
    """The one sentence of check_paths; collect must refuse the same paths."""
    with pytest.raises(UsageError) as caught:
        check_paths(paths)
    said = str(caught.value)
    assert "\n" not in said and said.endswith(".")
    with pytest.raises(UsageError):
        collect(paths)
    return said


# ------------------------------------------------------------------------------------------ subjects


def test_a_subject_is_a_top_level_folder_or_the_path_itself(folder):
    root = folder({"top.txt": 500, "physics/a.md": 600, "physics/deep/er/b.md": 700, "art/c.txt": 800})
    corpus = collect([root])
    assert names(corpus) == ["notes", "art", "physics"]
    assert [s.chars + s.held_out_chars for s in corpus.subjects] == [500, 800, 1300]
    assert corpus.files == 4 and corpus.chars + corpus.held_out_chars == 2600
    assert check_paths([root]) is None


def test_a_given_file_is_a_subject_of_its_own(folder):
    root = folder({"a.txt": 500, "b.txt": 600, "c.txt": 700})
    assert names(collect([root / "b.txt", root / "a.txt"])) == ["b.txt", "a.txt"]


def test_like_named_folders_stay_apart(tmp_path, folder):
    one = folder({"log/a.txt": 500, "notes/x.txt": 400, "y.txt": 300}, "notes")
    (tmp_path / "other").mkdir()
    two = folder({"log/a.txt": 600}, "other/notes")
    corpus = collect([one, two])
    assert names(corpus) == ["notes", "log", "notes (2)", "log (2)"]
    assert corpus == collect([one, two])


def test_a_path_given_twice_or_inside_another_is_read_once(folder):
    root = folder({"a/x.txt": 500, "b/y.txt": 600})
    assert collect([root, root, root / "a", root / "a" / "x.txt"]) == collect([root])
    inner_first = collect([root / "a", root])
    assert names(inner_first) == ["a", "b"]
    assert inner_first.files == 2


def test_paths_with_spaces_emoji_and_strange_names(tmp_path, folder):
    root = folder({"my notes 🐈/ünï côde.txt": 500, "tab\there\x1b[31m/new\nline.txt": 500})
    raw = os.fsencode(root) + b"/caf\xe9"
    os.mkdir(raw)  # noqa: PTH102 - a name that is no text
    with open(raw + b"/\xff.txt", "wb") as file:  # noqa: PTH123
        file.write(b"latin name, plain content. " * 30)
    corpus = collect([root])
    assert corpus.files == 3
    assert all(name.isprintable() for name in names(corpus))
    for subject in corpus.subjects:
        for span in subject.train:
            assert len(read_span(span)) == span.chars
    event = CorpusFound(**corpus.summary())
    assert decode_event(encode(event)) == event


def test_the_summary_has_the_fields_of_the_event(folder):
    corpus = collect([folder({"a/x.txt": 2_000, "b.txt": 300, "empty.txt": ""})])
    event = CorpusFound(**corpus.summary())
    assert (event.files, event.chars, event.held_out_chars) == (2, corpus.chars, corpus.held_out_chars)
    assert event.skipped == {"empty": 1}
    assert [subject["name"] for subject in event.subjects] == ["notes", "a"]
    assert all(set(subject) == {"name", "files", "chars", "held_out_chars"} for subject in event.subjects)


# --------------------------------------------------------------------------------------- passed over


def test_folders_of_tools_and_hidden_ones_are_not_entered(folder):
    vendored = [".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", "venv", ".mypy_cache",
                ".pytest_cache", "build", "dist", ".obsidian"]  # fmt: skip
    files: dict[str, int | str | bytes] = {f"sub/{name}/x.txt": 500 for name in vendored}
    root = folder({**files, "sub/x.txt": 500, ".hidden.txt": 500})
    corpus = collect([root])
    assert read(corpus) == {root / "sub" / "x.txt"}
    assert corpus.skipped == {"hidden": 1}
    assert collect([root / "sub" / "build"]).files == 1  # given by name, it counts
    assert collect([root / ".hidden.txt"]).files == 1


def test_every_reason_is_counted_and_exemplified(folder):
    root = folder({
        "good.txt": 1_000,
        "empty.txt": "",
        "photo.JPG": "text inside, but the ending says otherwise. " * 9,
        "nul.dat": b"text\0" * 100,
        "latin.txt": "caf\xe9 ".encode("latin-1") * 50,
        "utf16.txt": ("plain words " * 50).encode("utf-16"),
        "noise.txt": "\x01\x02\x03ab" * 50,
        "note.txt": "buy milk",
    })  # fmt: skip
    (root / "link.txt").symlink_to(root / "good.txt")
    corpus = collect([root])
    assert read(corpus) == {root / "good.txt"}
    assert corpus.skipped == {
        "empty": 1, "binary": 3, "not UTF-8": 1, "mostly unprintable": 1, "shorter than 64 characters": 1,
        "a link": 1,
    }  # fmt: skip
    assert corpus.skipped_examples["empty"] == (root / "empty.txt",)
    assert set(corpus.skipped_examples) == set(corpus.skipped)


def test_examples_are_bounded(folder):
    corpus = collect([folder({"good.txt": 500, **{f"{i}.png": "x" for i in range(50)}})])
    assert corpus.skipped["binary"] == 50
    assert len(corpus.skipped_examples["binary"]) == collecting.EXAMPLES


def test_huge_files_are_named_not_read(folder):
    root = folder({"good.txt": 500})
    with (root / "huge.txt").open("wb") as file:
        file.truncate(2**40)
    corpus = collect([root], max_file_bytes=2**30)
    assert corpus.skipped == {"larger than 1 GiB": 1}


def test_a_large_sparse_text_file_costs_nothing_to_collect(folder):
    root = folder({"big.txt": 5_000})
    with (root / "big.txt").open("r+b") as file:
        file.truncate(2**32)
    start = time.process_time()
    assert collect([root]).chars > 2**31
    assert time.process_time() - start < 0.5


def test_pipes_sockets_and_devices_are_never_opened(tmp_path, folder):
    root = folder({"good.txt": 500})
    os.mkfifo(root / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(root / "socket.txt"))
        corpus = collect([root])
    assert corpus.skipped == {"not a plain file": 2}
    assert "neither a folder nor a plain file" in refusal([root / "pipe.txt"])
    assert "neither" in refusal([Path("/dev/null")])


def test_links_are_followed_when_asked_and_never_in_circles(tmp_path, folder):
    elsewhere = folder({"far.txt": 500, "deep/near.txt": 500}, "elsewhere")
    root = folder({"a/good.txt": 500})
    (root / "a" / "loop").symlink_to(root)
    (root / "a" / "out").symlink_to(elsewhere)
    (root / "a" / "file.txt").symlink_to(elsewhere / "far.txt")
    (root / "a" / "dangling").symlink_to(root / "nothing")
    (root / "a" / "self").symlink_to(root / "a" / "self")
    assert collect([root]).files == 1
    followed = collect([root], follow_symlinks=True)
    assert read(followed) == {root / "a" / "good.txt", elsewhere / "far.txt", elsewhere / "deep" / "near.txt"}
    assert followed.skipped == {"vanished": 2}


def test_a_given_path_that_is_a_link_is_what_it_points_to(tmp_path, folder):
    root = folder({"good.txt": 500})
    (tmp_path / "shortcut").symlink_to(root)
    check_paths([tmp_path / "shortcut"])
    assert collect([tmp_path / "shortcut"]) == collect([root])


def test_excluded_folders_are_not_entered(folder):
    root = folder({"good.txt": 500, "weights/manifest.json": 500, "runs/samples.txt": 500})
    corpus = collect([root], exclude=[root / "weights", root / "runs", root / "absent"])
    assert read(corpus) == {root / "good.txt"}


def test_files_and_folders_that_cannot_be_opened(folder, monkeypatch):
    root = folder({"good.txt": 500, "secret.txt": 500, "gone.txt": 500, "locked/x.txt": 500})
    real_open, real_scan = os.open, os.scandir

    def guarded_open(path, *args, **kwargs):
        if "secret" in str(path):
            raise PermissionError(13, "Permission denied")
        if "gone" in str(path):
            raise FileNotFoundError(2, "No such file or directory")
        return real_open(path, *args, **kwargs)

    def guarded_scan(path):
        if "locked" in str(path):
            raise PermissionError(13, "Permission denied")
        return real_scan(path)

    monkeypatch.setattr(os, "open", guarded_open)
    monkeypatch.setattr(os, "scandir", guarded_scan)
    corpus = collect([root])
    assert read(corpus) == {root / "good.txt"}
    assert corpus.skipped == {"unreadable": 2, "vanished": 1}
    assert "secret.txt cannot be read: permission denied" in refusal([root / "secret.txt"])
    assert "locked cannot be read: permission denied" in refusal([root / "locked"])


@given(st.text(min_size=200, max_size=400).filter(lambda t: "\0" not in t), st.integers(0, 3))
def test_a_sample_may_end_within_a_character(text, cut):
    whole = text.encode("utf-8", "ignore")
    sample = whole[: len(whole) - cut] if cut else whole
    assert judge_sample(sample) in ("", "mostly unprintable")


@given(st.binary(max_size=300))
def test_any_bytes_are_judged(data):
    assert judge_sample(data) in ("", "binary", "not UTF-8", "mostly unprintable")


@pytest.mark.parametrize(
    "text",
    [
        "日本語の文章です。　全角の空白も。\n" * 9,
        "emoji 👩‍👩‍👧 and\r\n\ttabs\f\n" * 9,
        "\ufeffwith a mark\n" * 9,
    ],
)
def test_ordinary_text_of_any_script_is_text(text):
    assert judge_sample(text.encode()) == ""


# ------------------------------------------------------------------------------------------ refusals


def test_paths_with_nothing_to_read_get_one_sentence(tmp_path, folder):
    (tmp_path / "hollow" / "inner").mkdir(parents=True)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    binaries = folder({"a.png": b"\x89PNG" * 99, "b.bin": "x" * 500, "c.txt": b"\0" * 500}, "binaries")
    assert "Name a folder" in refusal([])
    assert "does not exist" in refusal([tmp_path / "nothing"])
    assert "link to something that does not exist" in refusal([tmp_path / "dangling"])
    assert "ring cannot be read" in refusal([tmp_path / "ring"])
    assert "holds no files" in refusal([tmp_path / "hollow"])
    assert "passed over (3 binary)" in refusal([binaries])
    assert "binaries and" in refusal([binaries, tmp_path / "hollow"])
    assert "cannot be read" in refusal([tmp_path / ("x" * 300)])
    assert "cannot be read" in refusal([Path("a\0b")])
    assert r"a\nb" in refusal([tmp_path / "a\nb"])
    assert "1 more" in refusal([binaries] * 4)


@pytest.mark.parametrize("chars", [100, 255])
def test_too_little_text_is_refused_in_words(folder, chars):
    assert f"only {chars} characters" in refusal([folder({"a.txt": chars})])


def test_the_least_text_is_usable(folder):
    root = folder({"a.txt": 256})
    check_paths([root])
    corpus = collect([root])
    assert corpus.chars + corpus.held_out_chars == 256 and corpus.held_out_chars > 0


def test_text_to_be_measured_may_be_short_and_is_all_held_out(tmp_path, folder):
    root = folder({"a.txt": "ab", "b/c.txt": 5_000, "b/d.txt": "x", "e.png": "xyz"})
    corpus = collect_to_measure([root])
    assert [(s.name, s.chars, s.held_out_chars) for s in corpus.subjects] == [
        ("notes", 0, 2),
        ("b", 0, 5_000),
    ]
    assert corpus.skipped == {"binary": 1, "shorter than 2 characters": 1}
    with pytest.raises(UsageError, match="does not exist"):
        collect_to_measure([tmp_path / "nothing"])
    with pytest.raises(UsageError, match="no text to read"):
        collect_to_measure([root / "e.png"])


def test_one_missing_path_among_good_ones_is_told(tmp_path, folder):
    with pytest.raises(UsageError, match="nothing does not exist"):
        check_paths([folder({"a.txt": 500}), tmp_path / "nothing"])


def test_checking_stops_at_the_first_text(folder, monkeypatch):
    root = folder({f"{i:03}.txt": 500 for i in range(200)})
    opened = []
    monkeypatch.setattr(collecting, "judge", lambda file, *_: opened.append(file) or "")
    check_paths([root])
    assert len(opened) == 1


def test_three_thousand_files_take_less_than_a_second(folder):
    root = folder({f"{i % 20}/{i}.txt": 200 for i in range(3_000)})
    start = time.process_time()
    corpus = collect([root])
    assert time.process_time() - start < 1.0
    assert corpus.files == 3_000 and len(corpus.subjects) == 20


def test_a_tree_deeper_than_the_interpreter_recurses(tmp_path):
    folders = [tmp_path / "d"]
    while len(folders) < 1_200:
        folders.append(folders[-1] / "d")
    for path in folders:
        path.mkdir()
    (folders[-1] / "x.txt").write_text("deep text " * 50)
    try:
        assert collect([tmp_path]).files == 1
    finally:  # pytest's own tidying recurses
        (folders[-1] / "x.txt").unlink()
        for path in reversed(folders):
            path.rmdir()


# ---------------------------------------------------------------------------------------------- spans


def test_reading_part_of_a_span(folder):
    root = folder({"a.txt": "0123456789" * 10})
    span = TextSpan(root / "a.txt", 20, 60)
    assert read_span(span) == b"0123456789" * 4
    assert read_span(span, 5, 10) == b"5678901234"
    assert read_span(span, 35, 10) == b"56789"
    assert read_span(span, 40, 10) == b"" and read_span(span, 99) == b""


def test_text_that_is_gone_says_how(folder, monkeypatch):
    root = folder({"a.txt": 500})
    with pytest.raises(TextGoneError, match="became shorter"):
        read_span(TextSpan(root / "a.txt", 400, 600))
    with pytest.raises(TextGoneError, match="vanished"):
        read_span(TextSpan(root / "b.txt", 0, 10))
    with pytest.raises(TextGoneError, match="cannot be read"):
        read_span(TextSpan(root, 0, 10))
    os.mkfifo(root / "pipe")
    with pytest.raises(TextGoneError, match="not a plain file"):
        read_span(TextSpan(root / "pipe", 0, 10))


def test_shown_paths_are_one_printable_line():
    assert shown_path("plain/ünï 🐈.txt") == "plain/ünï 🐈.txt"
    assert shown_path("a\n\x1b[2Jb\u202ec\udcff") == r"a\n\x1b[2Jb\u202ec\udcff"


# ------------------------------------------------------------------------------------- transcript


def test_a_transcript_is_a_subject_of_its_own_and_disturbs_no_other(folder, tmp_path):
    root = folder({"one/a.txt": 4_000, "one/b.txt": 3_000, "two/c.txt": 5_000})
    before = collect([root])
    transcript = tmp_path / "transcript.txt"
    assert collect([root], transcript=transcript) == before
    for size in (10, 64, 50_000):
        transcript.write_text("x" * size)
        after = collect([root], transcript=transcript)
        assert after.subjects[: len(before.subjects)] == before.subjects
        assert (after.measured, after.choice) == (before.measured, before.choice)
        assert after.skipped == before.skipped
        spoken = [(s.name, s.chars, s.held_out) for s in after.subjects[len(before.subjects) :]]
        assert spoken == ([("the chat", size, ())] if size >= 64 else [])


def test_a_transcript_keeps_out_of_the_way_of_a_folder_of_its_name(folder, tmp_path):
    root = folder({"the chat/a.txt": 4_000})
    (tmp_path / "t.txt").write_text("x" * 100)
    assert names(collect([root], transcript=tmp_path / "t.txt")) == ["the chat", "the chat (2)"]


def test_a_transcript_alone_is_nothing_to_read(folder, tmp_path):
    (tmp_path / "t.txt").write_text("x" * 9_000)
    with pytest.raises(UsageError, match="no files to read"):
        collect([folder({})], transcript=tmp_path / "t.txt")


def test_a_transcript_that_is_no_plain_file_is_left_alone(folder, tmp_path):
    root = folder({"a.txt": 4_000})
    (tmp_path / "link.txt").symlink_to(root / "a.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "link.txt", tmp_path / "pipe.txt", tmp_path, tmp_path / "a" / "b"):
        assert collect([root], transcript=path) == collect([root])


def test_a_transcript_with_held_out_text_apart(folder, tmp_path):
    root = folder({"train/a.txt": 4_000, "val/train/b.txt": 400})
    (tmp_path / "t.txt").write_text("x" * 900)
    corpus = collect([root / "train"], held_out=root / "val", transcript=tmp_path / "t.txt")
    assert (corpus.subjects[-1].name, corpus.subjects[-1].held_out) == ("the chat", ())
