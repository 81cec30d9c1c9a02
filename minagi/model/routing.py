"""Which experts a forward may use, and which of them each character uses.

A character asks over the whole pool; the text's accumulated asking (its vote) decides which S
experts the forward is admitted; characters are then routed among the admitted. What happens to
be on the card plays no part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from minagi.model.cache import Text
from minagi.model.dispatch import Assignments, capacity_bound, mix
from minagi.model.layers import LowPrecision, linear_fp32
from minagi.model.shape import Routing
from minagi.pool.slots import ExpertSlots


class Card(Protocol):
    """What routing needs of the pool (`minagi.pool.ExpertPool`)."""

    slots: ExpertSlots

    @property
    def experts(self) -> int:
        """E, how many experts the pool holds."""

    def begin_forward(self, training: bool, opens: bool) -> None:
        """A forward begins; whatever was admitted before may leave the card again, but for what waits for
        a step. `opens`: it reads a text from its first character on."""

    def fitting(self, experts: list[int]) -> list[int]:
        """Of these, in order, those that the card can take beside what waits for a step."""

    def waiting(self) -> list[int]:
        """The experts on the card that wait for a step."""

    def admit(self, experts: list[int]) -> list[int]:
        """Bring these experts (places in pool order) onto the card; their slots in the same order."""

    def admission_share(self) -> Tensor:
        """[E] each expert's share of recent admissions, sums to 1."""


@dataclass
class Trace:
    """The routing of one call, kept where somebody asked: experts [N, K] best first, weights [N, K]."""

    row: int
    positions: Tensor | None
    experts: Tensor
    weights: Tensor


@dataclass
class Forward:
    """One forward's dealings with the pool: what it has been admitted, and the terms it owes the loss."""

    card: Card
    text: Text
    routing: Routing
    training: bool = False
    generator: torch.Generator | None = None  # draws of select_temperature
    trace_rows: int = 0  # keep the routing of this many first rows
    admitted: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    load_logits: Tensor | None = None  # routing scores [N, n] of the last row that routed anything
    load_first: Tensor | None = None  # [N] everyone's first choice among those n
    balance: Tensor | None = None  # E·Σ u·P − 1
    dropped: int = 0
    routed: int = 0
    requests: dict[int, int] = field(default_factory=dict)  # by place in `admitted`: times it was chosen
    traces: list[Trace] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.card.begin_forward(self.training, opens=self.text.position == 0)

    @property
    def room(self) -> int:
        return min(self.routing.resident, self.card.experts) - len(self.admitted)

    def admit(self, experts: list[int]) -> None:
        """Admit these experts, in this order, up to the room there is.

        Where several forwards make one step, what the earlier ones were admitted stays on the card; a later
        one takes of its own choice what is there or fits beside it, and what is there where nothing fits.
        """
        experts = self.card.fitting(experts)[: self.room]
        if not experts and not self.admitted:
            experts = self.card.waiting()[: self.room]
        if experts:
            self.slots += self.card.admit(experts)
            self.admitted += experts

    def load_term(self) -> Tensor:
        """n·Σ frac·mean_prob + 1e-3·mean(logsumexp²) of the last row that routed, a scalar.

        The first is from Fedus et al. 2021 (arXiv:2101.03961), the second from Zoph et al. 2022 (2202.08906).
        """
        assert self.load_logits is not None and self.load_first is not None
        logits = self.load_logits
        probabilities = logits.softmax(-1)
        n = logits.shape[1]
        first = torch.bincount(self.load_first, minlength=n) / logits.shape[0]
        return n * (first * probabilities.mean(0)).sum() + 1e-3 * logits.logsumexp(-1).square().mean()


class Router(nn.Module):
    """One row of weight an expert, never a slot: [E, D]."""

    def __init__(self, experts: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, d_model))


class PoolMlp(nn.Module):
    """The recurrent block's mlp: ask, admit, route, dispatch."""

    def __init__(self, experts: int, d_model: int, top_k: int, precision: LowPrecision) -> None:
        super().__init__()
        self.router = Router(experts, d_model)
        self.depth_emb = nn.Parameter(torch.zeros(d_model))
        self.top_k = top_k
        self.precision = precision

    def forward(
        self, f: Tensor, gate: Tensor, forward: Forward, row: int, positions: Tensor | None
    ) -> Tensor:
        """f [N, D] fp32 -> [N, D] fp32. `gate` [E]; `positions` [N] in the text, None for all of it."""
        keyed = f + self.depth_emb
        if forward.room > 0:
            self._ask(keyed, forward, row)
        order = sorted(range(len(forward.admitted)), key=forward.admitted.__getitem__)
        experts = torch.tensor([forward.admitted[i] for i in order], device=f.device)
        slots = [forward.slots[i] for i in order]
        logits = linear_fp32(keyed, self.router.weight.index_select(0, experts))
        chosen, weights = self._choose(logits, forward)
        forward.load_logits, forward.load_first = logits, chosen[:, 0]
        weights = weights * gate.index_select(0, experts)[chosen]
        if len(forward.traces) < forward.trace_rows:
            forward.traces.append(Trace(row, positions, experts[chosen], weights.detach()))
        bound = capacity_bound(
            forward.routing.capacity_factor, f.shape[0], self.top_k, forward.routing.resident
        )
        assignments = Assignments(chosen, slots, bound)
        forward.routed += chosen.numel()
        forward.dropped += assignments.dropped
        for place, count in zip(order, assignments.counts, strict=True):
            forward.requests[place] = forward.requests.get(place, 0) + count
        return mix(f.to(self.precision.dtype), weights, assignments, forward.card.slots)

    def _ask(self, keyed: Tensor, forward: Forward, row: int) -> None:
        """Score the whole pool, let the text's vote (first row) or this row's asking admit experts."""
        balanced = forward.training and forward.balance is None
        with torch.set_grad_enabled(balanced and torch.is_grad_enabled()):
            q = linear_fp32(keyed.detach(), self.router.weight).softmax(-1)  # [N, E]
            if balanced:
                share = forward.card.admission_share()
                forward.balance = q.shape[1] * (share * q.mean(0)).sum() - 1
        q = q.detach()
        if forward.routing.select_temperature > 0:
            self._draw_admissions(q, forward, row)
            return
        top = q.topk(min(self.top_k, q.shape[1]), -1)
        mass = q.new_zeros(q.shape[1]).index_add_(0, top.indices.flatten(), top.values.flatten())
        mass = mass.nan_to_num(0)
        text = forward.text
        if row == 0:
            if text.vote is None:
                text.vote = torch.zeros_like(mass)
            text.vote += mass
            mass = text.vote.clone()
        if forward.admitted:
            mass[forward.admitted] = 0
        ranked = torch.sort(mass, descending=True, stable=True)  # stable: ties go to the lower index
        # Nobody is voted for where numbers are not finite; the forward still has to reach its end.
        wanted = max(int((ranked.values > 0).sum()), 0 if forward.admitted else 1)
        forward.admit(ranked.indices[:wanted].tolist())

    def _draw_admissions(self, q: Tensor, forward: Forward, row: int) -> None:
        """Draw K experts not yet admitted from the text's tally for this row, as tally^(1/T)."""
        text = forward.text
        if text.tally is None or text.tally.shape[0] <= row:
            grown = q.new_zeros(row + 1, q.shape[1])
            if text.tally is not None:
                grown[: text.tally.shape[0]] = text.tally
            text.tally = grown
        text.tally[row] += q.sum(0).nan_to_num(0)
        keys = text.tally[row].log() / forward.routing.select_temperature + self._gumbel(
            text.tally[row], forward
        )
        if forward.admitted:
            keys[forward.admitted] = -torch.inf
        left = max(int((keys > -torch.inf).sum()), 0 if forward.admitted else 1)
        forward.admit(keys.topk(min(self.top_k, left)).indices.tolist())

    def _choose(self, logits: Tensor, forward: Forward) -> tuple[Tensor, Tensor]:
        """Each character's experts among the admitted: places [N, K] best first, weights summing to 1."""
        probabilities = logits.softmax(-1)
        k = min(self.top_k, logits.shape[1])
        temperature = forward.routing.select_temperature
        if temperature > 0:
            keys = logits.detach().log_softmax(-1) / temperature + self._gumbel(logits, forward)
            chosen = keys.topk(k, -1).indices
            weights = probabilities.gather(1, chosen)
        else:
            weights, chosen = probabilities.topk(k, -1)
        return chosen, weights / weights.sum(-1, keepdim=True)

    @staticmethod
    def _gumbel(like: Tensor, forward: Forward) -> Tensor:
        """Noise: the k largest of log p / T + noise are k draws without replacement (arXiv:1903.06059)."""
        generator = forward.generator
        device = like.device if generator is None else generator.device
        uniform = torch.rand(like.shape, generator=generator, device=device).to(like.device)
        return -torch.log(-torch.log(uniform.clamp(1e-10, 1 - 1e-7)))
