"""n-gram embeddings by themselves. (Their part in a forward is held against the oracle.)"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import case_of, make

from minagi.model import ngram, words
from minagi.model.loss import training_loss
from minagi.model.ngram import NgramEmbedding
from minagi.training.optimiser import Optimiser

symbols = st.lists(st.integers(0, 264), min_size=1, max_size=12)
prose = st.text("abAB' \n\x80é.", min_size=1, max_size=120).map(lambda text: list(text.encode("latin-1")))


def filled(longest: int = 4, rows: int = 50, d: int = 3, word_rows: int = 0) -> NgramEmbedding:
    table = NgramEmbedding(longest, rows, d, word_rows)
    table.weight.copy_(torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(0)))
    return table


def met(table: NgramEmbedding, ids: list[int], grad: float = 1.0) -> None:
    """A backward pass that hands `grad` to every row that ids [T] choose."""
    x = torch.zeros(len(ids), table.weight.shape[1], requires_grad=True)
    table(x, torch.tensor(ids), torch.empty(0, dtype=torch.long)).backward(torch.full_like(x, grad))


@given(symbols | prose, st.integers(2, 9), st.integers(1, 1000), st.sampled_from((0, 1, 1000)))
def test_one_character_at_a_time_gets_the_same_rows(
    ids: list[int], longest: int, rows: int, word_rows: int
) -> None:
    table = filled(longest, rows, word_rows=word_rows)
    together = table(torch.zeros(len(ids), 3), torch.tensor(ids), torch.empty(0, dtype=torch.long))
    for end in range(1, len(ids) + 1):
        alone = torch.from_numpy(table.row(ids[:end]))
        torch.testing.assert_close(alone, together[end - 1])


@given(symbols | prose, st.integers(0, 119), st.sampled_from((0, 1000)))
def test_a_text_read_in_parts_gets_the_same_rows(ids: list[int], cut: int, word_rows: int) -> None:
    """Of what went before, a text keeps no more than `reach` characters."""
    table, whole = filled(word_rows=word_rows), torch.tensor(ids)
    expected = table.places(whole, whole[:0])
    before = whole[:cut][-table.reach :]
    assert torch.equal(table.places(whole[cut:], before), expected[:, cut:])


def words_of(text: str) -> tuple[int, int]:
    """Hashes of the word that `text` ends in, and of that with the one before."""
    return words.last_hashes([symbol + 1 for symbol in text.encode("latin-1")])


def test_a_word_is_the_same_wherever_it_stands() -> None:
    assert words_of("the King")[0] == words_of("\n  a KING")[0] == words_of("king")[0]
    assert words_of("king")[0] != words_of("kind")[0] != words_of("kin")[0]
    assert words_of("the king")[1] == words_of("of the, -- King")[1] != words_of("a king")[1]
    assert words_of("king ")[0] == words_of("KING ")[0] != words_of("king,")[0]
    assert words_of("the king ")[1] == words_of("to the\nking ")[1] != words_of("a king ")[1]


def test_of_a_word_only_its_end_counts_and_what_ended_long_ago_is_no_word_before() -> None:
    assert words_of("a" * 40 + "b" * 16)[0] == words_of("c" * 40 + "b" * 16)[0]
    assert words_of("a" + "b" * 16)[0] != words_of("ab" + "c" * 15)[0]
    near, far = words.NEAR - 1, words.NEAR
    assert words_of("one" + " " * near + "x")[1] != words_of("two" + " " * near + "x")[1]
    assert words_of("one" + " " * far + "x")[1] == words_of("two" + " " * far + "x")[1] == words_of("x")[1]


def test_markers_and_signs_stand_between_words() -> None:
    marker = torch.tensor([*b"a", 256, *b"b"])
    assert torch.equal(words.hashes(marker + 1, 1)[:, 0], torch.tensor(words_of("a b")))


def test_words_have_rows_behind_those_of_ngrams() -> None:
    table = filled(longest=3, rows=10, word_rows=100)
    assert table.weight.shape[0] == 2 * 10 + 2 * 100
    text = torch.tensor(list(b"what begins a word depends on the word before it, what ends it on itself"))
    places = table.places(text, text[:0])
    for kind, (low, high) in enumerate([(0, 10), (10, 20), (20, 120), (120, 220)]):
        assert int(places[kind].min()) >= low and int(places[kind].max()) < high
    assert len(places[2].unique()) > 30 and len(places[3].unique()) > 40


def test_rows_lie_in_the_table_of_their_length() -> None:
    table = filled(longest=5, rows=7)
    places = table.places(torch.arange(265), torch.empty(0, dtype=torch.long))
    for length, found in enumerate(places):
        assert found.min() >= length * 7 and found.max() < (length + 1) * 7
        assert len(found.unique()) == 7  # spread over all of it


def test_different_pairs_rarely_share_a_row() -> None:
    """All 256 × 256 pairs over as many rows: about a share of 1/e of the rows stays empty for random ones."""
    table = NgramEmbedding(2, 1 << 16, 1)
    text = torch.stack((torch.arange(256).repeat_interleave(256), torch.arange(256).repeat(256)), 1).flatten()
    places = table.places(text, text[:0])[0][1::2]
    assert len(places.unique()) > 0.6 * (1 << 16)


def test_only_rows_that_were_met_move_and_often_met_ones_move_less() -> None:
    table = filled(longest=2, rows=1 << 12)
    before = table.weight.clone()
    first = table.places(torch.tensor([1, 2]), torch.empty(0, dtype=torch.long)).flatten()
    met(table, [1, 2])
    table.step(0.1, 1.0)
    moved = (table.weight - before).abs().sum(1)
    assert moved.nonzero().flatten().tolist() == sorted(first.tolist())
    torch.testing.assert_close(before[first] - table.weight[first], torch.full((2, 3), 0.1))
    again = table.weight.clone()
    met(table, [1, 2])
    table.step(0.1, 1.0)
    torch.testing.assert_close(
        again[first] - table.weight[first], torch.full((2, 3), 0.1 / 2**0.5), rtol=1e-4, atol=0
    )


def test_rows_that_were_met_for_years_still_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same gradient every time: after many meetings a step is rate / √MEMORY, and stays so."""
    monkeypatch.setattr(ngram, "MEMORY", 16)
    table = filled(longest=2, rows=1 << 12)
    for _ in range(300):
        met(table, [1, 2])
        before = table.weight.clone()
        table.step(0.1, 1.0)
    assert float((before - table.weight).max()) == pytest.approx(0.1 / 4, rel=1e-3)


def test_passes_add_up_and_clipping_divides_them() -> None:
    one, two = filled(), filled()
    met(one, [5, 6, 5, 6], 2.0)
    met(two, [5, 6, 5, 6], 1.0)
    assert two.gradient() is not None  # summed up in between: the norm asks for it
    met(two, [5, 6, 5, 6], 1.0)
    mine, theirs = one.gradient(), two.gradient()
    assert mine is not None and theirs is not None
    assert torch.equal(mine.places, theirs.places) and torch.equal(mine.grad, theirs.grad)
    one.step(0.1, 4.0)
    two.step(0.1, 1.0)
    torch.testing.assert_close(one.squares * 16, two.squares)


def test_many_passes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram, "WAITING_ROWS_MAX", 20)
    table, plain = filled(), filled()
    for _ in range(9):
        met(table, [5, 6, 5, 6])
        assert sum(len(rows.places) for rows in table._met) <= 20
    met(plain, [5, 6, 5, 6], 9.0)
    mine, theirs = table.gradient(), plain.gradient()
    assert mine is not None and theirs is not None and torch.equal(mine.places, theirs.places)
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_the_smallest_share_drops_next_to_nothing() -> None:
    table = filled()
    table.drop = 1e-19
    kept = table.kept(torch.arange(200), torch.Generator().manual_seed(0))
    assert kept is not None and bool(kept.all())


def test_a_gradient_given_up_is_forgotten() -> None:
    tiny = make(case_of(ngram=3, experts=2, resident=2))
    assert tiny.net.ngram is not None
    optimiser = Optimiser(tiny.net, tiny.pool, 0.95, 0.0, 1.0, ngram_lr_mult=1.0)
    ids = torch.tensor(tiny.case.ids)
    training_loss(tiny.net, ids[:-1], ids[1:], tiny.forward(training=True), 2, 0.01).total.backward()
    assert tiny.net.ngram.gradient() is not None
    optimiser.skip()
    assert tiny.net.ngram.gradient() is None


def test_the_norm_counts_the_rows() -> None:
    tiny = make(case_of(ngram=3, experts=2, resident=2))
    optimiser = Optimiser(tiny.net, tiny.pool, 0.95, 0.0, 1.0)
    ids = torch.tensor(tiny.case.ids)
    training_loss(tiny.net, ids[:-1], ids[1:], tiny.forward(training=True), 2, 0.01).total.backward()
    assert tiny.net.ngram is not None and (rows := tiny.net.ngram.gradient()) is not None
    whole = optimiser.norm()
    tiny.net.ngram.forget()
    assert whole**2 == pytest.approx(optimiser.norm() ** 2 + float(rows.grad.norm()) ** 2, rel=1e-5)


def test_dropping_leaves_out_the_longest_first_and_hands_them_no_gradient() -> None:
    table = filled(longest=4, rows=1 << 10)
    table.drop = 0.5
    ids = torch.randint(0, 256, (4000,), generator=torch.Generator().manual_seed(1))
    kept = table.kept(ids, torch.Generator().manual_seed(2))
    assert kept is not None
    lengths = kept.sum(0)
    assert torch.equal(kept, torch.arange(3)[:, None] < lengths)  # never a long one without the shorter
    shares = torch.bincount(lengths, minlength=4) / len(ids)
    torch.testing.assert_close(shares, torch.tensor([1 / 6, 1 / 6, 1 / 6, 1 / 2]), atol=0.03, rtol=0)
    x = torch.zeros(len(ids), 3, requires_grad=True)
    out = table(x, ids, ids[:0], torch.Generator().manual_seed(2))
    places = table.places(ids, ids[:0])
    expected = (table.weight[places] * kept[..., None]).sum(0)
    torch.testing.assert_close(out.detach(), expected)
    out.sum().backward()
    rows = table.gradient()
    assert rows is not None and x.grad is not None and bool((x.grad == 1).all())
    met = torch.zeros(table.weight.shape[0]).index_add_(0, places[kept], torch.ones(int(kept.sum())))
    assert torch.equal(rows.places, met.nonzero().flatten())
    torch.testing.assert_close(rows.grad[:, 0], met[met > 0])


def test_reading_drops_nothing() -> None:
    table = filled()
    ids = torch.arange(50)
    whole = table(torch.zeros(50, 3), ids, ids[:0])
    table.drop = 1.0
    assert torch.equal(table(torch.zeros(50, 3), ids, ids[:0]), whole)


def test_young_rows_are_trained_with_and_the_others_read_with_until_they_take_over() -> None:
    """They begin with what is known of pairs and triples (100 rows), and know nothing of longer n-grams."""
    table, ids = filled(), torch.tensor([5, 6, 5, 6])
    table.squares.fill_(3.0)
    old, nothing = table.weight.clone(), torch.zeros(4, 3)
    read = table(nothing, ids, ids[:0])
    short = old[table.places(ids, ids[:0])[:2].flatten()].view(2, 4, 3).sum(0)
    table.begin_anew()
    torch.testing.assert_close(table(nothing.requires_grad_(), ids, ids[:0]), short)
    met(table, ids.tolist())
    table.step(0.1, 1.0)
    with torch.no_grad():
        assert torch.equal(table(nothing, ids, ids[:0]), read)
        assert torch.equal(torch.from_numpy(table.row([5, 6, 5, 6])), read[3])
    assert torch.equal(table.weight, old) and bool((table.squares == 3).all())
    young, squares = table.learning
    assert young is table.young and bool((young[table.places(ids, ids[:0])[2]] < 0).all())
    table.begin_anew()  # those that were young are read with now
    assert torch.equal(table.weight, young) and torch.equal(table.squares, squares)
    assert table.young is not None and table.young_squares is not None
    assert torch.equal(table.young[:100], young[:100]) and not bool(table.young[100:].any())
    assert torch.equal(table.young_squares[:100], squares[:100]) and not bool(table.young_squares[100:].any())
    table.have_young(False)
    assert list(table.state_dict()) == ["weight", "squares"]


def test_tables_of_pairs_and_words_begin_anew_but_for_the_pairs() -> None:
    table = filled(longest=2, word_rows=7)
    table.begin_anew()
    assert table.young is not None
    assert torch.equal(table.young[:50], table.weight[:50]) and not bool(table.young[50:].any())


def test_a_step_without_a_gradient_changes_nothing() -> None:
    table = filled()
    before = table.weight.clone()
    table.step(0.1, 1.0)
    assert torch.equal(table.weight, before)
