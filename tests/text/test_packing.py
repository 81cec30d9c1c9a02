from __future__ import annotations

import itertools
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.errors import MinagiError, UsageError
from minagi.text import packing
from minagi.text.alphabet import END_OF_TEXT, MARKERS, decode, encode, encode_blocks
from minagi.text.collect import collect
from minagi.text.corpus import Corpus, Subject, TextSpan
from minagi.text.held_out import split
from minagi.text.packed import TRAIN, VAL, PackedCorpus, PackedText
from minagi.text.packing import PARTIAL, Packing, check_out, pack


def packed(corpus: Corpus, out: Path) -> Packing:
    run = pack(corpus, out)
    try:
        while True:
            next(run)
    except StopIteration as end:
        return end.value


def spans_of(corpus: Corpus, part: str) -> bytes:
    texts = []
    for subject in corpus.subjects:
        for span in getattr(subject, part):
            texts.append(span.path.read_bytes()[span.start : span.stop] + b"<|endoftext|>")
    return b"".join(texts)


@given(
    st.lists(st.sampled_from([*MARKERS, b"<", b"</", b"a", b"<|end", b"\xff", b"<<g>"]), max_size=20),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_blocks_of_any_size_encode_like_the_whole(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    blocks = [data[a:b] for a, b in itertools.pairwise(edges)]
    got = list(encode_blocks(blocks))
    assert np.concatenate([*got, np.empty(0, np.uint16)]).tolist() == encode(data).tolist()


def test_a_corpus_is_every_text_and_its_end(tmp_path, folder, monkeypatch) -> None:
    monkeypatch.setattr(packing, "BLOCK", 100)  # markers lie across blocks
    root = folder(
        {"a/1.txt": "<user>hi</user> " * 40, "a/2.txt": 3_000, "b/3.txt": "né€ " * 300, "c.txt": 900}
    )
    corpus = collect([root])
    out = tmp_path / "deep" / "out"
    done = packed(corpus, out)
    for name, part, count in ((TRAIN, "train", done.train_chars), (VAL, "held_out", done.held_out_chars)):
        ids = np.fromfile(out / name, "<u2")
        assert len(ids) == count
        assert decode(ids) == spans_of(corpus, part)
        assert ids[-1] == END_OF_TEXT
    assert sorted(p.name for p in out.iterdir()) == [TRAIN, VAL]
    assert done.lost == ()


@given(st.lists(st.integers(64, 50_000), min_size=1, max_size=30), st.floats(0.01, 0.5))
def test_any_share_can_be_held_out(sizes: list[int], share: float) -> None:
    root = Path("/nowhere")
    files = [TextSpan(root / f"{i}.txt", 0, size) for i, size in enumerate(sizes)]
    subject, _ = split("s", root, files, {}, share)
    if sum(sizes) < 2_000:
        return
    got = subject.held_out_chars / sum(sizes)
    assert subject.train
    assert share / 2 - 0.01 <= got <= min(2 * share, (1 + share) / 2) + 0.05


def test_memory_is_that_of_a_block(tmp_path) -> None:
    size = 48 << 20
    file = tmp_path / "large.txt"
    with file.open("wb") as out:
        out.write(b"words " * 1_000)
        out.truncate(size)
    corpus = collect([file], max_file_bytes=2**40)
    tracemalloc.start()
    done = packed(corpus, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.train_chars + done.held_out_chars == size + 3  # a marker behind each of three pieces
    assert peak < 16 * packing.BLOCK


def test_files_that_change_meanwhile_are_told_and_the_rest_stands(tmp_path, folder, monkeypatch) -> None:
    monkeypatch.setattr(packing, "BLOCK", 500)
    root = folder({"a.txt": 2_000, "b.txt": 2_000, "c.txt": 2_000, "d.txt": 60_000})
    corpus = collect([root])
    (root / "a.txt").unlink()
    os.truncate(root / "b.txt", 700)
    done = packed(corpus, tmp_path / "out")
    assert len(done.lost) == 2
    assert "vanished" in done.lost[0] and "shorter" in done.lost[1]
    text = b"".join(decode(np.fromfile(tmp_path / "out" / name, "<u2")) for name in (TRAIN, VAL))
    assert (root / "b.txt").read_bytes()[:500] + b"<|endoftext|>" in text
    assert (root / "c.txt").read_bytes() in text


def test_nothing_is_left_of_a_run_that_fails_or_is_given_up(tmp_path, folder, monkeypatch) -> None:
    root = folder({"a.txt": 9_000})
    corpus = collect([root])
    out = tmp_path / "deep" / "out"
    run = pack(corpus, out)
    next(run)
    assert sorted(p.name for p in out.iterdir()) == [TRAIN + PARTIAL, VAL + PARTIAL]
    run.close()
    assert not out.exists()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(packing.os, "fsync", full)
        with pytest.raises(MinagiError, match=r"no space left on device\. Nothing of it was kept"):
            packed(corpus, out)
    assert not out.exists()
    out.mkdir()
    (out / (TRAIN + PARTIAL)).write_bytes(b"left by a killed run" * 10_000)
    assert packed(corpus, out).train_chars < 9_000
    assert sorted(p.name for p in out.iterdir()) == [TRAIN, VAL]


def test_when_all_text_vanishes_nothing_is_made(tmp_path, folder) -> None:
    root = folder({"a.txt": 9_000})
    corpus = collect([root])
    (root / "a.txt").unlink()
    with pytest.raises(MinagiError, match=r"no text was left to read.*a.txt vanished"):
        packed(corpus, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(tmp_path) -> None:
    span = TextSpan(tmp_path / "none.txt", 0, 10**18)
    corpus = Corpus((Subject("s", tmp_path, (span,), (span,)),))
    with pytest.raises(MinagiError, match=r"would take 4000000000\.00 GB"):
        packed(corpus, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_where_no_corpus_can_be_kept(tmp_path, folder, monkeypatch) -> None:
    root = folder({"a.txt": 9_000})
    corpus = collect([root])
    with pytest.raises(UsageError, match="is not empty"):
        packed(corpus, root)
    with pytest.raises(UsageError, match="is a file"):
        packed(corpus, root / "a.txt")
    with pytest.raises(UsageError, match="not a directory"):
        packed(corpus, root / "a.txt" / "out")
    with pytest.raises(UsageError, match="file name too long"):
        packed(corpus, tmp_path / ("x" * 300) / "out")
    out = tmp_path / "out"
    packed(corpus, out)
    with pytest.raises(UsageError, match="holds a corpus already"):
        packed(corpus, out)
    link = tmp_path / "linked"
    link.mkdir()
    (link / (TRAIN + PARTIAL)).symlink_to(root / "a.txt")
    with pytest.raises(UsageError, match="No corpus can be kept"):
        packed(corpus, link)
    assert (root / "a.txt").stat().st_size == 9_000
    first = pack(corpus, tmp_path / "twice")
    next(first)
    with pytest.raises(UsageError, match="Another minagi pack is writing"):
        packed(corpus, tmp_path / "twice")
    assert list(first)[-1] == 9_000
    assert PackedCorpus(tmp_path / "twice").train.length


def test_subjects_too_short_to_give_text_up(tmp_path, folder) -> None:
    root = folder({f"{name}/x.txt": 100 for name in "abcd"})
    with pytest.raises(UsageError, match="No text can be held out"):
        packed(collect([root]), tmp_path / "out")


# ------------------------------------------------------------------------------------------- reading


def write_ids(path: Path, ids: list[int]) -> Path:
    np.array(ids, "<u2").tofile(path)
    return path


def test_ids_are_read_from_any_place(tmp_path) -> None:
    text = PackedText(write_ids(tmp_path / "x.bin", list(range(265))))
    assert len(text) == 265
    assert text.ids(0, 3).tolist() == [0, 1, 2]
    assert text.ids(260, 5).tolist() == [260, 261, 262, 263, 264]
    assert text.ids(0, 1).dtype == np.uint16
    with pytest.raises(MinagiError, match="became shorter"):
        text.ids(260, 6)
    text.close()
    text.close()


def test_foreign_ids_are_found_at_the_head_at_once_and_elsewhere_when_read(tmp_path, monkeypatch) -> None:
    path = write_ids(tmp_path / "x.bin", [1] * 9 + [265] + [1] * 9)
    with pytest.raises(UsageError, match="the id 265 at place 9, and ids go from 0 to 264"):
        PackedText(path)
    monkeypatch.setattr("minagi.text.packed.HEAD", 4)
    text = PackedText(path)
    assert text.ids(0, 9).sum() == 9
    with pytest.raises(MinagiError, match="at place 9"):
        text.ids(7, 5)
    os.truncate(path, 4)
    with pytest.raises(MinagiError, match="became shorter"):
        text.ids(7, 5)
    text.close()


def test_what_is_no_corpus(tmp_path) -> None:
    def refused(match: str) -> None:
        with pytest.raises(UsageError, match=match):
            PackedCorpus(root)

    with pytest.raises(UsageError, match="cannot be read: file name too long"):
        PackedCorpus(tmp_path / ("x" * 300))
    with pytest.raises(UsageError, match="cannot be read: not a directory"):
        PackedCorpus(Path(__file__) / "corpus")

    root = tmp_path / "corpus"
    refused("There is no corpus folder")
    root.write_bytes(b"x")
    refused("is a file")
    root.unlink()
    root.mkdir()
    refused("There is no train.bin")
    train = write_ids(root / TRAIN, [1] * 40)
    refused("There is no val.bin")
    (root / VAL).mkdir()
    refused("val.bin cannot be read: it is not a plain file")
    (root / VAL).rmdir()
    (root / VAL).write_bytes(b"")
    refused("val.bin is empty")
    (root / VAL).write_bytes(b"abc")
    refused("an odd number of bytes")
    write_ids(root / VAL, [1, 2])
    corpus = PackedCorpus(root)
    corpus.close()
    os.mkfifo(root / "pipe")
    (root / "pipe").rename(train)
    refused("train.bin cannot be read")


def test_an_unfinished_corpus_is_none(tmp_path, folder) -> None:
    run = pack(collect([folder({"a.txt": 9_000})]), tmp_path / "out")
    next(run)
    with pytest.raises(UsageError, match=r"There is no train.bin"):
        PackedCorpus(tmp_path / "out")
    run.close()


def test_check_out_makes_nothing(tmp_path) -> None:
    check_out(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()
