"""Asking, voting and choosing, where the oracle does not go: drawn experts, ties, votes, broken numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from tiny import Tiny, case_of, make

from minagi.model.loss import training_loss
from minagi.model.reading import read
from minagi.model.routing import Forward

DRAWS = 500


def probabilities(tiny: Tiny, token: int) -> torch.Tensor:
    """The only character's softmax over the whole pool in its first row, [E]."""
    ids = torch.tensor([token])
    captured = {}

    def keep(module: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        captured.setdefault("f", inputs[0].detach() + module.depth_emb.detach())

    handle = tiny.net.recur[0].mlp.register_forward_hook(keep)  # type: ignore[union-attr]
    read(tiny.net, ids, tiny.forward(), cached=False)
    handle.remove()
    weight = tiny.net.recur[0].mlp.router.weight.detach()  # type: ignore[union-attr]
    return torch.softmax(captured["f"] @ weight.t(), -1)[0]


def drawn_sets(p: np.ndarray, k: int) -> dict[tuple[int, ...], float]:
    """Chance of each set of k experts drawn one after the other, without putting back, as p."""
    chances: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(p)), k):
        left, chance = 1.0, 1.0
        for e in order:
            chance *= p[e] / left
            left -= p[e]
        key = tuple(sorted(order))
        chances[key] = chances.get(key, 0.0) + chance
    return chances


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_admissions_are_drawn_in_proportion(temperature: float) -> None:
    """K experts drawn from the text's tally as tally^(1/T), without replacement."""
    case = case_of(seed=8, experts=4, resident=2, top_k=2, characters=1, max_steps=1, temperature=temperature)
    tiny = make(case)
    p = probabilities(tiny, case.ids[0]).double().numpy() ** (1 / temperature)
    expected = drawn_sets(p / p.sum(), 2)
    generator = torch.Generator().manual_seed(1)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(DRAWS):
        forward = Forward(tiny.pool, tiny.net.new_text(), case.routing, generator=generator)
        read(tiny.net, torch.tensor(case.ids[:1]), forward, cached=False)
        key = tuple(sorted(forward.admitted))
        counts[key] = counts.get(key, 0) + 1
    for key, chance in expected.items():
        spread = math.sqrt(chance * (1 - chance) / DRAWS)
        assert abs(counts.get(key, 0) / DRAWS - chance) < 5 * spread + 1e-3, key


def test_each_character_draws_its_own_and_weighs_by_its_probability() -> None:
    case = case_of(seed=8, experts=3, resident=3, top_k=1, characters=1, max_steps=1, temperature=1.0)
    tiny = make(case)
    tiny.net.pool.gate.data.fill_(1)
    p = probabilities(tiny, case.ids[0]).double().numpy()
    generator = torch.Generator().manual_seed(2)
    forward = Forward(tiny.pool, tiny.net.new_text(), case.routing, generator=generator, trace_rows=1)
    forward.admit([0, 1, 2])
    many = torch.from_numpy(np.log(p)).float().expand(4000, 3)
    chosen, weights = tiny.net.recur[0].mlp._choose(many, forward)  # type: ignore[union-attr]
    np.testing.assert_allclose(np.bincount(chosen[:, 0], minlength=3) / 4000, p, atol=0.04)
    assert bool((weights == 1).all())  # one expert each: its weight is renormalised


def test_drawn_experts_fill_the_card_row_by_row() -> None:
    case = case_of(seed=2, experts=6, resident=5, top_k=2, characters=4, max_steps=4, temperature=1.0,
                   halt_thresh=0.999)  # fmt: skip
    tiny = make(case)
    forward = Forward(
        tiny.pool, tiny.net.new_text(), case.routing, generator=torch.Generator().manual_seed(0)
    )
    read(tiny.net, torch.tensor(case.ids), forward, cached=False)
    assert len(forward.admitted) == len(set(forward.admitted)) == 5


def test_the_tally_of_a_text_goes_on_through_its_cache() -> None:
    case = case_of(seed=2, experts=6, resident=2, top_k=2, temperature=1.0)
    tiny = make(case)
    text = tiny.net.new_text()
    for part in (case.ids[:3], case.ids[3:]):
        read(tiny.net, torch.tensor(part), tiny.forward(text=text))
    assert text.tally is not None
    assert float(text.tally[0].sum()) == pytest.approx(len(case.ids), rel=1e-5)


def test_the_same_seed_draws_the_same() -> None:
    case = case_of(seed=2, experts=6, resident=3, top_k=2, temperature=1.0)
    losses = []
    for _ in range(2):
        tiny = make(case)
        ids = torch.tensor(case.ids)
        forward = Forward(
            tiny.pool,
            tiny.net.new_text(),
            case.routing,
            training=True,
            generator=torch.Generator().manual_seed(3),
        )
        losses.append(float(training_loss(tiny.net, ids[:-1], ids[1:], forward, 4, 0.01).total.detach()))
    assert losses[0] == losses[1]


def test_ties_go_to_the_lower_place() -> None:
    case = case_of(seed=1, experts=5, resident=2, top_k=5)
    tiny = make(case)
    tiny.net.recur[0].mlp.router.weight.data.fill_(0.5)  # type: ignore[union-attr]
    forward = tiny.forward()
    read(tiny.net, torch.tensor(case.ids), forward)
    assert sorted(forward.admitted) == [0, 1]


def test_admission_does_not_look_at_the_card() -> None:
    """The same text is admitted the same experts, whatever was read before it."""
    case = case_of(seed=3, experts=6, resident=2, top_k=2)
    tiny = make(case)
    first = tiny.forward()
    read(tiny.net, torch.tensor(case.ids), first)
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        read(tiny.net, torch.randint(0, 265, (5,), generator=generator), tiny.forward())
        again = tiny.forward()
        read(tiny.net, torch.tensor(case.ids), again)
        assert again.admitted == first.admitted


def test_a_reply_keeps_voting_and_a_new_text_begins_empty() -> None:
    case = case_of(seed=3, experts=6, resident=2, top_k=2, characters=8)
    tiny = make(case)
    text = tiny.net.new_text()
    sums = []
    for one in case.ids:
        read(tiny.net, torch.tensor([one]), tiny.forward(text=text))
        sums.append(float(text.vote.sum()))
    assert all(a < b for a, b in itertools.pairwise(sums))
    assert tiny.net.new_text().vote is None


def test_dropped_requests_are_the_later_ones() -> None:
    case = case_of(seed=3, experts=2, resident=2, top_k=2, characters=6, capacity=0.5)
    tiny = make(case)
    forward = tiny.forward(training=True)
    ids = torch.tensor(case.ids)
    training_loss(tiny.net, ids[:-1], ids[1:], forward, 1, 0.01)
    assert (forward.routed, forward.dropped) == (12, 6)  # an expert serves ceil(0.5 · 6 · 2 / 2) = 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("freeze", [True, False])
def test_numbers_that_are_not_finite_show_in_the_loss(freeze: bool, temperature: float) -> None:
    """A forward over broken weights ends and says so; it neither fails nor hides it."""
    case = case_of(seed=3, freeze=freeze, temperature=temperature)
    tiny = make(case)
    tiny.net.prelude[0].ln1.weight.data.fill_(math.nan)
    ids = torch.tensor(case.ids)
    loss = training_loss(tiny.net, ids[:-1], ids[1:], tiny.forward(training=True), 4, 0.01)
    assert math.isnan(float(loss.total.detach()))
    loss.total.backward()
    reading = read(tiny.net, ids, tiny.forward())
    assert reading.logits.shape == (len(ids), 265) and bool(reading.logits.isnan().all())
    assert reading.rows.tolist() == [4] * len(ids)


def test_the_loads_first_choice_is_the_one_drawn() -> None:
    case = case_of(seed=3, experts=3, resident=3, top_k=2, temperature=50.0)  # nearly a fair draw
    tiny = make(case)
    firsts = set()
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        forward = Forward(tiny.pool, tiny.net.new_text(), case.routing, training=True, generator=generator)
        ids = torch.tensor(case.ids)
        training_loss(tiny.net, ids[:-1], ids[1:], forward, 1, 0.01)
        assert forward.load_first is not None
        firsts.add(tuple(forward.load_first.tolist()))
    assert len(firsts) > 1
