"""Reading without targets: each character keeps the readout of the row where it halted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minagi.model.network import Network
from minagi.model.recurrence import Plan
from minagi.model.routing import Forward


@dataclass
class Reading:
    """logits [T, V] fp32; rows [T], the row each character halted at, counted from 1."""

    logits: Tensor
    rows: Tensor


@torch.no_grad()
def read(net: Network, ids: Tensor, forward: Forward, cached: bool = True) -> Reading:
    """Read ids [T] behind what the forward's text holds already, and move its position on."""
    plan = Plan(net.shape.max_steps, cached=cached)
    readouts, owners = [], []
    taken = torch.zeros(ids.shape[0], dtype=torch.long, device=ids.device)
    for row in net.rows(ids, forward, plan):
        places = row.halted.nonzero().flatten()
        owner = places if row.positions is None else row.positions.index_select(0, places)
        readouts.append(row.yf.index_select(0, places))
        owners.append(owner)
        taken[owner] = row.index + 1
    if cached:
        forward.text.passed(ids)
    yf = torch.empty_like(torch.cat(readouts))
    yf[torch.cat(owners)] = torch.cat(readouts)
    return Reading(net.logits(yf), taken)
