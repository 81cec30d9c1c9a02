"""`minagi bench train`: characters a second in training, on fresh weights and random text."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch

from minagi.bench.machine import products_beside
from minagi.bench.shapes import Recipe, ran_on, random_text
from minagi.model.loss import sample_rows, training_loss
from minagi.model.reading import read
from minagi.model.recurrence import Plan
from minagi.model.routing import Forward
from minagi.training.engine import POOL_AUX, Engine

WARM_STEPS = 3
RATE = 1e-4
HALVED = 0.5  # standard deviation, over characters, of the halting head's logits where half halt early


def train(recipe: Recipe, window: int, steps: int, halting: str = "full") -> dict[str, Any]:
    """Median characters a second over `steps` steps of one window, after three that are not counted.

    `halting` "half" sets the halting head so that half of the characters stop by the middle row, where
    "full" runs the shape's rows for every one of them.
    """
    changes: dict[str, object] = {"training.average_chars": 0}  # rows are counted on the weights trained
    if halting == "half":
        changes["model.min_steps"] = 1
    found: dict[str, Any] = {"shape": recipe.shape, "window": window, "halting": halting}
    rng = np.random.default_rng(0)
    with recipe.made(changes) as engine, products_beside(found):
        if halting == "half":
            halt_half(engine, window, rng)
        seconds = []
        for _ in range(WARM_STEPS + steps):
            ids = random_text(rng, window + 1)
            began = time.perf_counter()
            step(engine, ids, rate=0.0)  # a halting head stays as it was set
            seconds.append(time.perf_counter() - began)
        taken = rows_taken(engine, random_text(rng, window)).float()
        middle = (engine.shape.max_steps + 1) // 2
        found |= {
            "characters_per_second": round(window / statistics.median(seconds[WARM_STEPS:]), 1),
            "steps": steps,
            "rows": round(float(taken.mean()), 3),
            "halted_by_middle_row": round(float((taken <= middle).float().mean()), 3),
            **ran_on(engine),
        }
    return found


def step(engine: Engine, ids: torch.Tensor, rate: float = RATE) -> Forward:
    """One training step on ids [T + 1]: forward, backward, optimiser."""
    forward = Forward(engine.pool, engine.net.new_text(1), engine.routing, training=True)
    rows = sample_rows(engine.net, None)
    ids = ids.to(engine.net.tok_emb.weight.device)
    training_loss(engine.net, ids[:-1], ids[1:], forward, rows, POOL_AUX).total.backward()
    engine.optimiser.step(rate, rate, engine.optimiser.norm())
    return forward


def rows_taken(engine: Engine, ids: torch.Tensor) -> torch.Tensor:
    """[T] the row each character of a new text halts at, counted from 1."""
    forward = Forward(engine.pool, engine.net.new_text(1), engine.routing)
    return read(engine.net, ids.to(engine.net.tok_emb.weight.device), forward, cached=False).rows.cpu()


@torch.no_grad()
def halt_half(engine: Engine, window: int, rng: np.random.Generator) -> None:
    """Set the halting head so that half of the characters of random text halt in the first half of the rows.

    Every kind of character is given a number; the head's weights are those that tell it best from the
    readout in the middle row, scaled so that characters differ in when they halt, and the bias is found by
    halving. So which text is read makes little difference.
    """
    halt, middle = engine.net.halt, engine.shape.max_steps // 2
    halt.weight.zero_()
    halt.bias.fill_(-20.0)  # nobody halts while readouts are gathered
    texts = [random_text(rng, window) for _ in range(1 + 4 * engine.shape.d_model // window)]
    numbers = torch.from_numpy(rng.standard_normal(engine.shape.vocab_size)).float()
    readouts = torch.cat([_readout(engine, ids, middle - 1) for ids in texts])
    readouts = readouts - readouts.mean(0)
    told = torch.linalg.lstsq(readouts, numbers[torch.cat(texts)][:, None]).solution
    halt.weight.copy_(told.t() * (HALVED / (readouts @ told).std()))
    low, high = -20.0, 20.0
    for _ in range(16):
        halt.bias.fill_((low + high) / 2)
        early = sum(int((rows_taken(engine, ids) <= middle).sum()) for ids in texts[:4])
        few = early < window * len(texts[:4]) / 2
        low, high = (float(halt.bias), high) if few else (low, float(halt.bias))


def _readout(engine: Engine, ids: torch.Tensor, row: int) -> torch.Tensor:
    """Normed readouts [T, D] of a new text in this row, counted from 0; nobody may have halted before."""
    forward = Forward(engine.pool, engine.net.new_text(1), engine.routing)
    rows = engine.net.rows(ids.to(engine.net.tok_emb.weight.device), forward, Plan(engine.shape.max_steps))
    return next(found.yf for found in rows if found.index == row).float().cpu()
