"""Characters a second in training: `python -m bench.train --shape tiny --window 512`."""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import torch

from bench.shapes import fresh_engine, settings_of
from minagi.model.loss import training_loss
from minagi.model.routing import Forward
from minagi.training.engine import POOL_AUX


def gflops(dtype: torch.dtype, size: int = 1024) -> float:
    """What this machine multiplies now, in GFLOP/s: the figure that speeds are to be held against."""
    a, b = torch.randn(2, size, size).to(dtype)
    best = 0.0
    for _ in range(6):
        began = time.perf_counter()
        for _ in range(4):
            a @ b
        best = max(best, 4 * 2 * size**3 / (time.perf_counter() - began) / 1e9)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="tiny", help="seed, tiny, or a profile")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="auto")
    arguments = parser.parse_args()
    settings = settings_of(arguments.shape, arguments.precision)
    engine = fresh_engine(settings, arguments.threads)
    rng = np.random.default_rng(0)
    rows = engine.shape.max_steps
    seconds, taken = [], []
    for step in range(arguments.steps + 3):
        ids = torch.from_numpy(rng.integers(32, 127, arguments.window + 1))
        began = time.perf_counter()
        forward = Forward(engine.pool, engine.net.new_text(1), engine.routing, training=True)
        loss = training_loss(engine.net, ids[:-1], ids[1:], forward, rows, POOL_AUX)
        loss.total.backward()
        norm = engine.optimiser.norm()
        engine.optimiser.step(1e-4, 1e-4, norm)
        if step >= 3:
            seconds.append(time.perf_counter() - began)
            taken.append(float(loss.rows))
    print(
        json.dumps(
            {
                "shape": arguments.shape,
                "window": arguments.window,
                "characters_per_second": round(arguments.window / statistics.median(seconds), 1),
                "rows": round(statistics.mean(taken), 3),
                "peak_bytes": engine.hardware.memory_peak(),
                "precision": engine.hardware.precision,
                "threads": arguments.threads,
                "gflops_fp32": round(gflops(torch.float32)),
                "gflops_bf16": round(gflops(torch.bfloat16)),
            }
        )
    )


if __name__ == "__main__":
    main()
