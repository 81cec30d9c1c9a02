"""`minagi bench write`: characters a second in writing, each a forward of its own through the cache."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from minagi.bench.machine import products_beside
from minagi.bench.shapes import Recipe, ran_on, random_text
from minagi.config import Decoding
from minagi.training.writing import Writer

PROMPT_CHARS = 256
WARM_CHARS = 4


def write(recipe: Recipe, chars: int) -> dict[str, Any]:
    """Median pace of `chars` characters written after a random prompt of 256, by fresh weights."""
    decoding = Decoding()
    prompt = random_text(np.random.default_rng(0), PROMPT_CHARS).tolist()
    found: dict[str, Any] = {"shape": recipe.shape, "prompt": PROMPT_CHARS, "written": chars}
    with recipe.made() as engine, products_beside(found):
        window = PROMPT_CHARS + WARM_CHARS + chars + 1
        writer = Writer(engine, window, decoding.adapt_strength, decoding)
        times, rows, loads = [time.perf_counter()], [], []
        for character in writer.write(prompt, WARM_CHARS + chars):
            times.append(time.perf_counter())
            rows.append(character.rows)
            loads.append(character.loads)
        paces = np.diff(times[WARM_CHARS:])
        found |= {
            "characters_per_second": round(1 / statistics.median(paces), 2),
            "prompt_seconds": round(times[1] - times[0], 3),
            "rows": statistics.mean(rows),
            "loads": sum(loads[WARM_CHARS:]),
            **ran_on(engine),
        }
    return found
