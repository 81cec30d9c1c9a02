"""Rows: the recurrent block applied again and again until every character has halted.

`halting_rows` is the published default (halt_freeze): a halted character drops out of every later
row but for the keys and values its final state gives, which are computed once and carried.
`whole_rows` runs every character in every row: what n_recur > 1, codas or halt_freeze off need.
Both yield one `Row` a row and leave the readout to their caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from minagi.model.routing import Forward

if TYPE_CHECKING:
    from minagi.model.network import Network


@dataclass
class Row:
    """One row's result for the characters it ran.

    `positions` [A] are their places in the text, None for all T. `yf` [A, D] the normed readout, `halt`
    [A] λ in fp32 before any forcing, `halted` [A] who halts here. `left` is there where this row detached
    h after some had halted: their later terms reach the head, but no longer h.
    """

    index: int
    positions: Tensor | None
    yf: Tensor
    halt: Tensor
    halted: Tensor
    left: Left | None = None


@dataclass(frozen=True)
class Plan:
    """How a forward runs its rows: `bptt` is how many of the last ones gradients reach, None when reading."""

    rows: int
    bptt: int | None = None
    cached: bool = False  # keys and values go into (and come from) the text's cache

    def detaches(self, row: int) -> bool:
        return self.bptt is not None and row < self.rows - self.bptt


class Left(NamedTuple):
    """Readout, from their detached state, of the characters that halted in the row before [B]."""

    positions: Tensor
    yf: Tensor
    halt: Tensor


def forced(net: Network, plan: Plan, row: int) -> float | None:
    """The value λ is forced to in this row, None where it is the network's own."""
    if row == plan.rows - 1:
        return 1.0
    return 0.0 if row < net.depth.min_steps - 1 else None


def _halts(net: Network, plan: Plan, row: int, halt: Tensor, remaining: Tensor) -> tuple[Tensor, Tensor]:
    """Who halts in this row, and everyone's remaining mass after it. In the last row that is everyone, even
    where numbers are not finite: a forward ends, and whoever asked for it sees them in its loss."""
    value = forced(net, plan, row)
    if value == 1:
        return torch.ones_like(remaining, dtype=torch.bool), torch.zeros_like(remaining)
    halt = halt.detach() if value is None else torch.full_like(remaining, value)
    remaining = remaining * (1 - halt)
    return 1 - remaining >= net.depth.halt_thresh, remaining


def halting_rows(net: Network, x: Tensor, forward: Forward, plan: Plan) -> Iterator[Row]:
    """Rows of x [T, D] with halted characters frozen. Needs n_recur 1 and n_coda 0."""
    text = forward.text
    past = text.position if plan.cached else 0
    factors = net.rotary.factors(past + x.shape[0], x.device)[past:]
    first_layer = net.shape.n_prelude
    (block,) = net.recur
    live: Tensor | None = None  # characters whose keys this row still has to compute; None = all
    active: Tensor | None = None  # of `live`, those that have not halted, as places in `live`
    h = torch.zeros_like(x)
    remaining = torch.ones(x.shape[0], device=x.device)
    k_all = v_all = None
    for row in range(plan.rows):
        if plan.detaches(row):
            h = h.detach()
        live_x = x if live is None else x.index_select(0, live)
        u = net.adapter(torch.cat((h, live_x), -1)).float()
        live_factors = factors if live is None else factors.index_select(0, live)
        q, k, v = block.attn.project(block.ln1(u), live_factors)
        if live is not None:
            assert k_all is not None and v_all is not None
            k, v = k_all.index_copy(0, live, k), v_all.index_copy(0, live, v)
        k_all, v_all = k, v
        positions = live
        left = None
        if active is not None:
            if plan.detaches(row):
                left = _left(net, h, live, active)
            u, q = u.index_select(0, active), q.index_select(0, active)
            positions = active if live is None else live.index_select(0, active)
            remaining = remaining.index_select(0, active)
        if plan.cached:
            k, v = text.append(first_layer + row, k, v)
        if not q.shape[0]:
            if plan.cached:
                text.append_from(first_layer + row, k_all, v_all)
            if left is not None:  # all halted in the row before this one detached: nobody runs it
                yield Row(row, positions, h[:0], remaining, remaining.bool(), left)
            return
        u = u + block.attn.attend(q, k, v, positions, past)
        h = u + block.mlp(block.ln2(u), net.pool.gate, forward, row, positions)
        yf = net.ln_f(h)
        halt = net.halting(yf)
        halted, remaining = _halts(net, plan, row, halt, remaining)
        yield Row(row, positions, yf, halt, halted, left)
        live = positions
        going = (~halted).nonzero().flatten()
        active = None if going.shape[0] == halted.shape[0] else going
        if not plan.cached and not going.shape[0] and not plan.detaches(row + 1):
            return


def _left(net: Network, h: Tensor, live: Tensor | None, active: Tensor) -> Left:
    """The characters of `live` (state h [L, D], detached already) that are no longer active."""
    halted = torch.ones(h.shape[0], dtype=torch.bool, device=h.device)
    halted[active] = False
    places = halted.nonzero().flatten()
    yf = net.ln_f(h.index_select(0, places))
    return Left(places if live is None else live.index_select(0, places), yf, net.halting(yf))


def whole_rows(net: Network, x: Tensor, forward: Forward, plan: Plan) -> Iterator[Row]:
    """Rows of x [T, D] with every character in every row; a halted one only keeps its h."""
    text = forward.text
    past = text.position if plan.cached else 0
    factors = net.rotary.factors(past + x.shape[0], x.device)[past:]
    h = torch.zeros_like(x)
    remaining = torch.ones(x.shape[0], device=x.device)
    done = torch.zeros(x.shape[0], dtype=torch.bool, device=x.device)
    layer = net.shape.n_prelude
    for row in range(plan.rows):
        if plan.detaches(row):
            h = h.detach()
        u = net.adapter(torch.cat((h, x), -1)).float()
        for block in net.recur:
            u = net.attend_whole(block, u, factors, text if plan.cached else None, layer)
            u = u + block.mlp(block.ln2(u), net.pool.gate, forward, row, None)
            layer += 1
        h = torch.where(done[:, None], h, u)
        y = h
        for block in net.coda:
            y = net.attend_whole(block, y, factors, text if plan.cached else None, layer)
            y = y + block.mlp(block.ln2(y)).float()
            layer += 1
        yf = net.ln_f(y)
        halt = net.halting(yf)
        halted, remaining = _halts(net, plan, row, halt, remaining)
        yield Row(row, None, yf, halt, halted & ~done)
        done = done | halted
        if not plan.cached and plan.bptt is None and bool(done.all()):
            return
