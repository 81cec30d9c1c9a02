"""`minagi bench page` and `minagi bench pool`: what it costs that experts live on disk."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minagi.bench.machine import SECONDS, best_seconds, copy_rate, products_beside, read_rate
from minagi.bench.shapes import Recipe, ran_on, random_text
from minagi.bench.training import WARM_STEPS, step
from minagi.errors import UsageError
from minagi.model.layers import linear_fp32
from minagi.training.engine import Engine

GB = 1e9
POOL_KINDS = 12  # different characters in a window of `pool`: each window then votes for experts of its own


def page(recipe: Recipe) -> dict[str, Any]:
    """Bytes a second in which one expert reaches the card, from RAM and from a file the system holds.

    For a forward its weights travel; for a step its moments as well. Each is held against a plain copy of
    as many bytes, or a plain read of the same file.
    """
    with recipe.made({"pool.experts": 2, "pool.top_k": 1, "pool.resident": 1}) as engine:
        engine.store.checkpoint(engine.state({}, copy=False))
        engine.settle()
        pool, store = engine.pool, engine.store
        record = store.read_expert(0)
        weights = sum(array.nbytes for array in record.weights.values())
        moments = sum(array.nbytes for array in (record.moments or {}).values())
        file = store.path / "experts" / "e00000.npz"

        def from_ram() -> None:
            pool.slots.load_weights(0, record.weights)

        def from_disk() -> None:
            whole = store.read_expert(0)
            pool.slots.load_weights(0, whole.weights)
            pool.slots.load_moments(0, whole.moments)

        def weights_from_disk() -> None:
            pool.slots.load_weights(0, store.read_expert(0, moments=False).weights)

        size = file.stat().st_size
        rates = {
            "ram": weights / best_seconds(from_ram, SECONDS),
            "memcpy": copy_rate(weights),
            "disk": size / best_seconds(from_disk, SECONDS),
            "disk_weights": weights / best_seconds(weights_from_disk, SECONDS),
            "read": read_rate(file),
        }
        return {
            "shape": recipe.shape,
            "expert_file_bytes": size,
            "expert_weight_bytes": weights,
            "expert_moment_bytes": moments,
            "gigabytes_per_second": {name: round(rate / GB, 2) for name, rate in rates.items()},
            "ram_to_memcpy": round(rates["ram"] / rates["memcpy"], 3),
            "disk_to_read": round(rates["disk"] / rates["read"], 3),
            "disk_weights_to_read": round(rates["disk_weights"] / rates["read"], 3),
            **ran_on(engine),
        }


def pool(recipe: Recipe, window: int, steps: int, sizes: Sequence[int] = (64, 256, 1024)) -> dict[str, Any]:
    """Seconds a character costs in training as the pool on disk grows, the router's share taken off.

    Every window is made of twelve characters drawn anew, so that windows vote for different experts and
    paging goes on all the time. RAM holds twice what the card holds, whatever the pool's size.
    """
    found: dict[str, Any] = {"shape": recipe.shape, "window": window, "steps": steps}
    with products_beside(found):
        points = [_cost(recipe, window, steps, experts) for experts in sizes]
    costs = [point["microseconds_per_character"] - point["router_microseconds"] for point in points]
    last = points[-1]["ran_on"]
    for point in points:
        del point["ran_on"]
    found |= {
        "pools": points,
        "characters_per_second": round(1e6 / points[0]["microseconds_per_character"], 1),
        "growth": round(max(costs) / costs[0], 3),
        **last,
    }
    return found


def _cost(recipe: Recipe, window: int, steps: int, experts: int) -> dict[str, Any]:
    settings = recipe.settings()
    expert = 8 * 3 * settings.model.d_model * settings.pool.width
    check_room(2 * experts * expert, f"{experts} experts of this shape")  # their files and the spill
    rng = np.random.default_rng(0)
    with recipe.made({"pool.experts": experts, "pool.ram_cache": 2 * settings.pool.resident}) as engine:
        engine.store.checkpoint(engine.state({}, copy=False))
        engine.settle()
        engine.pool.drop_all()
        seconds, loads = [], engine.pool.loads
        for _ in range(WARM_STEPS + steps):
            ids = random_text(rng, window + 1, POOL_KINDS)
            began = time.perf_counter()
            step(engine, ids)
            seconds.append(time.perf_counter() - began)
        return {
            "experts": experts,
            "microseconds_per_character": round(statistics.median(seconds[WARM_STEPS:]) / window * 1e6, 2),
            "router_microseconds": round(_router_seconds(engine, window) / window * 1e6, 2),
            "loads_per_step": round((engine.pool.loads - loads) / (WARM_STEPS + steps), 2),
            "ran_on": ran_on(engine),
        }


def _router_seconds(engine: Engine, window: int) -> float:
    """What asking the whole pool costs in a step: scores, softmax, the best of them, the balance term's
    gradient, and Adam over the router's rows."""
    device = engine.net.tok_emb.weight.device
    weight = torch.randn(engine.pool.experts, engine.shape.d_model, device=device).requires_grad_()
    inputs = torch.randn(window, engine.shape.d_model, device=device)
    optimiser = torch.optim.AdamW([weight], fused=True)

    def ask() -> None:
        q = linear_fp32(inputs, weight).softmax(-1)
        q.mean(0).square().sum().backward()
        q.detach().topk(engine.shape.top_k, -1)
        optimiser.step()
        optimiser.zero_grad()

    return best_seconds(ask, SECONDS)


def check_room(need: int, what: str) -> None:
    """UsageError where the scratch folder's disk has no room for `need` bytes, which `what` takes."""
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    if need > free:
        raise UsageError(
            f"{what} need {need / GB:.1f} GB in {folder}, and {free / GB:.1f} GB are free there. "
            "Set TMPDIR to a larger disk, or measure a smaller shape."
        )
