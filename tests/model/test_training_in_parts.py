"""Training on a text part by part: the past is carried and detached, the rest equals one reading."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracle import loss as oracle_loss
from test_against_oracle import AUX, CLOSE, check_gradients, repeatable, same
from tiny import Case, Tiny, case_of, cases, make

from minagi.model.loss import Loss, training_loss
from minagi.model.routing import Forward
from minagi.training.evaluate import Evaluator
from minagi.training.optimiser import Optimiser


def parts_of(case: Case, cuts: list[int]) -> list[slice]:
    length = len(case.ids) - 1
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < length}), length]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def read_part(tiny: Tiny, text: object, part: slice) -> tuple[Loss, Forward]:
    ids = torch.tensor(tiny.case.ids)
    forward = tiny.forward(training=True, text=text)
    loss = training_loss(tiny.net, ids[:-1][part], ids[1:][part], forward, tiny.case.rows, AUX, cached=True)
    return loss, forward


def check_parts(case: Case, cuts: list[int]) -> bool:
    """Loss, every gradient and the admissions of each part; False where a decision was too close."""
    tiny = make(case)
    optimiser = Optimiser(tiny.net, tiny.pool, beta2=0.95, weight_decay=0.0, clip=1.0)
    text, oracle_text = tiny.net.new_text(1), tiny.oracle.new_text()
    for part in parts_of(case, cuts):
        share = torch.from_numpy(tiny.pool.telemetry.share())
        inputs, targets = case.ids[:-1][part], case.ids[1:][part]
        expected, done = oracle_loss(tiny.oracle, inputs, targets, case.rows, AUX, share, oracle_text)
        if done.margin < CLOSE:
            return False
        loss, forward = read_part(tiny, text, part)
        loss.total.backward()
        assert sorted(forward.admitted) == sorted(done.admitted)
        assert text.position == part.stop
        same(loss.total, expected.total, "loss")
        same(loss.nats, expected.nats, "nats a character")
        same(text.vote, oracle_text.vote, "the text's vote")
        check_gradients(tiny, expected.total, forward)
        optimiser.skip()
        for weight in (
            *tiny.oracle.parameters.values(),
            *(w for e in tiny.oracle.experts for w in e.values()),
        ):
            weight.grad = None
    return True


@repeatable
@given(cases(characters=(2, 9)), st.lists(st.integers(1, 8), min_size=1, max_size=3))
def test_any_parts_equal_the_oracles(case: Case, cuts: list[int]) -> None:
    assume(check_parts(case, cuts))


@pytest.mark.parametrize("bptt", [1, 2, 4])
@pytest.mark.parametrize("thresh", [1e-3, 0.3, 0.6])
def test_truncated_parts_after_characters_halted(thresh: float, bptt: int) -> None:
    found = [case_of(seed=s, max_steps=4, bptt=bptt, halt_thresh=thresh, characters=7) for s in range(4)]
    assert sum(check_parts(case, [2, 5]) for case in found) >= 3


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_the_losses_are_those_of_one_whole_forward(freeze: bool, rows: int) -> None:
    """Every expert admitted from the first part on: then nothing at all tells parts from one reading."""
    case = case_of(
        seed=5, characters=20, experts=3, resident=3, top_k=3, max_steps=4, rows=rows, freeze=freeze,
    )  # fmt: skip
    tiny = make(case)
    ids = torch.tensor(case.ids)
    whole = training_loss(tiny.net, ids[:-1], ids[1:], tiny.forward(training=True), rows, AUX)
    text = tiny.net.new_text(1)
    parts = [read_part(tiny, text, part)[0].nats for part in parts_of(case, [3, 4, 11])]
    same(torch.cat(parts), whole.nats, "nats a character", 1e-5)


def test_with_one_row_it_is_what_the_evaluator_measures() -> None:
    """Admission by a vote that goes on from part to part, with more experts than slots."""
    case = case_of(seed=7, characters=24, experts=6, resident=2, top_k=2, max_steps=1)
    tiny = make(case)
    text = tiny.net.new_text(1)
    trained = []
    for part in parts_of(case, [8, 16]):
        trained.append(read_part(tiny, text, part)[0].nats)
        tiny.pool.skip_step()
    measured = Evaluator(tiny.net, tiny.pool, case.routing).nats(np.array(case.ids), 8)
    same(torch.cat(trained), torch.from_numpy(measured), "nats a character", 1e-5)


def test_parts_of_one_step_add_up() -> None:
    case = case_of(seed=3, characters=12, experts=3, resident=3, top_k=2)
    added, apart = make(case), make(case)
    text = added.net.new_text(1)
    for part in parts_of(case, [5]):
        loss, forward = read_part(added, text, part)
        loss.total.backward()
    got = {name: p.grad.clone() for name, p in added.net.named_parameters()}
    experts = {key: grad.clone() for key, grad in added.expert_gradients(forward).items()}

    optimiser = Optimiser(apart.net, apart.pool, beta2=0.95, weight_decay=0.0, clip=1.0)
    sums: dict[object, torch.Tensor] = {}
    text = apart.net.new_text(1)
    for part in parts_of(case, [5]):
        loss, forward = read_part(apart, text, part)
        loss.total.backward()
        found = {
            **dict(apart.expert_gradients(forward)),
            **{n: p.grad for n, p in apart.net.named_parameters()},
        }
        for key, grad in found.items():
            sums[key] = sums.get(key, 0) + grad.clone()
        optimiser.skip()
    for key, grad in {**got, **experts}.items():
        same(grad, sums[key], f"gradient of {key}", 1e-5)


def test_texts_of_one_step_share_the_card() -> None:
    """What the first was admitted stays until the step; the second gets of its choice what fits."""
    case = case_of(seed=2, characters=9, experts=8, resident=2, top_k=2, max_steps=2)
    tiny = make(case)
    first = read_part(tiny, tiny.net.new_text(1), slice(0, 3))
    second = read_part(tiny, tiny.net.new_text(1), slice(5, 9))
    for loss, _ in (first, second):
        loss.total.backward()
    assert len(first[1].admitted) == 2
    assert set(second[1].admitted) <= set(first[1].admitted)
    assert tiny.pool.waiting() == sorted(first[1].admitted)
    assert set(tiny.pool.fitting([0, 1, 2, 3, 4, 5, 6, 7])) == set(first[1].admitted)
    optimiser = Optimiser(tiny.net, tiny.pool, beta2=0.95, weight_decay=0.0, clip=1.0)
    optimiser.step(0.1, 0.1, optimiser.norm())
    assert tiny.pool.waiting() == []
    assert tiny.pool.fitting([7, 1, 3]) == [7, 1]


def test_only_a_part_from_the_first_character_on_is_a_text() -> None:
    case = case_of(seed=4, characters=9)
    tiny = make(case)
    text = tiny.net.new_text(1)
    for part in parts_of(case, [3, 6]):
        read_part(tiny, text, part)
    assert tiny.pool.telemetry.segments == 1
    assert tiny.pool.telemetry.admits.max() == 3
