"""Causal attention of some characters over all: exact, in blocks of queries against the keys they may see.

On a CPU, forward and backward are 2 to 3 times faster so than the library's fused kernel at the
windows read here (docs/decisions/speed.md); on a card the library's kernel is used.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from minagi.model.buckets import bucket

QUERY_BLOCK = 256  # queries a block: its scores [H, block, keys] should stay near the processor
KEEP_UP_TO = 1024  # keys up to which probabilities are kept for the backward pass; beyond, they are redone


def attend(q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None, past: int) -> Tensor:
    """Softmax attention of q [A, H, hd] over k, v [past+T, H, hd] -> [A, H·hd].

    `positions` [A], ascending, are the queries' places among the T new characters; None when every
    one of them asks (A = T). Query i sees keys 0..past+positions[i].
    """
    asking = q.shape[0]
    if q.device.type == "cpu" and asking > 1:
        places = torch.arange(asking) if positions is None else positions
        return _BlockAttention.apply(q, k, v, places + past).flatten(1)
    mask = None
    causal = positions is None and past == 0 and asking > 1
    if positions is not None or (asking > 1 and not causal):
        places = torch.arange(asking, device=q.device) if positions is None else positions
        mask = torch.arange(k.shape[0], device=q.device) <= (places + past)[:, None]
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    return mixed[0].transpose(0, 1).flatten(1)


def _probabilities(q: Tensor, k: Tensor, last: Tensor) -> Tensor:
    """q [H, b, hd], k [H, keys, hd], last visible key of each query [b] -> softmax [H, b, keys]."""
    keys = k.shape[1]
    if int(last[0]) + 1 >= keys:  # every query of the block sees every key
        return torch.bmm(q, k.transpose(1, 2)).softmax(-1)
    hiding = _hiding(last, keys, q.dtype).expand(q.shape[0], -1, -1)
    return torch.baddbmm(hiding, q, k.transpose(1, 2)).softmax(-1)


def _hiding(last: Tensor, keys: int, dtype: torch.dtype) -> Tensor:
    """What hides later keys when added to the scores: 0 up to `last` [b], −∞ behind it, [b, keys]."""
    if keys <= KEEP_UP_TO:
        return _causal(dtype)[:, :keys].index_select(0, last)
    return torch.zeros(last.shape[0], keys, dtype=dtype).masked_fill_(
        torch.arange(keys) > last[:, None], -torch.inf
    )


@cache
def _causal(dtype: torch.dtype) -> Tensor:
    """`_hiding` of every last key that there is a table for, [KEEP_UP_TO, KEEP_UP_TO]."""
    return torch.full((KEEP_UP_TO, KEEP_UP_TO), -torch.inf).triu_(1).to(dtype)


class _BlockAttention(torch.autograd.Function):
    """Attention with its gradient, block by block of queries."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, last: Tensor) -> Tensor:
        ctx.scale = q.shape[-1] ** -0.5
        ctx.asking = q.shape[0]
        short = bucket(ctx.asking, q.device) - ctx.asking
        if short:
            q = F.pad(q, (0, 0, 0, 0, 0, short))
            last = F.pad(last, (0, short), value=int(last[-1]))
        q, k, v = (q * ctx.scale).transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)  # [H, ·, hd]
        ctx.blocks = []
        out = torch.empty_like(q)
        kept = []
        keep = any(ctx.needs_input_grad) and k.shape[1] <= KEEP_UP_TO
        for start in range(0, q.shape[1], QUERY_BLOCK):
            stop = min(start + QUERY_BLOCK, q.shape[1])
            keys = min(bucket(int(last[stop - 1]) + 1, k.device), k.shape[1])
            p = _probabilities(q[:, start:stop], k[:, :keys], last[start:stop])
            torch.bmm(p, v[:, :keys], out=out[:, start:stop])
            ctx.blocks.append((start, stop, keys))
            if keep:
                kept.append(p)
        ctx.save_for_backward(q, k, v, last, *kept)
        return out.transpose(0, 1)[: ctx.asking]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, last, *kept = ctx.saved_tensors
        d_out = F.pad(grads[0], (0, 0, 0, 0, 0, q.shape[1] - ctx.asking)).transpose(0, 1)
        d_q = torch.empty_like(q)
        d_k, d_v = torch.zeros_like(k), torch.zeros_like(v)
        for index, (start, stop, keys) in enumerate(ctx.blocks):
            rows = slice(start, stop)
            p = kept[index] if kept else _probabilities(q[:, rows], k[:, :keys], last[rows])
            d_v[:, :keys] += torch.bmm(p.transpose(1, 2), d_out[:, rows])
            d_p = torch.bmm(d_out[:, rows], v[:, :keys].transpose(1, 2))
            d_s = torch._softmax_backward_data(d_p, p, -1, p.dtype)
            torch.bmm(d_s, k[:, :keys], out=d_q[:, rows])
            d_k[:, :keys] += torch.bmm(d_s.transpose(1, 2), q[:, rows])
        return d_q.transpose(0, 1)[: ctx.asking] * ctx.scale, d_k.transpose(0, 1), d_v.transpose(0, 1), None
