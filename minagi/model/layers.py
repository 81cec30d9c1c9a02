"""The dense parts: linear products in the compute precision, RMSNorm, rotary attention, SwiGLU, block.

Tensors carry no batch dimension: a model reads one text at a time, T characters as [T, D].
The residual stream is fp32; products run in the compute precision of their input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minagi.model.attention import attend
from minagi.model.buckets import bucket, padded
from minagi.model.shape import NORM_EPS


class _Linear(torch.autograd.Function):
    """x · wᵀ with the weight's copy in the compute precision; the weight's gradient is handed on in fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, low: Tensor) -> Tensor:
        ctx.rows = x.shape[0]
        x = padded(x, bucket(ctx.rows, x.device))
        ctx.save_for_backward(x, low)
        return _first(x @ low.t(), ctx.rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, low = ctx.saved_tensors
        grad = padded(grads[0], x.shape[0])
        return _first(grad @ low, ctx.rows), (grad.t() @ x).float(), None


def _first(x: Tensor, rows: int) -> Tensor:
    return x if x.shape[0] == rows else x[:rows]


class LowPrecision:
    """Copies of fp32 parameters in the compute precision, made at first use.

    Whoever changes parameters says so: `refresh` after a step, `forget` when tensors were replaced.
    (Autograd's version counters cannot tell: fused optimisers do not move them.)
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._copies: dict[Tensor, Tensor] = {}

    def of(self, parameter: Tensor) -> Tensor:
        """`parameter` in the compute precision."""
        if self.dtype == torch.float32:
            return parameter
        low = self._copies.get(parameter)
        if low is None:
            low = self._copies[parameter] = parameter.detach().to(self.dtype)
        return low

    @torch.no_grad()
    def refresh(self) -> None:
        """Every parameter may have changed its values."""
        for parameter, low in self._copies.items():
            low.copy_(parameter)

    def forget(self) -> None:
        """Parameters may have been replaced."""
        self._copies.clear()

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """x [N, in] in any precision times weight [out, in] -> [N, out] in the compute precision."""
        x, low = x.to(self.dtype), self.of(weight)
        if torch.is_grad_enabled() and weight.requires_grad:
            return _Linear.apply(x, weight, low)
        rows = x.shape[0]
        return _first(padded(x, bucket(rows, x.device)) @ low.t(), rows)


def linear_fp32(x: Tensor, weight: Tensor) -> Tensor:
    """x [N, in] times weight [out, in], in fp32 whatever the compute precision: router scores and halting."""
    if torch.is_grad_enabled() and weight.requires_grad:
        return _Linear.apply(x, weight, weight.detach())
    rows = x.shape[0]
    return _first(padded(x, bucket(rows, x.device)) @ weight.t(), rows)


class Linear(nn.Module):
    """A matrix without bias."""

    def __init__(self, fan_in: int, fan_out: int, precision: LowPrecision) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_out, fan_in))
        self.precision = precision

    def forward(self, x: Tensor) -> Tensor:
        return self.precision.linear(x, self.weight)


class _RMSNorm(torch.autograd.Function):
    """The norm and its gradient in few operations; x [N, D] fp32, the result in `dtype`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        scale = (
            torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_() / x.shape[-1] + NORM_EPS
        ).rsqrt_()
        normed = x * scale
        ctx.save_for_backward(normed, scale, weight)
        return (normed * weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, weight = ctx.saved_tensors
        grad = grads[0].float()
        d_normed = grad * weight
        along = (d_normed * normed).mean(-1, keepdim=True)
        return d_normed.addcmul_(normed, along, value=-1).mul_(scale), (grad * normed).sum(0), None


class RMSNorm(nn.Module):
    """x · rsqrt(mean(x²) + 1e-6) · weight, in fp32 (Zhang & Sennrich 2019, arXiv:1910.07467).

    `dtype` is what the result is handed on in: the compute precision before a product.
    """

    def __init__(self, width: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return _RMSNorm.apply(x, self.weight, self.dtype)


class Rotary:
    """Rotary positions on interleaved pairs (Su et al. 2021, arXiv:2104.09864), as complex factors."""

    def __init__(self, head_size: int, theta: float) -> None:
        self.frequencies = theta ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
        self._table = torch.empty(0, head_size // 2, dtype=torch.complex64)

    def factors(self, length: int, device: torch.device) -> Tensor:
        """e^(i·position·frequency) for positions 0..length-1, [length, head_size/2] complex64."""
        if self._table.shape[0] < length or self._table.device != device:
            size = max(length, 2 * self._table.shape[0], 512)
            angles = torch.outer(torch.arange(size, dtype=torch.float64), self.frequencies)
            self._table = torch.polar(torch.ones_like(angles), angles).to(torch.complex64).to(device)
        return self._table[:length]


class Attention(nn.Module):
    """Causal attention, projections apart from the product so that rows can skip queries."""

    def __init__(self, d_model: int, n_head: int, precision: LowPrecision) -> None:
        super().__init__()
        self.qkv = Linear(d_model, 3 * d_model, precision)
        self.proj = Linear(d_model, d_model, precision)
        self.n_head = n_head

    def project(self, x: Tensor, factors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [N, D] and its rotary factors [N, hd/2] -> q, k, v, each [N, H, hd]."""
        n, width = x.shape
        qkv = self.qkv(x).view(n, 3, self.n_head, width // self.n_head)
        qk = torch.view_as_complex(qkv[:, :2].float().unflatten(-1, (-1, 2)))
        qk = torch.view_as_real(qk * factors[:, None, None, :]).flatten(-2).to(qkv.dtype)
        q, k = qk.unbind(1)
        return q, k, qkv[:, 2]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None, past: int) -> Tensor:
        """Attention of the asking characters (see `attention.attend`), then the output matrix: [A, D]."""
        return self.proj(attend(q, k, v, positions, past))


class SwiGLU(nn.Module):
    """w2(silu(w1 x) · w3 x) (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, d_model: int, width: int, precision: LowPrecision) -> None:
        super().__init__()
        self.w1 = Linear(d_model, width, precision)
        self.w3 = Linear(d_model, width, precision)
        self.w2 = Linear(width, d_model, precision)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """x + attention(norm x), then x + mlp(norm x). The mlp is dense, or the pool's (routing.PoolMlp)."""

    def __init__(self, d_model: int, n_head: int, mlp: nn.Module, precision: LowPrecision) -> None:
        super().__init__()
        self.ln1 = RMSNorm(d_model, precision.dtype)
        self.attn = Attention(d_model, n_head, precision)
        self.ln2 = RMSNorm(d_model, precision.dtype if isinstance(mlp, SwiGLU) else torch.float32)
        self.mlp = mlp


class Blocks(nn.ModuleList):
    """Blocks in order."""

    def __iter__(self) -> Iterator[Block]:
        return cast("Iterator[Block]", super().__iter__())
