"""One AdamW step over the trunk and the experts that the forward was admitted (arXiv:1711.05101).

n-gram rows are stepped by their own rule (`minagi.model.ngram`), at a rate that moves with the others'.

Two groups: the pool (experts, gate, routers, depth_emb) at `lr`, the trunk at a multiple of it.
Decay on tensors of two or more dimensions only; one norm over everything clips the gradient.
Moments are owned here for named parameters, by the slots for experts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from minagi.model.network import Network
from minagi.pool import ExpertPool
from minagi.pool.copies import round_to_bf16

BETA1 = 0.9
EPS = 1e-8
EXPERT_STEPS = ("pool.w1", "pool.w3", "pool.w2")  # names under which the experts' step count is stored


def in_pool_group(name: str) -> bool:
    """Whether a parameter is stepped at the pool's rate."""
    return name == "pool.gate" or ".mlp.router." in name or name.endswith(".mlp.depth_emb")


@dataclass
class Moments:
    """Adam's state of one named parameter; `step` is how often it was stepped."""

    m: Tensor
    v: Tensor
    step: Tensor

    @classmethod
    def fresh(cls, parameter: Tensor) -> Moments:
        step = torch.zeros((), device=parameter.device)  # where the fused step reads it
        return cls(torch.zeros_like(parameter), torch.zeros_like(parameter), step)


@dataclass
class _Stepped:
    """Tensors of one kind stepped in one call."""

    weights: list[Tensor]
    grads: list[Tensor]
    m: list[Tensor]
    v: list[Tensor]
    steps: list[Tensor]

    @classmethod
    def empty(cls) -> _Stepped:
        return cls([], [], [], [], [])

    def add(self, weight: Tensor, grad: Tensor, m: Tensor, v: Tensor, step: Tensor) -> None:
        for held, value in zip(
            (self.weights, self.grads, self.m, self.v, self.steps), (weight, grad, m, v, step), strict=True
        ):
            held.append(value)


class Optimiser:
    """AdamW over a network and its pool. Rates are given at each step: the caller controls them."""

    def __init__(
        self,
        net: Network,
        pool: ExpertPool,
        beta2: float,
        weight_decay: float,
        clip: float,
        ngram_lr_mult: float = 0.0,
    ) -> None:
        self.net, self.pool = net, pool
        self.beta2, self.weight_decay, self.clip = beta2, weight_decay, clip
        self.ngram_lr_mult = ngram_lr_mult  # the n-gram tables' rate, as a multiple of the pool's
        self.state = {name: Moments.fresh(p) for name, p in net.dense_parameters()}
        self.expert_steps = 0

    def gradients(self) -> list[Tensor]:
        """Every gradient the coming step uses; parameters without one get zeros."""
        self.pool.slots.settle_grad()
        for _, parameter in self.net.dense_parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        grads = [p.grad for p in self.net.parameters() if p.grad is not None]
        rows = None if self.net.ngram is None else self.net.ngram.gradient()
        if rows is not None:
            grads.append(rows.grad)
        return grads + self.pool.slots.gradients(self.pool.to_step())

    def trunk_gradient(self) -> Tensor:
        """The trunk's gradient as one vector; empty where nothing has one."""
        grads = [
            parameter.grad.flatten()
            for name, parameter in self.net.named_parameters()
            if parameter.grad is not None and not in_pool_group(name)
        ]
        return torch.cat(grads) if grads else torch.zeros(0)

    def norm(self) -> float:
        """Norm of the whole gradient before clipping."""
        return math.sqrt(sum(float(n) ** 2 for n in torch._foreach_norm(self.gradients())))

    @torch.no_grad()
    def step(self, lr: float, trunk_lr: float, norm: float) -> None:
        """Clip to `clip` given the gradient's norm, step what the forward was admitted, clear gradients."""
        clipped = max(norm / self.clip, 1.0)
        scale = torch.tensor(clipped, dtype=torch.float32)
        groups = {(pool, decays): _Stepped.empty() for pool in (True, False) for decays in (True, False)}
        for name, parameter in self.net.dense_parameters():
            state = self.state[name]
            assert parameter.grad is not None
            group = groups[in_pool_group(name), parameter.dim() >= 2]
            group.add(parameter, parameter.grad, state.m, state.v, state.step)
        slots = self.pool.to_step()
        for weight, grad, m, v in self.pool.slots.stepped(slots):
            steps = torch.tensor(float(self.expert_steps), device=weight.device)
            groups[True, True].add(weight, grad, m, v, steps)
        for (pool, decays), group in groups.items():
            if group.weights:
                self._call(group, lr if pool else trunk_lr, self.weight_decay if decays else 0.0, scale)
        if self.net.ngram is not None:
            self.net.ngram.step(lr * self.ngram_lr_mult, clipped)
        self.expert_steps += 1
        self.net.precision.refresh()
        self.pool.stepped()
        self.zero_grad()

    def _call(self, group: _Stepped, lr: float, decay: float, scale: Tensor) -> None:
        adamw(
            group.weights, group.grads, group.m, group.v, [], group.steps,
            fused=True, grad_scale=scale, amsgrad=False, maximize=False,
            beta1=BETA1, beta2=self.beta2, lr=lr, weight_decay=decay, eps=EPS,
        )  # fmt: skip

    def zero_grad(self) -> None:
        """Clear the named parameters' gradients (slots clear theirs when they are admitted)."""
        grads = [parameter.grad for parameter in self.net.parameters() if parameter.grad is not None]
        if grads:
            torch._foreach_zero_(grads)
        if self.net.ngram is not None:
            self.net.ngram.forget()

    def skip(self) -> None:
        """Give this gradient up."""
        self.pool.slots.settle_grad()
        self.pool.skip_step()
        self.zero_grad()

    def round_moments(self) -> None:
        """Make the moments what a checkpoint holds of them (see ExpertPool.settle)."""
        for state in self.state.values():
            round_to_bf16((state.m, state.v))

    def load(self, saved: Mapping[str, tuple[Tensor | None, Tensor | None, float]]) -> None:
        """Take over stored moments, of the parameters' shapes; where there are none they start anew."""
        for name, parameter in self.net.dense_parameters():
            m, v, t = saved.get(name, (None, None, 0.0))
            state = Moments.fresh(parameter)
            if m is not None and v is not None:
                state.m.copy_(m)
                state.v.copy_(v)
                state.step.fill_(t)
            self.state[name] = state
        self.expert_steps = int(max((saved[n][2] for n in EXPERT_STEPS if n in saved), default=0))
