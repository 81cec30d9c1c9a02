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
    "full" runs the shape's rows for every one of them. The weights stay, and it is one random window that is
    read every time: a halting head that halves one text does not halve another.
    """
    changes: dict[str, object] = {"training.average_chars": 0}  # rows are counted on the weights trained
    if halting == "half":
        changes["model.min_steps"] = 1
    found: dict[str, Any] = {"shape": recipe.shape, "window": window, "halting": halting}
    ids = random_text(np.random.default_rng(0), window + 1)
    with recipe.made(changes) as engine, products_beside(found):
        if halting == "half":
            halt_half(engine, ids[:-1])
        seconds = []
        for _ in range(WARM_STEPS + steps):
            began = time.perf_counter()
            step(engine, ids, rate=0.0)  # a halting head stays as it was set
            seconds.append(time.perf_counter() - began)
        taken = rows_taken(engine, ids[:-1]).float()
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
def halt_half(engine: Engine, ids: torch.Tensor) -> None:
    """Set the halting head so that half of the characters of ids [T] halt in the first half of the rows.

    Its weights point in a random direction, scaled so that characters differ; the bias is found by halving.
    """
    halt, middle = engine.net.halt, engine.shape.max_steps // 2
    direction = torch.randn(halt.weight.shape, generator=torch.Generator().manual_seed(0))
    direction = direction.to(halt.weight.device)
    halt.weight.zero_()
    halt.bias.fill_(-20.0)  # nobody halts while readouts are gathered
    forward = Forward(engine.pool, engine.net.new_text(1), engine.routing)
    *_, last = engine.net.rows(ids.to(halt.weight.device), forward, Plan(engine.shape.max_steps))
    halt.weight.copy_(direction * (HALVED / (last.yf.float() @ direction.t()).std()))
    low, high = -20.0, 20.0
    for _ in range(16):
        halt.bias.fill_((low + high) / 2)
        few = float((rows_taken(engine, ids) <= middle).float().mean()) < 0.5
        low, high = (float(halt.bias), high) if few else (low, float(halt.bias))
