from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minagi.errors import MinagiError
from minagi.text.alphabet import decode, encode
from minagi.text.collect import collect
from minagi.text.corpus import Corpus, Subject, TextSpan
from minagi.text.lanes import LaneReader, WindowOfText

shapes = st.tuples(st.integers(8, 400), st.integers(1, 500), st.integers(1, 2_000), st.integers(0, 9))
few = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def take(reader: LaneReader, steps: int, window: int, chunk: int, chars: int = 0) -> list[WindowOfText]:
    taken = []
    for _ in range(steps):
        taken.append(reader.next_window(window, chunk, chars))
        chars += taken[-1].new_chars
    return taken


def same(a: list[WindowOfText], b: list[WindowOfText]) -> bool:
    return len(a) == len(b) and all(
        (x.subject, x.path, x.new_chars) == (y.subject, y.path, y.new_chars) and np.array_equal(x.ids, y.ids)
        for x, y in zip(a, b, strict=True)
    )


@pytest.fixture
def corpus(folder) -> Corpus:
    return collect([folder({
        "book/long.txt": 30_000, "book/short.txt": 300, "poems/one.txt": 90, "poems/two.txt": 700,
        "top.txt": 2_000,
    })])  # fmt: skip


@few
@given(shapes)
def test_windows_are_text_of_one_file_and_never_held_out(corpus, shape):
    window, chunk, passage, seed = shape
    text = {span.path: span.path.read_bytes() for s in corpus.subjects for span in (*s.train, *s.held_out)}
    held = {span.path: span for s in corpus.subjects for span in s.held_out}
    for step in take(LaneReader(corpus, passage, seed), 60, window, chunk):
        data = decode(step.ids)
        assert 2 <= len(step.ids) <= window + 1 and step.ids.dtype == np.uint16
        assert 1 <= step.new_chars < len(step.ids)
        place = text[step.path].find(data)
        assert place >= 0, "a window spans two places"
        out = held.get(step.path)
        if out is not None and text[step.path].count(data) == 1:
            assert place + len(data) <= out.start or place >= out.stop


@few
@given(shapes)
def test_a_visit_reads_each_of_its_characters_once(corpus, shape):
    window, chunk, passage, seed = shape
    reader, visit, chars = LaneReader(corpus, passage, seed), b"", 0
    for _ in range(80):
        begins = reader.state()["visit"] is None
        step = reader.next_window(window, chunk, chars)
        data = decode(step.ids)
        assert len(step.ids) == step.new_chars + 1 or not begins
        visit = data if begins else visit + data[-step.new_chars :]
        assert len(visit) <= max(passage, window) + 1
        assert visit in step.path.read_bytes()
        chars += step.new_chars


def test_the_first_window_of_a_visit_is_full_and_then_it_slides(folder):
    root = folder({"a.txt": 5_000})
    reader = LaneReader(collect([root]), passage=1_000, seed=0)
    steps = take(reader, 4, window=256, chunk=100)
    assert [step.new_chars for step in steps] == [256, 100, 100, 100]
    assert [len(step.ids) for step in steps] == [257] * 4
    for before, after in itertools.pairwise(steps):
        assert np.array_equal(before.ids[100:], after.ids[:-100])
    visit = take(LaneReader(collect([root]), passage=1_000, seed=0), 9, 256, 100)
    assert [step.new_chars for step in visit] == [256, *[100] * 7, 44]  # 1,000 in all


def test_chunks_of_a_window_tile_the_passage(folder):
    reader = LaneReader(collect([folder({"a.txt": 9_000})]), passage=1_024, seed=0)
    assert [step.new_chars for step in take(reader, 8, 256, 256)] == [256] * 8


def test_a_chunk_larger_than_the_window_skips_nothing(folder):
    reader = LaneReader(collect([folder({"a.txt": 9_000})]), passage=1_024, seed=0)
    steps = take(reader, 4, window=256, chunk=2_048)
    text = b"".join(decode(step.ids)[:-1] for step in steps)
    assert text in (steps[0].path.read_bytes())


def test_files_shorter_than_a_window_are_read_as_they_are(folder):
    root = folder({"a.txt": 300, "b.txt": 200})
    texts = {path.read_bytes() for path in root.iterdir()}
    reader = LaneReader(whole(root), 32_768, 0)
    steps = take(reader, 20, window=1_024, chunk=256)
    assert {decode(step.ids) for step in steps} == texts
    assert all(step.new_chars == len(step.ids) - 1 for step in steps)


def test_a_window_that_grows_within_a_visit(folder):
    reader = LaneReader(collect([folder({"a.txt": 9_000})]), passage=1_024, seed=0)
    steps = [reader.next_window(100 + i, 64, i * 64) for i in range(10)]
    assert [len(step.ids) for step in steps] == [101 + i for i in range(10)]


def test_markers_in_files_are_single_characters(folder):
    root = folder({"chat.txt": "<user>hello there</user><bot>general reply</bot>\n" * 20})
    reader = LaneReader(collect([root]), 32_768, 0)
    (step,) = take(reader, 1, 4_096, 256)
    assert np.array_equal(step.ids, encode(decode(step.ids)))
    assert (step.ids >= 256).any()


# -------------------------------------------------------------------------------------- order of reading


def test_lanes_take_turns(corpus):
    lanes = []
    for step in take(LaneReader(corpus, 512, 0), 60, 64, 64):
        if not lanes or lanes[-1] != step.subject:
            lanes.append(step.subject)
    assert lanes[:6] == ["notes", "book", "poems"] * 2


def test_every_character_is_as_likely_as_any(folder):
    root = folder({"long.txt": 64_000, **{f"{i}.txt": 1_000 for i in range(64)}})
    reader, read = LaneReader(whole(root), 1_000, 0), Counter()
    for visit in range(3_000):
        step = reader.next_window(999, 999, visit * 1_000)
        read["long" if step.path.name == "long.txt" else "short"] += step.new_chars
        reader.restore({})  # the visit's last character or two do not matter here
    assert 0.9 < read["long"] / read["short"] < 1.1


def toured(root: Path, passage: int, window: int, seed: int, chars: int) -> dict[str, np.ndarray]:
    """How often each character of the files is an input while so many are read, windows not sliding."""
    texts = {path: path.read_bytes() for path in root.iterdir()}
    read = {path.name: np.zeros(len(text), int) for path, text in texts.items()}
    reader, done = LaneReader(whole(root), passage, seed), 0
    while done < chars:
        step = reader.next_window(window, window, done)
        place = texts[step.path].index(decode(step.ids[:-1]))
        read[step.path.name][place : place + len(step.ids) - 1] += 1
        done += step.new_chars
    return read


@pytest.mark.parametrize(
    ("sizes", "passage", "window", "unread", "over"),
    [
        ([50_000], 500, 500, 1e-4, 0.02),  # `over`: the share of a tour that is read a second time
        ([50_000], 500, 2_000, 1e-4, 0.08),  # visits are as long as a window
        ([400] * 40, 256, 256, 0.01, 0.3),  # two visits each: half of them overlaps
        ([700, 800, 900, 1_000, 1_100] * 8, 500, 500, 0.01, 0.35),
        ([3_000, 9_000, 27_000, 100], 500, 500, 0.01, 0.1),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_tour_reads_every_character(folder, sizes, passage, window, unread, over, seed):
    """Once, but for what overlaps. Drawn anew, visits would leave 37 of 100 characters unread."""
    root = folder({f"{number}.txt": size for number, size in enumerate(sizes)})
    read = toured(root, passage, window, seed, sum(sizes) * (1 + over))
    counts = np.concatenate(list(read.values()))
    assert (counts == 0).mean() <= unread
    assert counts.max() <= 3


def test_a_tour_goes_on_while_files_grow(folder):
    root = folder({"a.txt": 50_000})
    text, read, chars = (root / "a.txt").read_bytes(), set(), 0
    reader = LaneReader(whole(root), 500, 0)
    for visit in range(110):
        if visit % 20 == 19:
            with (root / "a.txt").open("a") as file:
                file.write("later " * 100)
            reader.replace_corpus(whole(root))
        step = reader.next_window(500, 500, chars)
        chars += step.new_chars
        if (place := text.find(decode(step.ids))) >= 0:
            read.update(range(place, place + len(step.ids)))
    assert len(read) > 0.9 * len(text)


def test_a_tour_of_a_lane_that_is_another_one_by_now_begins_anew(folder):
    root = folder({"a.txt": 5_000})
    reader = LaneReader(whole(root), 500, 0)
    take(reader, 4, 500, 500)
    folder({"b.txt": 50_000})
    reader.replace_corpus(whole(root))
    assert len({step.path.name for step in take(reader, 120, 500, 500, 2_000)}) == 2
    assert {tour[2] for tour in reader.state()["tours"].values()} == {112}


def test_what_a_lane_gives_after_a_whole_tour_was_read_before(folder):
    root = folder({"a.txt": 5_000})
    reader, chars, told, begins = LaneReader(whole(root), 500, 0), 0, [], []
    for visit in range(24):
        step = reader.next_window(500, 500, chars)
        chars += step.new_chars
        told.append(step.times)
        assert step.again == 0, "with a single lane every tour is a round"
        begins += [visit] * step.begins_round
        resumed = LaneReader(whole(root), 500, 0)
        resumed.restore(json.loads(json.dumps(reader.state())))
        reader = resumed
    assert told == [0] * 11 + [1] * 11 + [2] * 2
    assert begins == [11, 22]
    new = folder({"b.txt": 500}) / "b.txt"
    reader.replace_corpus(whole(root), first=[new])
    steps = take(reader, 2, 500, 500, chars)
    assert [(step.path.name, step.times) for step in steps] == [("b.txt", 0), ("a.txt", 2)]


def test_a_round_goes_through_every_lane(folder):
    """`a` takes ten visits and `b` one, so `b` is read again and again meanwhile."""
    root = folder({"a/a.txt": 5_000, "b/b.txt": 501})
    reader, chars, told = LaneReader(collect([root]), 500, 0), 0, []
    for _ in range(70):
        step = reader.next_window(500, 500, chars)
        chars += step.new_chars
        told.append(step)
        resumed = LaneReader(collect([root]), 500, 0)
        resumed.restore(json.loads(json.dumps(reader.state())))
        reader = resumed
    begins = [place for place, step in enumerate(told) if step.begins_round]
    assert len(begins) >= 2
    for first, end in itertools.pairwise([0, *begins]):
        seen = {name: [s.again for s in told[first:end] if s.subject == name] for name in "ab"}
        assert seen["a"] == [0] * len(seen["a"]) and len(seen["a"]) >= 10
        assert seen["b"] == sorted(seen["b"]) and seen["b"][0] == 0 and seen["b"][-1] >= 4


def test_a_lane_that_was_away_holds_up_no_round(folder):
    """Of what is not read the tours are forgotten, and with them how many came before the round."""
    root = folder({"a/a.txt": 2_000, "b/b.txt": 2_000})
    reader = LaneReader(collect([root]), 500, 0)
    take(reader, 60, 500, 500)
    alone = LaneReader(collect([root / "a"]), 500, 0)
    alone.restore(reader.state())
    take(alone, 1, 500, 500)
    for changes in ({}, {"round": {"a": 1 << 53, "b": 1 << 53}}):
        again = LaneReader(collect([root]), 500, 0)
        again.restore(json.loads(json.dumps(alone.state() | changes)))
        told = take(again, 24, 500, 500)
        assert any(step.begins_round for step in told)


def test_a_tour_is_soon_everywhere(folder):
    root = folder({"a.txt": 50_000})
    text = (root / "a.txt").read_bytes()
    for seed in range(5):
        steps = take(LaneReader(whole(root), 500, seed), 10, 500, 500)
        assert len({text.index(decode(step.ids)) // 5_000 for step in steps}) >= 7


def test_two_tours_cut_the_text_elsewhere_and_go_another_way(folder):
    root = folder({"a.txt": 50_000})
    text = (root / "a.txt").read_bytes()
    places = [text.index(decode(step.ids)) for step in take(LaneReader(whole(root), 500, 0), 200, 500, 500)]
    assert places[1] % 500 != places[101] % 500
    assert [place // 500 for place in places[:100]] != [place // 500 for place in places[100:]]


def test_seeds_and_characters_read_change_the_text(corpus):
    first = take(LaneReader(corpus, 512, 0), 5, 64, 64)
    assert same(first, take(LaneReader(corpus, 512, 0), 5, 64, 64))
    assert not same(first, take(LaneReader(corpus, 512, 1), 5, 64, 64))
    assert not same(first, take(LaneReader(corpus, 512, 0), 5, 64, 64, chars=1_000_000))


@few
@given(shapes, st.integers(0, 40))
def test_a_restored_reader_gives_exactly_what_the_original_would(corpus, shape, steps):
    window, chunk, passage, seed = shape
    original = LaneReader(corpus, passage, seed)
    chars = sum(step.new_chars for step in take(original, steps, window, chunk))
    state = json.loads(json.dumps(original.state()))
    other = LaneReader(corpus, passage, seed)
    other.restore(state)
    assert same(take(original, 30, window, chunk, chars), take(other, 30, window, chunk, chars))


def test_taking_the_state_changes_nothing(corpus):
    one, two = LaneReader(corpus, 512, 0), LaneReader(corpus, 512, 0)
    take(one, 3, 64, 64)
    take(two, 3, 64, 64)
    one.state()
    assert same(take(one, 20, 64, 64, 192), take(two, 20, 64, 64, 192))


@pytest.mark.parametrize(
    "state",
    [
        {"tours": 3}, {"tours": {"book": 3, "poems": [1, 2, 3], "notes": [0.5] * 5}},
        {"tours": {"book": [0, 9, -1, 5, 0], "poems": [0, 9, True, 0, 0], "notes": [7, 9, 10**30, 9, 0]}},
        {"tours": {"book": [0, 0, 4, 1, 0], "poems": [0, 4, 0, 0, 0]}}, {"round": 4},
        {"round": {"book": -1, "poems": "x", "notes": True}},
        {"visit": {"lane": "book", "path": "x", "start": 1e999, "stop": 50, "cursor": 9}},
        {}, {"turn": 5}, {"turn": "nobody", "first": None, "visit": None}, {"first": 7}, {"visit": []},
        {"first": [None, [], "x"]} , {"visit": {"lane": "book"}}, {"visit": {"lane": [], "path": 1}},
        {"visit": {"lane": "book", "path": "/etc/passwd", "start": 0, "stop": 50, "cursor": 9}},
        {"visit": {"lane": "book", "path": "a\0", "start": 0, "stop": 50, "cursor": 9}},
        {"visit": {"lane": "book", "path": "x", "start": "a", "stop": 50, "cursor": 9, "more": 1}},
    ],
)  # fmt: skip
def test_a_state_that_makes_no_sense_is_left_out(corpus, state):
    reader = LaneReader(corpus, 512, 0)
    reader.restore(state)
    assert same(take(reader, 9, 64, 64), take(LaneReader(corpus, 512, 0), 9, 64, 64))


@pytest.mark.parametrize("cursor", [-1, 0, 10**9, "x", None])
def test_a_cursor_out_of_range_is_left_out(corpus, cursor):
    reader = LaneReader(corpus, 512, 0)
    take(reader, 1, 64, 64)
    state = reader.state()
    state["visit"]["cursor"] = cursor
    reader.restore(state)
    assert reader.state()["visit"] is None


def test_a_visit_to_text_that_is_held_out_by_now_is_left_out(folder):
    root = folder({"a.txt": 5_000})
    reader = LaneReader(whole(root), 5_000, 0)
    take(reader, 2, 64, 64)
    other = LaneReader(collect([root]), 5_000, 0)
    other.restore(reader.state())
    assert other.state()["visit"] is None


# ------------------------------------------------------------------------------------ files that go away


def drain(reader: LaneReader, steps: int, chars: int = 0) -> set[Path]:
    return {step.path for step in take(reader, steps, 64, 64, chars)}


def whole(root: Path) -> Corpus:
    """Every file of a folder as one subject, nothing held out."""
    files = tuple(TextSpan(path, 0, path.stat().st_size) for path in sorted(root.iterdir()))
    return Corpus((Subject(root.name, root, files, ()),))


def test_files_that_vanish_or_shrink_leave_their_lane_and_are_told_once(folder):
    root = folder({"long.txt": 9_000, "short.txt": 300, "other.txt": 900})
    reader = LaneReader(whole(root), 512, 0)
    (root / "long.txt").unlink()
    (root / "short.txt").write_text("shrunk")
    assert drain(reader, 100) == {root / "other.txt"}
    told = reader.take_dropped()
    assert sorted(said.split("/")[-1] for said in told) == ["long.txt vanished.", "short.txt became shorter."]
    assert reader.take_dropped() == []


def test_a_visit_goes_on_when_its_file_vanishes(folder):
    root = folder({"a.txt": 5_000})
    reader = LaneReader(collect([root]), 1_000, 0)
    first = take(reader, 2, 64, 64)
    (root / "a.txt").unlink()
    assert take(reader, 3, 64, 64, 128)[0].path == first[0].path


def test_when_nothing_is_left_the_run_is_told_in_words(folder):
    root = folder({f"{i}.txt": 500 for i in range(5)})
    reader = LaneReader(collect([root]), 200, 0)
    for path in root.iterdir():
        path.unlink()
    with pytest.raises(MinagiError, match="Nothing is left to read"):
        take(reader, 9, 64, 64)
    assert len(reader.take_dropped()) >= 4


def test_a_corpus_with_nothing_to_train_on(folder):
    with pytest.raises(MinagiError, match="Nothing is left to read"):
        LaneReader(Corpus(()), 200, 0).next_window(64, 64, 0)


# ------------------------------------------------------------------------------------------ new text


def test_changed_files_are_visited_first_and_read_to_their_end(folder):
    root = folder({f"{i}.txt": 3_000 for i in range(30)})
    reader = LaneReader(collect([root]), 500, 0)
    take(reader, 3, 64, 64)
    new = folder({"news/today.txt": 4_000}) / "news" / "today.txt"
    reader.replace_corpus(collect([root]), first=[new, root / "absent.txt"])
    steps = take(reader, 60, 64, 64, 192)
    paths = list(dict.fromkeys(step.path for step in steps))
    assert paths[1] == new, "the visit under way is finished, then the new file's turn has come"
    behind = itertools.dropwhile(lambda step: step.path != new, steps)
    visit = b"".join(decode(step.ids)[-step.new_chars :] for step in itertools.islice(behind, 8))
    assert new.read_bytes().endswith(visit) and len(visit) == 500


def test_the_queue_of_changed_files_survives_a_restore(folder):
    root = folder({f"{i}.txt": 3_000 for i in range(30)})
    corpus = collect([root])
    trained = [span.path for span in corpus.subjects[0].train]
    one, two = LaneReader(corpus, 500, 0), LaneReader(corpus, 500, 0)
    one.replace_corpus(corpus, first=trained[:3])
    two.restore(json.loads(json.dumps(one.state())))
    steps = take(one, 40, 64, 64)
    assert same(steps, take(two, 40, 64, 64))
    assert list(dict.fromkeys(step.path for step in steps))[:3] == trained[:3]


def test_replacing_the_corpus_keeps_the_turn(corpus):
    reader = LaneReader(corpus, 64, 0)
    seen = [step.subject for step in take(reader, 1, 64, 64)]
    reader.replace_corpus(corpus)
    seen += [step.subject for step in take(reader, 2, 64, 64, 64)]
    assert seen == ["notes", "book", "poems"]


def test_a_window_costs_far_under_a_millisecond(folder):
    reader = LaneReader(collect([folder({"a.txt": 500_000})]), 32_768, 0)
    take(reader, 10, 1_024, 256)
    start = time.process_time()
    take(reader, 1_000, 1_024, 256, 10_000)
    assert time.process_time() - start < 0.3
