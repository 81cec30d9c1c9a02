"""Shapes that benchmarks run: fixed rows for every character, so that figures compare across versions."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import torch

from minagi.config import Settings, load_settings
from minagi.hardware import detect
from minagi.training.engine import Engine
from minagi.weights import Store

# name -> settings beside the defaults, and the rows every character runs
SHAPES: dict[str, tuple[dict[str, object], int]] = {
    "seed": (
        {"pool.capacity_factor": 1.5},
        12,
    ),
    "tiny": (
        {
            "model.d_model": 128, "model.n_head": 4, "model.d_ff": 352, "pool.experts": 16, "pool.width": 256,
            "pool.top_k": 4, "pool.resident": 8, "pool.capacity_factor": 1.5,
        },
        3,
    ),
}  # fmt: skip


def settings_of(shape: str, precision: str = "auto") -> Settings:
    """The settings of a shape, or of a profile by its name."""
    if shape not in SHAPES:
        return load_settings(profile=shape, environ={}, cwd=Path(tempfile.gettempdir())).settings
    values, rows = SHAPES[shape]
    fixed = {
        "model.max_steps": rows, "model.bptt_window": rows, "model.train_steps_mean": 0.0,
        "model.min_steps": rows, "model.halt_prior": 1 / rows, "training.precision": precision,
    }  # fmt: skip
    return load_settings(values | fixed, environ={}, cwd=Path(tempfile.gettempdir())).settings


def fresh_engine(settings: Settings, threads: int, seed: int = 0) -> Engine:
    """A newborn of these settings in a scratch folder; halting held off where min_steps says so."""
    folder = Path(tempfile.mkdtemp(prefix="minagi-bench-"))
    store = Store.open(folder / "weights", write=False, scratch=folder / "spill")
    torch.set_num_threads(threads)
    hardware = detect("auto", settings.training.precision, settings)
    return Engine.fresh(store, settings, dataclasses.replace(hardware, threads=threads), seed)
