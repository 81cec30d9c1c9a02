"""Shapes that benchmarks run: fixed rows for every character, so that figures compare across versions."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minagi.config import Settings, load_settings, profiles
from minagi.errors import UsageError
from minagi.hardware import detect
from minagi.training.engine import Engine
from minagi.weights import Store

# name -> settings beside the defaults, and the rows every character runs
SHAPES: dict[str, tuple[dict[str, object], int]] = {
    "seed": ({}, 12),
    "tiny": (
        {
            "model.d_model": 128, "model.n_head": 4, "model.d_ff": 352, "pool.experts": 16, "pool.width": 256,
            "pool.top_k": 4, "pool.resident": 8,
        },
        3,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """How to make the newborn that is measured: a shape, or a profile by its name, and what it runs on."""

    shape: str
    precision: str = "auto"
    device: str = "auto"

    def settings(self, changes: dict[str, object] | None = None) -> Settings:
        """The settings it has, with `changes`. UsageError for a shape that there is not.

        A shape runs its fixed rows; a profile halts as its newborn halts.
        """
        values: dict[str, object] = {"training.precision": self.precision, **(changes or {})}
        nowhere = Path(tempfile.gettempdir()) / "minagi-bench-reads-no-settings-file"
        profile = None
        if self.shape in SHAPES:
            own, rows = SHAPES[self.shape]
            fixed = {
                "model.max_steps": rows, "model.bptt_window": rows, "model.train_steps_mean": 0.0,
                "model.min_steps": rows, "model.halt_prior": 1 / rows, "pool.capacity_factor": 1.5,
            }  # fmt: skip
            values = {**own, **fixed, **values}
        elif self.shape in profiles():
            profile = self.shape
        else:
            known = ", ".join([*SHAPES, *profiles()])
            raise UsageError(f"There is no shape {self.shape[:60]!r}. There are: {known}.")
        return load_settings(values, profile=profile, environ={}, cwd=nowhere, user_dir=nowhere).settings

    @contextmanager
    def made(self, changes: dict[str, object] | None = None, seed: int = 0) -> Iterator[Engine]:
        """A fresh model over a scratch folder, which goes with it."""
        settings = self.settings(changes)
        hardware = detect(self.device, settings.training.precision, settings)
        hardware = dataclasses.replace(hardware, threads=torch.get_num_threads())
        with (
            tempfile.TemporaryDirectory(prefix="minagi-bench-") as folder,
            Store.open(Path(folder) / "weights", write=True) as store,
        ):
            yield Engine.fresh(store, settings, hardware, seed)


def ran_on(engine: Engine) -> dict[str, Any]:
    """What a figure depends on: where it was computed and how, and the most memory that took."""
    hardware = engine.hardware
    return {
        "device": hardware.device,
        "precision": hardware.precision,
        "parameters": engine.parameters,
        "peak_bytes": hardware.memory_peak(),
    }


def random_text(rng: np.random.Generator, characters: int, kinds: int = 95) -> torch.Tensor:
    """Ids [characters] drawn evenly from `kinds` different printable characters."""
    alphabet = 32 + rng.permutation(95)[:kinds]
    return torch.from_numpy(rng.choice(alphabet, characters))
