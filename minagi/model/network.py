"""The whole network: prelude, rows over the expert pool, tied readout. Parameters have public names."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minagi.model.cache import Text
from minagi.model.layers import Block, Blocks, Linear, LowPrecision, RMSNorm, Rotary, SwiGLU, linear_fp32
from minagi.model.ngram import NgramEmbedding
from minagi.model.recurrence import Plan, Row, halting_rows, whole_rows
from minagi.model.routing import Forward, PoolMlp
from minagi.model.shape import Depth, Shape


class Pool(nn.Module):
    """The trainable scalars of the pool that are not in any expert: one gate an expert, [E]."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.ones(experts))


class Network(nn.Module):
    """Reads ids [T]; experts are not in here but in the pool a `Forward` brings along."""

    def __init__(self, shape: Shape, depth: Depth, experts: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.shape, self.depth = shape, depth
        self.precision = precision = LowPrecision(dtype)
        d, heads = shape.d_model, shape.n_head

        def dense() -> Block:
            return Block(d, heads, SwiGLU(d, shape.d_ff, precision), precision)

        self.tok_emb = nn.Embedding(shape.vocab_size, d)
        self.ngram = (
            NgramEmbedding(shape.ngram, shape.ngram_rows, d, shape.word_rows) if shape.ngram else None
        )
        self.prelude = Blocks(dense() for _ in range(shape.n_prelude))
        self.adapter = Linear(2 * d, d, precision)
        self.recur = Blocks(
            Block(d, heads, PoolMlp(experts, d, shape.top_k, precision), precision)
            for _ in range(shape.n_recur)
        )
        self.coda = Blocks(dense() for _ in range(shape.n_coda))
        self.ln_f = RMSNorm(d)
        self.halt = nn.Linear(d, 1)
        self.pool = Pool(experts)
        self.rotary = Rotary(shape.head_size, shape.rope_theta)

    def dense_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Names and parameters that every step moves and autograd knows: all but the n-gram tables."""
        return [(name, p) for name, p in self.named_parameters() if p.requires_grad]

    def stored(self) -> dict[str, Tensor]:
        """All a checkpoint holds of trunk and routers: parameters, the sums by which n-gram rows are
        stepped, and young rows."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    @property
    def freezes(self) -> bool:
        """Halted characters drop out of later rows."""
        return self.depth.halt_freeze and self.shape.n_recur == 1 and self.shape.n_coda == 0

    def new_text(self, capacity: int = 64) -> Text:
        """An empty text to read through the cache; `capacity` characters are made room for."""
        weight = self.tok_emb.weight
        reach = 0 if self.ngram is None else self.ngram.reach
        return Text(self.shape, self.precision.dtype, weight.device, capacity, reach)

    def rows(self, ids: Tensor, forward: Forward, plan: Plan) -> Iterator[Row]:
        """Embed ids [T], run the prelude, then the rows. The caller moves the text's position on."""
        text = forward.text if plan.cached else None
        if text is not None:
            text.reserve(ids.shape[0])
        past = text.position if text is not None else 0
        factors = self.rotary.factors(past + ids.shape[0], ids.device)[past:]
        x = F.embedding(ids, self.tok_emb.weight)
        if self.ngram is not None:
            x = self.ngram(x, ids, ids[:0] if text is None else text.before, forward.generator)
        for layer, block in enumerate(self.prelude):
            x = self.attend_whole(block, x, factors, text, layer)
            x = x + block.mlp(block.ln2(x))
        run = halting_rows if self.freezes else whole_rows
        return run(self, x, forward, plan)

    def attend_whole(self, block: Block, x: Tensor, factors: Tensor, text: Text | None, layer: int) -> Tensor:
        """x + attention with every character asking; through the cache where there is one."""
        q, k, v = block.attn.project(block.ln1(x), factors)
        past = 0
        if text is not None:
            past = text.position
            k, v = text.append(layer, k, v)
        return x + block.attn.attend(q, k, v, None, past)

    def halting(self, yf: Tensor) -> Tensor:
        """λ of each readout [A, D] -> [A], fp32."""
        return (linear_fp32(yf, self.halt.weight) + self.halt.bias).squeeze(-1).sigmoid()

    def logits(self, yf: Tensor) -> Tensor:
        """Normed readout [A, D] -> [A, V] fp32, through the tied embedding."""
        return self.precision.linear(yf, self.tok_emb.weight).float()


def initialise(net: Network, generator: torch.Generator | None = None) -> None:
    """Fresh weights: N(0, 0.02), outputs scaled down with depth, adapter [I | I], halting late at first.
    N-gram rows stay the nothing they are made as."""
    shape = net.shape
    blocks = shape.n_prelude + shape.n_recur + shape.n_coda
    with torch.no_grad():
        for name, parameter in net.dense_parameters():
            if name.endswith(("proj.weight", "w2.weight")):
                parameter.normal_(0, output_std(blocks), generator=generator)
            elif name == "adapter.weight":
                parameter.copy_(torch.eye(shape.d_model).repeat(1, 2))
            elif name == "halt.weight":
                parameter.normal_(0, 0.02, generator=generator).mul_(0.01)
            elif name == "halt.bias":
                parameter.fill_(-2)
            elif name == "pool.gate" or ".ln" in name or name.startswith("ln_f"):
                parameter.fill_(1)
            elif name.endswith("depth_emb"):
                parameter.zero_()
            else:
                parameter.normal_(0, 0.02, generator=generator)


def output_std(blocks: int) -> float:
    """Standard deviation of every matrix that writes into the residual stream."""
    return 0.02 / (2 * blocks) ** 0.5
