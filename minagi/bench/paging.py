"""`minagi bench page` and `minagi bench pool`: what it costs that experts live on disk."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minagi.bench.machine import SECONDS, best_seconds, copy_rate, products_beside, read_rate
from minagi.bench.shapes import Recipe, ran_on, random_text
from minagi.bench.training import WARM_STEPS, step
from minagi.config import Settings
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
        engine.store.checkpoint(engine.state({}))
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
    """What a character costs in training as the pool on disk grows, the router's share taken off.

    Every window is made of twelve characters drawn anew, so that windows vote for different experts and
    paging goes on all the time. RAM holds twice what the card holds, whatever the pool's size. The pools
    take turns, so that whatever else the machine does meets all of them.
    """
    settings = recipe.settings()
    expert = 8 * 3 * settings.model.d_model * settings.pool.width
    check_room(2 * sum(sizes) * expert, f"{sum(sizes)} experts of this shape")  # their files and the spill
    found: dict[str, Any] = {"shape": recipe.shape, "window": window, "steps": steps}
    with products_beside(found), ExitStack() as stack:
        timed = [_Timed(stack.enter_context(_on_disk(recipe, settings, size)), window) for size in sizes]
        for _ in range(WARM_STEPS + steps):
            for each in timed:
                each.step()
        points = [each.found() for each in timed]
        found |= ran_on(timed[-1].engine)
    costs = [point["microseconds_per_character"] - point["router_microseconds"] for point in points]
    return {
        **found,
        "pools": points,
        "characters_per_second": round(1e6 / points[0]["microseconds_per_character"], 1),
        "growth": round(max(costs) / costs[0], 3),
    }


@contextmanager
def _on_disk(recipe: Recipe, settings: Settings, experts: int) -> Iterator[Engine]:
    """A newborn whose experts are all on disk."""
    with recipe.made({"pool.experts": experts, "pool.ram_cache": 2 * settings.pool.resident}) as engine:
        engine.store.checkpoint(engine.state({}))
        engine.settle()
        engine.pool.drop_all()
        yield engine


class _Timed:
    """One pool of `pool`, and what its steps took."""

    def __init__(self, engine: Engine, window: int) -> None:
        self.engine, self.window = engine, window
        self._rng = np.random.default_rng(0)
        self._ask = _asking(engine, window)
        self._seconds: list[tuple[float, float]] = []  # of a step, of its router

    def step(self) -> None:
        ids = random_text(self._rng, self.window + 1, POOL_KINDS)
        began = time.perf_counter()
        step(self.engine, ids)
        stepped = time.perf_counter()
        self._ask()
        self._seconds.append((stepped - began, time.perf_counter() - stepped))

    def found(self) -> dict[str, Any]:
        whole, router = (statistics.median(part) for part in zip(*self._seconds[WARM_STEPS:], strict=True))
        return {
            "experts": self.engine.pool.experts,
            "microseconds_per_character": round(whole / self.window * 1e6, 2),
            "router_microseconds": round(router / self.window * 1e6, 2),
            "loads_per_step": round(self.engine.pool.loads / len(self._seconds), 2),
        }


def _asking(engine: Engine, window: int) -> Callable[[], None]:
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

    return ask


def check_room(need: int, what: str) -> None:
    """UsageError where the scratch folder's disk has no room for `need` bytes, which `what` takes."""
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    if need > free:
        raise UsageError(
            f"{what} need {need / GB:.1f} GB in {folder}, and {free / GB:.1f} GB are free there. "
            "Set TMPDIR to a larger disk, or measure a smaller shape."
        )
