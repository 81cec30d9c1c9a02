"""Every fast path of the model equals the oracle's slow one, in values and in gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from oracle import OracleAdam
from oracle import loss as oracle_loss
from oracle import reading as oracle_reading
from tiny import Case, Tiny, case_of, cases, make

from minagi.model import attention
from minagi.model.loss import Loss, training_loss
from minagi.model.reading import read
from minagi.model.routing import Forward
from minagi.training.optimiser import Optimiser

CLOSE = 1e-5  # a decision that fell by less may fall otherwise in float32
AUX = 0.05

repeatable = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def same(
    got: torch.Tensor, expected: torch.Tensor, what: str, tolerance: float = 2e-4, floor: float = 1e-2
) -> None:
    """Equal within `tolerance` of the largest number there is, or of `floor`: what it was summed up from."""
    got, expected = got.detach().double(), expected.detach().double()
    assert got.shape == expected.shape, what
    largest = max(float(expected.abs().max()), floor) if expected.numel() else 1.0
    worst = float((got - expected).abs().max()) if expected.numel() else 0.0
    assert worst <= tolerance * largest, f"{what}: off by {worst:.2e} where the largest is {largest:.2e}"


def trained(tiny: Tiny) -> tuple[Loss, Forward]:
    """One training forward with its gradients."""
    case = tiny.case
    ids = torch.tensor(case.ids)
    forward = tiny.forward(training=True)
    loss = training_loss(tiny.net, ids[:-1], ids[1:], forward, case.rows, AUX)
    loss.total.backward()
    return loss, forward


def check_training(case: Case) -> bool:
    """Loss, its terms, every gradient and the admissions of one training forward.

    False where a decision was too close to be the same in float32 for certain: nothing was compared.
    """
    tiny = make(case)
    share = torch.from_numpy(tiny.pool.telemetry.share())
    expected, done = oracle_loss(tiny.oracle, case.ids[:-1], case.ids[1:], case.rows, AUX, share)
    if done.margin < CLOSE:
        return False
    loss, forward = trained(tiny)
    assert sorted(forward.admitted) == sorted(done.admitted)
    assert (forward.dropped, forward.routed) == (done.dropped, done.routed)
    same(loss.total, expected.total, "loss")
    same(loss.nats, expected.nats, "nats a character")
    for name in ("ce", "kl", "rows", "load", "balance"):
        same(getattr(loss, name), getattr(expected, name), name)
    check_gradients(tiny, expected.total, forward)
    return True


def ngram_gradient(tiny: Tiny) -> torch.Tensor:
    """What reached the n-gram rows, as a gradient of the whole table."""
    assert tiny.net.ngram is not None
    rows, whole = tiny.net.ngram.gradient(), torch.zeros_like(tiny.net.ngram.weight)
    return whole if rows is None else whole.index_copy(0, rows.places, rows.grad)


def check_gradients(tiny: Tiny, total: torch.Tensor, forward: Forward) -> None:
    total.backward()
    for name, parameter in tiny.net.named_parameters():
        want = tiny.oracle.parameters[name].grad
        got = ngram_gradient(tiny) if name == "ngram.weight" else parameter.grad
        zeros = torch.zeros_like(parameter)
        same(zeros if got is None else got, zeros if want is None else want, f"gradient of {name}")
    found = tiny.expert_gradients(forward)
    for (place, name), got in found.items():
        want = tiny.oracle.experts[place][name].grad
        same(got, torch.zeros_like(got) if want is None else want, f"gradient of expert {place}'s {name}")
    for place, weights in enumerate(tiny.oracle.experts):
        if place not in forward.admitted:
            assert all(w.grad is None for w in weights.values())


@repeatable
@given(cases(freeze=True))
def test_training_with_freeze(case: Case) -> None:
    assume(check_training(case))


@repeatable
@given(cases(freeze=False))
def test_training_with_every_row_whole(case: Case) -> None:
    assume(check_training(case))


@pytest.mark.parametrize("thresh", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("bptt", [1, 2, 3])
def test_truncation_after_characters_halted(thresh: float, bptt: int) -> None:
    """Halted early, detached later: the later terms reach the head and no longer h."""
    cases = [case_of(seed=s, max_steps=5, bptt=bptt, halt_thresh=thresh, characters=5) for s in range(4)]
    assert sum(check_training(case) for case in cases) >= 3


def test_truncation_when_every_character_has_halted_at_once() -> None:
    assert check_training(case_of(seed=3, max_steps=5, bptt=1, halt_thresh=1e-3, characters=4))


@pytest.mark.parametrize(
    "sizes",
    [
        {"experts": 6, "resident": 2, "top_k": 2},  # S < E
        {"experts": 4, "resident": 4, "top_k": 2},  # E = S
        {"experts": 3, "resident": 6, "top_k": 2},  # S > E
        {"experts": 6, "resident": 2, "top_k": 4},  # K > S
        {"experts": 3, "resident": 3, "top_k": 5},  # K > E
        {"experts": 1, "resident": 4, "top_k": 2},  # one expert left
        {"experts": 6, "resident": 6, "top_k": 1},  # later rows admit more
        {"experts": 5, "resident": 3, "top_k": 2, "capacity": 0.5},
        {"experts": 5, "resident": 5, "top_k": 2, "capacity": 0.1},  # one assignment an expert
        {"expert_depth": 2},
        {"expert_depth": 3, "capacity": 0.7},
        {"min_steps": 3},
        {"min_steps": 4},
        {"max_steps": 1},
        {"freeze": False},
        {"n_recur": 2, "n_coda": 1},
        {"n_recur": 3, "experts": 6, "resident": 6, "top_k": 1},
        {"characters": 1},
        {"characters": 20, "max_steps": 3},
        {"n_prelude": 0},
        {"ngram": 2},
        {"ngram": 4, "ngram_rows": 50, "characters": 9},
        {"ngram": 9, "ngram_rows": 1, "characters": 3},  # longer than the text, all in one row
        {"ngram": 3, "freeze": False},
        {"ngram": 2, "word_rows": 40, "characters": 9},
        {"ngram": 6, "word_rows": 1, "characters": 20, "max_steps": 2},
    ],
    ids=str,
)
def test_named_cases(sizes: dict[str, int]) -> None:
    assert any(check_training(case_of(seed=seed, **sizes)) for seed in (0, 1))  # type: ignore[arg-type]
    assert check_reading(case_of(seed=2, **sizes), [])  # type: ignore[arg-type]


def check_reading(case: Case, cuts: list[int]) -> bool:
    """Logits, rows and admissions of a text read through the caches in parts; False as above."""
    tiny = make(case)
    ids = list(case.ids)
    text, oracle_text = tiny.net.new_text(1), tiny.oracle.new_text()
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(ids)}), len(ids)]
    for start, stop in itertools.pairwise(edges):
        expected, rows, done = oracle_reading(tiny.oracle, oracle_text, ids[start:stop])
        if done.margin < CLOSE:
            return False
        forward = tiny.forward(text=text)
        got = read(tiny.net, torch.tensor(ids[start:stop]), forward)
        assert got.rows.tolist() == rows
        same(got.logits, expected, f"logits of {start}..{stop}")
        assert sorted(forward.admitted) == sorted(done.admitted)
        same(text.vote, oracle_text.vote, "the text's vote")
    assert text.position == len(ids)
    return True


@repeatable
@given(cases(characters=(1, 10)), st.lists(st.integers(1, 9), max_size=4))
def test_reading_in_parts_of_any_size(case: Case, cuts: list[int]) -> None:
    assume(check_reading(case, cuts))


def test_later_characters_go_deeper_than_all_before_them_did() -> None:
    """Rows that nobody reached yet have the carried keys of everyone before."""
    found = 0
    for seed in range(40):
        case = case_of(seed=seed, characters=3, max_steps=6, halt_thresh=0.35)
        model = make(case).oracle
        text = model.new_text()
        rows = [oracle_reading(model, text, [symbol])[1][0] for symbol in case.ids]
        if any(row > 1 + max(rows[:place], default=9) for place, row in enumerate(rows)):
            found += check_reading(case, [1, 2, 3])
        if found == 2:
            return
    raise AssertionError("no such text among these")


@settings(repeatable, max_examples=15)
@given(cases(characters=(1, 10)))
def test_reading_without_a_cache(case: Case) -> None:
    tiny = make(case)
    expected, rows, done = oracle_reading(tiny.oracle, tiny.oracle.new_text(), case.ids)
    assume(done.margin > CLOSE)
    got = read(tiny.net, torch.tensor(case.ids), tiny.forward(), cached=False)
    assert got.rows.tolist() == rows
    same(got.logits, expected, "logits")


@pytest.mark.parametrize(("block", "kept"), [(2, 1024), (2, 0), (5, 8), (256, 0)])
@pytest.mark.parametrize("freeze", [True, False])
def test_attention_in_blocks(monkeypatch: pytest.MonkeyPatch, block: int, kept: int, freeze: bool) -> None:
    """Several blocks of queries, and probabilities that are redone in the backward pass."""
    monkeypatch.setattr(attention, "QUERY_BLOCK", block)
    monkeypatch.setattr(attention, "KEEP_UP_TO", kept)
    cases = [case_of(seed=s, characters=18, max_steps=2, freeze=freeze) for s in range(3)]
    assert sum(check_training(case) for case in cases) >= 2
    assert check_reading(case_of(seed=4, characters=21, max_steps=2, freeze=freeze), [4, 5, 17])


@pytest.mark.parametrize("clip", [1.0, 1e-3])
@pytest.mark.parametrize("resident", [2, 4])
@pytest.mark.parametrize(("ngram", "anew"), [(0, False), (3, False), (5, True)])
@pytest.mark.parametrize("word_rows", [0, 11])
def test_optimiser_steps(clip: float, resident: int, ngram: int, anew: bool, word_rows: int) -> None:
    """Several steps running, the experts of each paged in and out between them; `anew`, n-gram rows of more
    than three characters begin at nothing, and those that reading uses stay."""
    case = case_of(
        seed=16,
        experts=5,
        resident=resident,
        top_k=2,
        max_steps=3,
        characters=5,
        ngram=ngram,
        word_rows=word_rows,
    )
    tiny = make(case, ram=1)
    table = tiny.net.ngram
    if anew:
        assert table is not None
        read_with = table.weight.clone()
        table.begin_anew()
        for name in ("ngram.weight", "ngram.squares"):
            tiny.oracle.parameters[name].detach()[2 * case.shape.ngram_rows :] = 0
    mult = 0.25 if anew else 4.0  # a first step is as long as the rate says: a long one blows rounding up
    optimiser = Optimiser(tiny.net, tiny.pool, 0.95, 0.3, clip, ngram_lr_mult=mult)
    adam = OracleAdam(beta2=0.95, decay=0.3, clip=clip, ngram_lr_mult=mult)
    generator = torch.Generator().manual_seed(5)
    admitted: set[int] = set()
    for _ in range(6):
        ids = torch.randint(0, 265, (6,), generator=generator)
        forward = tiny.forward(training=True)
        share = torch.from_numpy(tiny.pool.telemetry.share())
        loss = training_loss(tiny.net, ids[:-1], ids[1:], forward, case.rows, AUX)
        loss.total.backward()
        norm = optimiser.norm()
        optimiser.step(0.02, 0.005, norm)
        expected, done = oracle_loss(tiny.oracle, ids[:-1].tolist(), ids[1:].tolist(), case.rows, AUX, share)
        assert done.margin > CLOSE
        expected.total.backward()
        assert adam.step(tiny.oracle, done.admitted, 0.02, 0.005) == pytest.approx(norm, rel=1e-3)
        same(loss.total, expected.total, "loss", 1e-3)
        assert sorted(forward.admitted) == sorted(done.admitted)
        admitted |= set(done.admitted)
    assert len(admitted) > resident or resident >= case.experts - 1
    if anew:
        assert table is not None and torch.equal(table.weight, read_with)
        table.take_over()
    for name, parameter in tiny.net.stored().items():
        same(parameter, tiny.oracle.parameters[name], name, 2e-3)
        if name.startswith("ngram."):
            continue  # has no moments
        same(optimiser.state[name].m, adam.m[name], f"m of {name}", 2e-3, 1e-4)
        same(optimiser.state[name].v, adam.v[name], f"v of {name}", 2e-3, 1e-6)
    for place, weights in enumerate(tiny.oracle.experts):
        held = tiny.pool.record(place).weights
        for name, want in weights.items():
            same(torch.from_numpy(held[name]), want, f"expert {place}'s {name}", 2e-3)


@pytest.mark.parametrize("sizes", [{}, {"freeze": False}, {"expert_depth": 2, "capacity": 1.0}], ids=str)
def test_bf16_stays_near(sizes: dict[str, int]) -> None:
    """bf16 keeps 8 bits: the loss within 2 %, every gradient pointing the same way."""
    compared = 0
    for seed in range(6):
        case = case_of(seed=seed, d_model=16, width=8, characters=8, max_steps=3, **sizes)  # type: ignore[arg-type]
        tiny = make(case, torch.bfloat16)
        share = torch.from_numpy(tiny.pool.telemetry.share())
        expected, done = oracle_loss(tiny.oracle, case.ids[:-1], case.ids[1:], case.rows, AUX, share)
        if done.margin < 2e-3:  # rounding may turn such a decision
            continue
        compared += 1
        loss, _ = trained(tiny)
        same(loss.total, expected.total, "loss", 0.02)
        same(loss.nats, expected.nats, "nats a character", 0.03)
        expected.total.backward()
        for name, parameter in tiny.net.named_parameters():
            want = tiny.oracle.parameters[name].grad
            if want is not None and parameter.grad is not None and float(want.norm()) > 1e-3:
                likeness = torch.cosine_similarity(parameter.grad.double().flatten(), want.flatten(), 0)
                assert likeness > 0.98, name
    assert compared >= 2
