"""`minagi bench checkpoint`: how long training stands still for a checkpoint that is written meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minagi.bench.paging import GB, check_room
from minagi.bench.shapes import Recipe, ran_on, random_text
from minagi.bench.training import WARM_STEPS, step
from minagi.pool.copies import Copies
from minagi.training.engine import Engine
from minagi.weights import files

BESIDE_STEPS = 5  # steps timed while nothing is written


def checkpoint(recipe: Recipe, window: int, gigabytes: float = 1.0) -> dict[str, Any]:
    """Save a model of about `gigabytes` for the second time, between two steps of `window` characters.

    `pause_seconds` is how long training stands still for it (`pause_cpu_seconds` of them computing),
    `write_seconds` how long it takes from then until all is on the disk, `ratio` the one over the other.
    `plain_write_seconds` is what as many bytes take in one file.
    """
    settings = recipe.settings()
    model, pool = settings.model, settings.pool
    expert = 8 * 3 * model.d_model * pool.width
    experts = max(pool.resident, round(gigabytes * GB / expert))
    check_room(2 * experts * expert, f"{experts} experts of this shape")
    rng = np.random.default_rng(0)
    with recipe.made({"pool.experts": experts, "pool.ram_cache": 0}) as engine:

        def timed() -> float:
            began = time.perf_counter()
            step(engine, random_text(rng, window + 1))
            return time.perf_counter() - began

        timed()
        copies = Copies(engine.copied_bytes)
        _saved(engine, copies, timed)  # a run's first save also waits for the memory to be found
        before = [timed() for _ in range(WARM_STEPS + BESIDE_STEPS)][WARM_STEPS:]
        found = _saved(engine, copies.reused(), timed)
        during = found.pop("during")
        found["plain_write_seconds"] = _plain_write(engine.store.path, found["bytes_written"])
        return {
            "shape": recipe.shape,
            "experts": experts,
            "window": window,
            **{key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()},
            "step_seconds": round(statistics.median(before), 4),
            "step_seconds_meanwhile": round(statistics.median(during), 4) if during else None,
            **ran_on(engine),
        }


def _saved(engine: Engine, copies: Copies, timed: Callable[[], float]) -> dict[str, Any]:
    ended: list[float] = []
    began, computed = time.perf_counter(), time.thread_time()
    future = engine.store.begin_checkpoint(engine.state({}, copies))
    future.add_done_callback(lambda _: ended.append(time.perf_counter()))
    engine.settle()
    going_on, computed = time.perf_counter(), time.thread_time() - computed
    during = []
    while not future.done():
        during.append(timed())
    info = future.result()
    pause, write = going_on - began, ended[0] - began
    return {
        "pause_seconds": pause,
        "pause_cpu_seconds": computed,
        "write_seconds": write,
        "ratio": pause / write,
        "bytes_written": info.bytes_written,
        "during": during[:-1],  # the last one was alone for a part of it
    }


def _plain_write(folder: Path, size: int) -> float:
    """Seconds to write and sync one file of `size` bytes."""
    block = np.random.default_rng(0).bytes(1 << 24)
    path = folder / "plain"
    began = time.perf_counter()
    files.write_file(path, [block] * (size // len(block)))
    seconds = time.perf_counter() - began
    files.unlink(path)
    return seconds
