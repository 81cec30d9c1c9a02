"""Small models for the tests of the weights directory: states, directories, and what is in them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from minagi.weights import CheckpointState, ExpertRecord, Store, layout

FIXTURE = Path(__file__).parents[3] / "shared" / "fixtures" / "small" / "weights"

CFG = {
    "vocab_size": 265, "n_layer": 3, "n_head": 1, "d_model": 4, "block": 64, "d_ff": 3, "rope_theta": 10000.0,
    "tie_embeddings": True, "use_pool": True, "pool_experts": 3, "pool_d_ff": 2, "pool_depth": 1,
    "pool_top_k": 2, "pool_capacity_factor": 0.0, "pool_max": 8, "pool_aux": 0.01, "n_prelude": 1,
    "n_recur": 1, "n_coda": 0, "max_steps": 3, "min_steps": 1, "train_steps_mean": 0.0, "bptt_window": 3,
    "ponder_beta": 0.01, "halt_prior": 0.25, "halt_thresh": 0.9, "halt_freeze": True, "pool_resident": 2,
}  # fmt: skip


def numbers(shapes: layout.Shapes, seed: int) -> dict[str, np.ndarray]:
    """Random fp32 arrays of these shapes."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in shapes.items()}


def expert(uid: int, seed: int, cfg: dict = CFG, moments: bool = True) -> ExpertRecord:
    """An expert whose numbers depend on uid and seed."""
    shapes = layout.expert_shapes(cfg)
    weights = numbers(shapes, 1000 * seed + uid)
    if not moments:
        return ExpertRecord(uid, weights)
    state = numbers({f"{n}_{k}": size for n, size in shapes.items() for k in "mv"}, 7000 * seed + uid)
    return ExpertRecord(uid, weights, {n: np.abs(a) if n.endswith("v") else a for n, a in state.items()})


def state(
    uids: Iterable[int], seed: int, changed: Iterable[int] | None = None, cfg: dict = CFG
) -> CheckpointState:
    """A whole model at step `seed`; `changed` experts (all of them by default) are held in memory."""
    uids = list(uids)
    core = numbers(layout.core_shapes(cfg), seed)
    routers = numbers(layout.router_shapes(cfg, len(uids)), seed + 1)
    optim = {
        name: (array * 0.5, np.abs(array), float(seed))
        for name, array in {**core, **routers}.items()
        if name != "head.weight"
    }
    optim |= {f"pool.{name}": (None, None, float(seed)) for name in ("w1", "w3", "w2")}
    telemetry = {"uid": uids, "next_uid": max(uids) + 1, "segments": 10 * seed, "gate": [1.0] * len(uids)}
    manifest = {
        "step": seed,
        "val": 3.0 - seed / 100,
        "cfg": dict(cfg),
        "telemetry": telemetry,
        "read_chars": 100 * seed,
    }
    held = uids if changed is None else list(changed)
    return CheckpointState(manifest, core, routers, optim, {u: expert(u, seed, cfg) for u in held}, uids)


def make(path: Path, uids: Iterable[int] = (0, 1, 2), seed: int = 1, cfg: dict = CFG) -> Path:
    """A saved model in `path`."""
    with Store.open(path, write=True, clock=lambda: 1000.0) as store:
        store.checkpoint(state(uids, seed, cfg=cfg))
    return path


def has_spill(store: Store, uid: int) -> bool:
    """Whether an expert is newer in the spill than in the checkpoint."""
    return store._spill is not None and uid in store._spill


def public(path: Path) -> dict[str, bytes]:
    """Every file of the public layout, with its bytes."""
    found = {}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and name.parts[0] != layout.PRIVATE:
            found[str(name)] = file.read_bytes()
    return found


def everything(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and time of change: what a reader must leave as it is."""
    return {
        str(f.relative_to(path)): (f.read_bytes(), f.lstat().st_mtime_ns)
        for f in sorted(path.rglob("*"))
        if f.is_file()
    }


def edit_manifest(path: Path, **changes: object) -> None:
    """Changes top-level keys of a manifest; None removes one."""
    file = path / layout.MANIFEST
    manifest = {**json.loads(file.read_text()), **changes}
    replace(file, json.dumps({k: v for k, v in manifest.items() if v is not None}).encode())


def replace(file: Path, data: bytes) -> None:
    """Puts new bytes in a file's place, leaving other names of the old file alone."""
    file.unlink(missing_ok=True)
    file.write_bytes(data)
