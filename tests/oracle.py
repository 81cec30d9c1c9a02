"""A second implementation of the model, written to be read and not to be fast: the tests' oracle.

It shares no code with `minagi.model`: one character at a time, every row for every character with the
halted ones masked, every expert at hand, autograd throughout, float64. It also keeps the `margin` by
which its closest decision fell (which experts, who halts), so that a test can pass over inputs on
which float32 may rightly decide otherwise.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from minagi.model.shape import Depth, Routing, Shape

EPS = 1e-6
FLOOR = 1e-8


@dataclass
class Oracle:
    """A model: its trunk, routers and gate by their public names, and its experts in pool order."""

    shape: Shape
    depth: Depth
    routing: Routing
    parameters: dict[str, Tensor]
    experts: list[dict[str, Tensor]]

    @classmethod
    def of(
        cls,
        shape: Shape,
        depth: Depth,
        routing: Routing,
        parameters: Mapping[str, Tensor],
        experts: Sequence[Mapping[str, Tensor]],
    ) -> Oracle:
        """Copies in float64 that collect gradients."""

        def own(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: t.detach().double().clone().requires_grad_() for name, t in tensors.items()}

        return cls(shape, depth, routing, own(parameters), [own(expert) for expert in experts])

    @property
    def freezes(self) -> bool:
        return self.depth.halt_freeze and self.shape.n_recur == 1 and self.shape.n_coda == 0

    def new_text(self) -> OracleText:
        return OracleText([[] for _ in range(self.shape.cache_layers)])


@dataclass
class OracleText:
    """What a text keeps: keys and values of every layer, a pair a character, and the vote."""

    layers: list[list[tuple[Tensor, Tensor]]]
    position: int = 0
    vote: Tensor | None = None
    seen: list[int] = field(default_factory=list)  # every id that was read

    def detach(self) -> None:
        """No gradient reaches what was read so far."""
        self.layers = [[(k.detach(), v.detach()) for k, v in layer] for layer in self.layers]


@dataclass
class Pass:
    """One forward. `yf`, `halt` are a list of rows of [T, D], [T]; `halted_at` [T] counts from 1."""

    model: Oracle
    text: OracleText
    training: bool
    admitted: list[int] = field(default_factory=list)
    yf: list[Tensor] = field(default_factory=list)
    halt: list[Tensor] = field(default_factory=list)
    halted_at: list[int] = field(default_factory=list)
    first_row: list[tuple[list[int], list[float]]] = field(default_factory=list)
    load: Tensor | None = None
    balance: Tensor | None = None
    dropped: int = 0
    routed: int = 0
    margin: float = math.inf

    def close_call(self, gap: float) -> None:
        self.margin = min(self.margin, abs(gap))


def run(
    model: Oracle,
    text: OracleText,
    ids: Sequence[int],
    rows: int,
    training: bool = False,
    bptt: int | None = None,
    share: Tensor | None = None,
) -> Pass:
    """Read `ids` behind what `text` holds. `share` [E] is each expert's share of recent admissions."""
    done = Pass(model, text, training)
    p, shape = model.parameters, model.shape
    first = text.position
    text.seen.extend(ids)
    x = torch.stack(
        [p["tok_emb.weight"][i] + _ngrams(model, text.seen[: first + t + 1]) for t, i in enumerate(ids)]
    )
    layer = 0
    for block in range(shape.n_prelude):
        x = _dense_block(model, f"prelude.{block}", x, text.layers[layer], first)
        layer += 1
    h = torch.zeros_like(x)
    remaining = [1.0] * len(ids)
    halted_at = [0] * len(ids)
    for row in range(rows):
        if bptt is not None and row < rows - bptt:
            h = h.detach()
        active = [t for t in range(len(ids)) if not halted_at[t]] if model.freezes else list(range(len(ids)))
        u = torch.stack([p["adapter.weight"] @ torch.cat((h[t], x[t])) for t in range(len(ids))])
        for block in range(shape.n_recur):
            name = f"recur.{block}"
            u = _attend(model, name, u, text.layers[layer], first)
            u = _pool_mlp(done, name, u, active, row, share)
            layer += 1
        h = torch.stack([h[t] if halted_at[t] else u[t] for t in range(len(ids))])
        y = h
        for block in range(shape.n_coda):
            y = _dense_block(model, f"coda.{block}", y, text.layers[layer], first)
            layer += 1
        yf = torch.stack([_norm(y[t], p["ln_f.weight"]) for t in range(len(ids))])
        halt = torch.sigmoid(yf @ p["halt.weight"][0] + p["halt.bias"][0])
        halt = _forced(model, halt, row, rows)
        for t in range(len(ids)):
            if not halted_at[t]:
                remaining[t] *= 1 - float(halt[t].detach())
                if row < rows - 1 and row >= model.depth.min_steps - 1:
                    done.close_call(1 - remaining[t] - model.depth.halt_thresh)
                if 1 - remaining[t] >= model.depth.halt_thresh:
                    halted_at[t] = row + 1
        done.yf.append(yf)
        done.halt.append(halt)
    done.halted_at = halted_at
    text.position += len(ids)
    return done


def logits(model: Oracle, yf: Tensor) -> Tensor:
    """Readout [D] -> [V]."""
    return model.parameters["tok_emb.weight"] @ yf


@torch.no_grad()
def reading(model: Oracle, text: OracleText, ids: Sequence[int]) -> tuple[Tensor, list[int], Pass]:
    """Logits [T, V] of the row where each character halted, that row, and the forward."""
    done = run(model, text, ids, model.shape.max_steps)
    chosen = [done.yf[row - 1][t] for t, row in enumerate(done.halted_at)]
    return torch.stack([logits(model, yf) for yf in chosen]), done.halted_at, done


@dataclass
class OracleLoss:
    """Terms of one training forward; `total` carries the gradient."""

    total: Tensor
    nats: Tensor
    ce: Tensor
    kl: Tensor
    rows: Tensor
    load: Tensor
    balance: Tensor


def loss(
    model: Oracle,
    ids: Sequence[int],
    targets: Sequence[int],
    rows: int,
    pool_aux: float,
    share: Tensor,
    text: OracleText | None = None,
) -> tuple[OracleLoss, Pass]:
    """The training loss of one new text, or of the next part of `text`, and its forward."""
    depth = model.depth
    text = text or model.new_text()
    text.detach()
    done = run(model, text, ids, rows, training=True, bptt=depth.bptt_window, share=share)
    prior = [depth.halt_prior * (1 - depth.halt_prior) ** n for n in range(rows)]
    prior = [g / sum(prior) for g in prior]
    nats, kls, depths = [], [], []
    for t, target in enumerate(targets):
        cum = torch.ones((), dtype=torch.float64)
        ce = kl = steps = torch.zeros((), dtype=torch.float64)
        for n in range(rows):
            scores = logits(model, done.yf[n][t])
            p = cum * done.halt[n][t]
            cum = cum * (1 - done.halt[n][t])
            ce = ce + p * (torch.logsumexp(scores, 0) - scores[target])
            kl = kl + p * (torch.log(p.clamp_min(FLOOR)) - math.log(max(prior[n], FLOOR)))
            steps = steps + (n + 1) * p
        nats.append(ce)
        kls.append(kl)
        depths.append(steps)
    ce, kl = torch.stack(nats).mean(), torch.stack(kls).mean()
    assert done.load is not None and done.balance is not None
    balance = model.routing.balance * done.balance
    total = ce + depth.ponder_beta * kl + pool_aux * done.load + balance
    return OracleLoss(total, torch.stack(nats), ce, kl, torch.stack(depths).mean(), done.load, balance), done


# ---------------------------------------------------------------------------------------------- parts


def _ngrams(model: Oracle, seen: list[int]) -> Tensor:
    """The rows of the n-grams that end with the last of `seen`, summed: the hash of an n-gram is a number in
    base MULTIPLIER, its newest character first, taken modulo a prime; absent characters are 0."""
    shape, total = model.shape, torch.zeros(model.shape.d_model, dtype=torch.float64)
    backwards = [symbol + 1 for symbol in reversed(seen)] + [0] * shape.ngram
    for n in range(2, shape.ngram + 1):
        hashed = sum(s * 0x2E6F1A35 ** (n - 1 - i) for i, s in enumerate(backwards[:n])) % (2**31 - 1)
        total = (
            total + model.parameters["ngram.weight"][(n - 2) * shape.ngram_rows + hashed % shape.ngram_rows]
        )
    if shape.word_rows:
        for kind, hashed in enumerate(_word_hashes(seen)):
            place = (shape.ngram - 1) * shape.ngram_rows + kind * shape.word_rows + hashed % shape.word_rows
            total = total + model.parameters["ngram.weight"][place]
    return total


def _word_hashes(seen: list[int]) -> tuple[int, int]:
    """The word that ends with the last of `seen`, and that with the word before it; behind a word the last
    character with that word, and these with the word before that. A word is its last 16 characters, small
    letters for capitals, as a number in base MULTIPLIER whose lowest digit is the newest; a word that ended
    more than 32 characters ago is none."""
    base, prime, last = 0x2E6F1A35, 2**31 - 1, len(seen) - 1
    text = "".join(chr(symbol) if symbol < 256 else "\n" for symbol in seen)
    small = [symbol + 32 if 65 <= symbol <= 90 else symbol for symbol in seen]

    def number(word: re.Match[str]) -> int:
        if last - (word.end() - 1) > 32:
            return 0
        letters = small[word.start() : word.end()][-16:]
        return sum((s + 1) * base**i for i, s in enumerate(reversed(letters))) % prime

    numbers = [0, 0, *map(number, re.finditer(r"[A-Za-z0-9_'\x80-\xff]+", text))]
    if re.search(r"[A-Za-z0-9_'\x80-\xff]\Z", text):
        return numbers[-1], (numbers[-1] * base + numbers[-2]) % prime
    here = ((small[last] + 1) * base + numbers[-1]) % prime
    return here, (here * base + numbers[-2]) % prime


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean() + EPS) * weight


def _swiglu(x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor) -> Tensor:
    a = w1 @ x
    return w2 @ (a * torch.sigmoid(a) * (w3 @ x))


@lru_cache(maxsize=4096)
def _turning(position: int, size: int, theta: float) -> Tensor:
    """[hd, hd]: turns each pair (even, odd) of a query or key by the position's angle for it."""
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for i in range(0, size, 2):
        angle = position * theta ** (-i / size)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(angle)
        matrix[i, i + 1], matrix[i + 1, i] = -math.sin(angle), math.sin(angle)
    return matrix


def _attend(model: Oracle, name: str, x: Tensor, cache: list[tuple[Tensor, Tensor]], first: int) -> Tensor:
    """x + attention; the characters' keys and values join the layer's cache."""
    p, heads, theta = model.parameters, model.shape.n_head, model.shape.rope_theta
    queries = []
    for t in range(x.shape[0]):
        qkv = p[f"{name}.attn.qkv.weight"] @ _norm(x[t], p[f"{name}.ln1.weight"])
        q, k, v = (part.view(heads, -1) for part in qkv.view(3, -1))
        turning = _turning(first + t, q.shape[1], theta)
        q, k = (torch.stack([turning @ head for head in part]) for part in (q, k))
        queries.append(q)
        cache.append((k, v))
    out = []
    for t, q in enumerate(queries):
        keys, values = (torch.stack(seen) for seen in zip(*cache[: first + t + 1], strict=True))
        chances = torch.softmax((keys * q).sum(-1) / math.sqrt(q.shape[1]), 0)  # (keys, heads)
        mixed = (chances[:, :, None] * values).sum(0)
        out.append(x[t] + p[f"{name}.attn.proj.weight"] @ mixed.flatten())
    return torch.stack(out)


def _dense_block(
    model: Oracle, name: str, x: Tensor, cache: list[tuple[Tensor, Tensor]], first: int
) -> Tensor:
    p = model.parameters
    x = _attend(model, name, x, cache, first)
    w1, w3, w2 = (p[f"{name}.mlp.{w}.weight"] for w in ("w1", "w3", "w2"))
    return torch.stack([c + _swiglu(_norm(c, p[f"{name}.ln2.weight"]), w1, w3, w2) for c in x])


def _expert(weights: Mapping[str, Tensor], x: Tensor, depth: int) -> Tensor:
    if depth == 1:
        return _swiglu(x, weights["w1"], weights["w3"], weights["w2"])
    for level in range(depth):
        prefix = f"b{level - 1}_" if level else ""
        x = x + _swiglu(x, weights[f"{prefix}w1"], weights[f"{prefix}w3"], weights[f"{prefix}w2"])
    return x


def _forced(model: Oracle, halt: Tensor, row: int, rows: int) -> Tensor:
    if row == rows - 1:
        return torch.ones_like(halt)
    return torch.zeros_like(halt) if row < model.depth.min_steps - 1 else halt


# ------------------------------------------------------------------------------------------- the pool


def _pool_mlp(done: Pass, name: str, u: Tensor, active: list[int], row: int, share: Tensor | None) -> Tensor:
    """u + experts(norm u) for the active characters; the others as they are."""
    model = done.model
    p, routing, shape = model.parameters, model.routing, model.shape
    router, depth_emb = p[f"{name}.mlp.router.weight"], p[f"{name}.mlp.depth_emb"]
    f = {t: _norm(u[t], p[f"{name}.ln2.weight"]) for t in active}
    if not f:
        return u
    room = min(routing.resident, len(model.experts)) - len(done.admitted)
    if room > 0:
        _ask(done, [f[t].detach() + depth_emb for t in active], router, row, room, share)
    admitted = sorted(done.admitted)
    bound = math.inf
    if routing.capacity_factor:
        bound = math.ceil(routing.capacity_factor * len(f) * shape.top_k / routing.resident)
    served = dict.fromkeys(admitted, 0)
    scores, chances, firsts, out = [], [], [], {}
    for t in active:
        z = torch.stack([router[e] @ (f[t] + depth_emb) for e in admitted])
        q = torch.softmax(z, 0)
        best, gap = _top(q, shape.top_k)
        done.close_call(gap)
        weights = torch.stack([q[i] for i in best])
        weights = weights / weights.sum() * torch.stack([p["pool.gate"][admitted[i]] for i in best])
        total = torch.zeros_like(u[t])
        for weight, i in zip(weights, best, strict=True):
            served[admitted[i]] += 1
            done.routed += 1
            if served[admitted[i]] > bound:
                done.dropped += 1
            else:
                total = total + weight * _expert(model.experts[admitted[i]], f[t], shape.expert_depth)
        out[t] = total
        scores.append(z)
        chances.append(q)
        firsts.append(best[0])
        if row == 0:
            done.first_row.append(([admitted[i] for i in best], weights.tolist()))
    n = len(admitted)
    used = torch.bincount(torch.tensor(firsts), minlength=n) / len(firsts)
    spread = torch.stack([torch.logsumexp(z, 0) ** 2 for z in scores]).mean()
    done.load = n * (used * torch.stack(chances).mean(0)).sum() + 1e-3 * spread
    return torch.stack([u[t] + out[t] if t in out else u[t] for t in range(u.shape[0])])


def _ask(done: Pass, keyed: list[Tensor], router: Tensor, row: int, room: int, share: Tensor | None) -> None:
    """Ask over the whole pool, let the text's vote or this row's asking admit experts, owe the balance."""
    chances = [torch.softmax(router @ key.detach(), 0) for key in keyed]  # the router's rows alone learn
    if done.training and done.balance is None:
        assert share is not None
        mean = torch.stack(chances).mean(0)
        done.balance = len(mean) * (share.double() * mean).sum() - 1
    mass = [0.0] * router.shape[0]
    for q in chances:
        best, gap = _top(q, done.model.shape.top_k)
        done.close_call(gap)
        for e in best:
            mass[e] += float(q[e].detach())
    if row == 0:
        asked = torch.tensor(mass, dtype=torch.float64)
        done.text.vote = asked if done.text.vote is None else done.text.vote + asked
        mass = done.text.vote.tolist()
    wanted = [e for e in range(len(mass)) if mass[e] > 0 and e not in done.admitted]
    wanted.sort(key=lambda e: (-mass[e], e))
    if len(wanted) > room:
        done.close_call(mass[wanted[room - 1]] - mass[wanted[room]])
    done.admitted += wanted[:room]


def _top(q: Tensor, k: int) -> tuple[list[int], float]:
    """Places of the k largest, best first, and the smallest gap that this choice or its order hangs on."""
    values = q.tolist()
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    ranked = [values[i] for i in order[: k + 1]]
    gap = min((a - b for a, b in itertools.pairwise(ranked)), default=math.inf)
    return order[:k], gap


# ---------------------------------------------------------------------------------------------- a step


@dataclass
class OracleAdam:
    """AdamW, one number at a time's worth of thought: m, v and the step count by name.

    Experts' names are (place, tensor); they share one count, which every step moves on.
    """

    beta2: float
    decay: float
    clip: float
    ngram_lr_mult: float = 0.0
    m: dict[object, Tensor] = field(default_factory=dict)
    v: dict[object, Tensor] = field(default_factory=dict)
    steps: dict[object, float] = field(default_factory=dict)
    expert_steps: float = 0

    def step(self, model: Oracle, admitted: Sequence[int], lr: float, trunk_lr: float) -> float:
        """Step every parameter and the admitted experts by their gradients; the norm before clipping."""
        stepped: dict[object, Tensor] = {n: w for n, w in model.parameters.items() if n != "ngram.squares"}
        stepped |= {(e, name): w for e in admitted for name, w in model.experts[e].items()}
        grads = {key: torch.zeros_like(w) if w.grad is None else w.grad for key, w in stepped.items()}
        norm = math.sqrt(sum(float((g.detach() ** 2).sum()) for g in grads.values()))
        for key, w in stepped.items():
            expert = isinstance(key, tuple)
            t = self.expert_steps + 1 if expert else self.steps.get(key, 0) + 1
            if not expert:
                self.steps[key] = t
            g = grads[key] / max(norm / self.clip, 1.0)
            if key == "ngram.weight":
                _adagrad(w, model.parameters["ngram.squares"], g, lr * self.ngram_lr_mult)
                continue
            m = 0.9 * self.m.get(key, torch.zeros_like(g)) + 0.1 * g
            v = self.beta2 * self.v.get(key, torch.zeros_like(g)) + (1 - self.beta2) * g * g
            self.m[key], self.v[key] = m, v
            rate = lr if expert or _of_the_pool(str(key)) else trunk_lr
            with torch.no_grad():
                if w.dim() > 1:
                    w.mul_(1 - rate * self.decay)
                w.sub_(rate * (m / (1 - 0.9**t)) / (torch.sqrt(v / (1 - self.beta2**t)) + 1e-8))
        self.expert_steps += 1
        for weights in (model.parameters, *model.experts):
            for w in weights.values():
                w.grad = None
        return norm


@torch.no_grad()
def _adagrad(rows: Tensor, squares: Tensor, grad: Tensor, rate: float) -> None:
    """One sum of mean squares a row, forgetting slowly; rows without a gradient stay."""
    for place in range(rows.shape[0]):
        if bool((grad[place] != 0).any()):
            squares[place] = squares[place] * (1 - 1 / 16_384) + (grad[place] ** 2).mean()
            rows[place] -= rate * grad[place] / (torch.sqrt(squares[place]) + 1e-10)


def _of_the_pool(name: str) -> bool:
    return name.startswith("pool.") or name.endswith(("router.weight", "depth_emb"))
