"""The training forward: every row's readout scored, weighted by the chance of halting there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from minagi.model.network import Network
from minagi.model.recurrence import Plan, forced
from minagi.model.routing import Forward

KL_FLOOR = 1e-8


@dataclass
class Loss:
    """One training forward. `total` carries the gradient; the rest is detached.

    `nats` [T] is each character's expected cross-entropy Σ p·CE, `ce` its mean; `rows` the mean of Σ (n+1)·p.
    """

    total: Tensor
    nats: Tensor
    ce: Tensor
    kl: Tensor
    rows: Tensor
    load: Tensor
    balance: Tensor
    rows_run: int


def sample_rows(net: Network, generator: torch.Generator | None) -> int:
    """Rows this training forward may run: min(max(Poisson(mean)+1, min_steps), max_steps)."""
    depth, limit = net.depth, net.shape.max_steps
    if depth.train_steps_mean <= 0:
        return limit
    drawn = int(torch.poisson(torch.tensor(float(depth.train_steps_mean)), generator=generator)) + 1
    return min(max(drawn, depth.min_steps), limit)


def training_loss(
    net: Network,
    ids: Tensor,
    targets: Tensor,
    forward: Forward,
    rows: int,
    pool_aux: float,
    cached: bool = False,
) -> Loss:
    """Read ids [T] as a new text and score targets [T].

    `cached` reads them behind what the forward's text holds, and moves its position on: the gradient
    stays within these characters. Every part of one text takes the same `rows`, for a row sees only
    what earlier parts left in it.
    """
    plan = Plan(rows, bptt=net.depth.bptt_window, cached=cached)
    read = _readouts(net, ids, forward, plan)
    ce = F.cross_entropy(net.logits(read.yf), targets.index_select(0, read.owner), reduction="none")
    ce = read.by_row(ce)
    p = _halting_distribution(net, plan, read.by_row(read.halt))
    nats = (p * ce).sum(0)
    prior = _prior(net.depth.halt_prior, rows, ids.device)[:, None]
    kl = (p * (p.clamp_min(KL_FLOOR).log() - prior.clamp_min(KL_FLOOR).log())).sum(0).mean()
    total = nats.mean() + net.depth.ponder_beta * kl
    load = forward.load_term()
    total = total + pool_aux * load
    balance = torch.zeros((), device=ids.device) if forward.balance is None else forward.balance
    balance = forward.routing.balance * balance
    total = total + balance
    steps = torch.arange(1, rows + 1, device=ids.device, dtype=torch.float32)[:, None]
    return Loss(
        total,
        nats.detach(),
        nats.detach().mean(),
        kl.detach(),
        (p.detach() * steps).sum(0).mean(),
        load.detach(),
        balance.detach(),
        rows,
    )


class _Readouts(NamedTuple):
    """Every distinct readout of a forward, scored once.

    A character's terms in rows after it halted have the values it halted with: `where` [rows, T] says which
    of the R readouts counts in which row.
    """

    yf: Tensor  # [R, D]
    halt: Tensor  # [R] λ
    owner: Tensor  # [R] the character
    where: Tensor

    def by_row(self, values: Tensor) -> Tensor:
        """values [R] -> [rows, T]."""
        return values.index_select(0, self.where.flatten()).view(self.where.shape)


def _readouts(net: Network, ids: Tensor, forward: Forward, plan: Plan) -> _Readouts:
    """Run the rows over ids [T]; where they are cached, the text's position moves on."""
    where = torch.zeros(plan.rows, ids.shape[0], dtype=torch.long, device=ids.device)
    everyone = torch.arange(ids.shape[0], device=ids.device)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    count = 0
    for row in net.rows(ids, forward, plan):
        scored = [(row.positions, row.yf, row.halt)]
        if row.left is not None:
            scored.append(row.left)
        for positions, yf, halt in scored:
            owner = everyone if positions is None else positions
            where[row.index :, owner] = torch.arange(count, count + yf.shape[0], device=ids.device)
            count += yf.shape[0]
            found.append((yf, halt, owner))
    if plan.cached:
        forward.text.passed(ids)
    yf, halt, owner = (torch.cat(parts) for parts in zip(*found, strict=True))
    return _Readouts(yf, halt, owner, where)


def _halting_distribution(net: Network, plan: Plan, halt: Tensor) -> Tensor:
    """λ [rows, T] -> p [rows, T]: p_n = λ_n · Π_{m<n} (1 − λ_m), with λ forced as the plan says."""
    forcing = [forced(net, plan, row) for row in range(plan.rows)]
    halt = torch.stack(
        [
            halt[row] if value is None else torch.full_like(halt[row], value)
            for row, value in enumerate(forcing)
        ]
    )
    going_on = torch.cat((torch.ones_like(halt[:1]), (1 - halt[:-1]).cumprod(0)))
    return going_on * halt


def _prior(chance: float, rows: int, device: torch.device) -> Tensor:
    """Geometric prior over the rows that may run, renormalised, [rows]."""
    g = chance * (1 - chance) ** torch.arange(rows, dtype=torch.float64, device=device)
    return (g / g.sum()).float()
