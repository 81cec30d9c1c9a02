"""AdamW over trunk and admitted experts. (Its arithmetic is held against the oracle in tests/model.)"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tiny import Tiny, case_of, make

from minagi.model.loss import training_loss
from minagi.training.optimiser import EXPERT_STEPS, Optimiser, in_pool_group


def trained(experts: int = 5, resident: int = 2) -> tuple[Tiny, Optimiser]:
    tiny = make(case_of(seed=6, experts=experts, resident=resident, max_steps=2))
    return tiny, Optimiser(tiny.net, tiny.pool, 0.95, 0.1, 1.0)


def backward(tiny: Tiny, seed: int = 0) -> list[int]:
    ids = torch.randint(0, 256, (6,), generator=torch.Generator().manual_seed(seed))
    forward = tiny.forward(training=True)
    training_loss(tiny.net, ids[:-1], ids[1:], forward, 2, 0.01).total.backward()
    return forward.admitted


def test_groups() -> None:
    tiny, _ = trained()
    pool = {name for name, _ in tiny.net.named_parameters() if in_pool_group(name)}
    assert pool == {"pool.gate", "recur.0.mlp.router.weight", "recur.0.mlp.depth_emb"}


def test_only_admitted_experts_are_stepped() -> None:
    tiny, optimiser = trained(experts=5, resident=3)
    for seed in range(4):
        before = {uid: tiny.pool.record(uid).weights for uid in range(5)}
        before = {uid: {name: w.copy() for name, w in weights.items()} for uid, weights in before.items()}
        admitted = backward(tiny, seed)
        optimiser.step(0.01, 0.01, optimiser.norm())
        for uid in range(5):
            same = all((tiny.pool.record(uid).weights[n] == w).all() for n, w in before[uid].items())
            assert same is (uid not in admitted), uid


def test_decay_touches_matrices_only() -> None:
    tiny, optimiser = trained()
    backward(tiny)
    for parameter in tiny.net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    tiny.pool.slots.settle_grad()
    before = {name: p.detach().clone() for name, p in tiny.net.named_parameters()}
    optimiser.step(0.01, 0.02, 0.0)
    for name, parameter in tiny.net.named_parameters():
        rate = (0.01 if in_pool_group(name) else 0.02) if parameter.dim() >= 2 else 0.0
        torch.testing.assert_close(parameter.detach(), before[name] * (1 - rate * 0.1), msg=name)


def test_clipping_is_by_the_norm_over_everything() -> None:
    tiny, optimiser = trained()
    backward(tiny)
    norm = optimiser.norm()
    total = sum(float(g.double().square().sum()) for g in optimiser.gradients())
    assert norm == pytest.approx(math.sqrt(total), rel=1e-5)
    grad = tiny.net.adapter.weight.grad
    assert grad is not None
    grad = grad.clone()
    optimiser.step(0.01, 0.01, norm)
    torch.testing.assert_close(optimiser.state["adapter.weight"].m, 0.1 * grad / max(norm, 1.0))


def test_a_gradient_given_up_leaves_nothing_behind() -> None:
    tiny, optimiser = trained()
    twin, other = trained()
    backward(tiny, 7)
    optimiser.norm()
    for parameter in tiny.net.parameters():
        assert parameter.grad is not None
        parameter.grad.fill_(math.nan)
    optimiser.skip()
    backward(twin, 7)
    other.skip()  # the telemetry counts the text all the same
    for one, optim in ((tiny, optimiser), (twin, other)):
        backward(one, 1)
        optim.step(0.01, 0.01, optim.norm())
    for (name, mine), (_, theirs) in zip(
        tiny.net.named_parameters(), twin.net.named_parameters(), strict=True
    ):
        assert torch.equal(mine, theirs), name
    assert optimiser.expert_steps == other.expert_steps == 1


def test_a_step_counts_for_every_expert() -> None:
    tiny, optimiser = trained()
    for seed in range(3):
        backward(tiny, seed)
        optimiser.step(0.01, 0.01, optimiser.norm())
    assert optimiser.expert_steps == 3
    assert all(float(state.step) == 3 for state in optimiser.state.values())


def test_without_stored_moments_they_start_anew() -> None:
    tiny, optimiser = trained()
    shape = tiny.net.adapter.weight.shape
    saved = {
        "adapter.weight": (torch.ones(shape), torch.ones(shape), 9.0),
        "halt.bias": (None, None, 9.0),
        "another.thing": (torch.ones(2), torch.ones(2), 9.0),
        **dict.fromkeys(EXPERT_STEPS, (None, None, 12.0)),
    }
    optimiser.load(saved)
    assert optimiser.expert_steps == 12
    assert float(optimiser.state["adapter.weight"].step) == 9 and bool(
        optimiser.state["adapter.weight"].m.all()
    )
    for name in ("ln_f.weight", "halt.bias", "tok_emb.weight"):
        state = optimiser.state[name]
        assert float(state.step) == 0 and not state.m.any() and not state.v.any()


def test_rounding_is_to_what_a_checkpoint_holds() -> None:
    tiny, optimiser = trained()
    backward(tiny)
    optimiser.step(0.01, 0.01, optimiser.norm())
    state = optimiser.state["adapter.weight"]
    exact = state.m.clone()
    optimiser.round_moments()
    assert torch.equal(state.m, exact.bfloat16().float())
    again = state.m.clone()
    optimiser.round_moments()
    assert torch.equal(state.m, again)
    assert np.abs((exact - again).numpy()).max() > 0


def test_the_trunks_gradient_is_the_trunks() -> None:
    tiny, optimiser = trained()
    assert optimiser.trunk_gradient().numel() == 0
    backward(tiny)
    optimiser.norm()
    trunk = sum(p.numel() for name, p in tiny.net.named_parameters() if not in_pool_group(name))
    assert optimiser.trunk_gradient().numel() == trunk
