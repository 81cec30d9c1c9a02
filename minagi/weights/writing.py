"""A checkpoint's files, made from the state of a model: what changed is written, the rest is shared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from minagi.errors import WeightsError
from minagi.weights import files, layout, snapshots, tensors
from minagi.weights.commit import Builder
from minagi.weights.layout import Model, Places
from minagi.weights.npz import Npz
from minagi.weights.snapshots import Snapshot
from minagi.weights.spill import Spilled, read_spilled
from minagi.weights.tensors import Arrays, ExpertRecord, Optim


@dataclass
class CheckpointState:
    """A model at one moment, to be written. Nobody changes its arrays until it is."""

    manifest: dict[str, Any]  # cfg, step, telemetry, …; what the files say of themselves is filled in
    core: Arrays
    routers: Arrays
    optim: Optim
    experts: dict[int, ExpertRecord]  # those held in memory that changed since the last checkpoint
    uids: list[int]  # every expert, in pool order
    average: Arrays = field(default_factory=dict)  # of trunk and routers, where the weights are averaged


@dataclass(frozen=True)
class Previous:
    """What is in place, and the snapshot of it."""

    manifest: dict[str, Any]
    model: Model | None
    snapshot: Snapshot | None


def build(
    places: Places,
    state: CheckpointState,
    spilled: Mapping[int, Spilled],
    previous: Previous,
    describe: Callable[[Model], snapshots.SnapshotInfo],
) -> tuple[Snapshot, Model, int]:
    """Makes the snapshot of `state` in `incoming/`; it, the model it holds, and the bytes that were written.

    `describe` gives the snapshot's info. WeightsError when the state does not hold together.
    """
    if len(set(state.uids)) != len(state.uids):
        raise WeightsError("The pool has an expert twice, so nothing was saved. This is a defect; report it.")
    manifest = _merged(previous.manifest, state.manifest)
    manifest["cfg"]["pool_experts"] = len(state.uids)
    shape = layout.check_shape(places.root / layout.MANIFEST, manifest, complete=True)
    builder = Builder(places)
    written = 0
    entries = []
    before = _entries(previous.manifest)
    for position, uid in enumerate(state.uids):
        written += _expert(builder, places, uid, state, spilled, previous, shape)
        gate = float(state.routers["pool.gate"][position])
        entries.append({**before.get(uid, {}), **_entry(builder.folder, uid, shape, gate)})
    written += tensors.write_core(builder.folder / layout.CORE, state.core, shape)
    written += tensors.write_routers(builder.folder / layout.ROUTERS, state.routers, shape)
    written += tensors.write_optim(builder.folder / layout.OPTIM, state.optim, state.average, shape)
    manifest.update(
        n_experts=len(state.uids),
        d_model=shape["d_model"],
        d_ff=shape["pool_d_ff"],
        paged=True,
        core_tensors=sorted(layout.core_shapes(shape)),
        router_tensors=sorted(layout.router_shapes(shape, len(state.uids))),
        experts=entries,
        total_bytes=sum(entry["bytes"] for entry in entries),
    )
    text = json.dumps(manifest, indent=1, default=_plain).encode()
    written += files.write_file(builder.folder / layout.MANIFEST, [text])
    for name in (layout.CORE, layout.ROUTERS, layout.OPTIM, layout.MANIFEST):
        builder.made(name)
    model = layout.read_model(places.root / layout.MANIFEST, layout.parse_manifest(places.root, text), ())
    return builder.seal(describe(model)), model, written


def _expert(
    builder: Builder,
    places: Places,
    uid: int,
    state: CheckpointState,
    spilled: Mapping[int, Spilled],
    previous: Previous,
    shape: Mapping[str, Any],
) -> int:
    """Puts one expert's file into the snapshot; the bytes that had to be written."""
    name = layout.expert_file(uid)
    kept = previous.model.experts.get(uid) if previous.model is not None else None
    if uid in state.experts:
        record = state.experts[uid]
    elif uid in spilled:
        record = read_spilled(spilled[uid])
    elif kept is not None and kept.endswith(".npz"):
        known = previous.snapshot.files.get(kept) if previous.snapshot is not None else None
        builder.keep(name, places.root / kept, known)
        return 0
    elif kept is not None:  # an older directory's flat file, rewritten in the present form
        record = tensors.read_flat_expert(places.root / kept, uid, shape)
    else:
        raise WeightsError(
            f"Expert {uid} is neither in memory nor on disk, so nothing was saved. Report this defect."
        )
    size = tensors.write_expert(builder.folder / name, record, shape)
    builder.made(name)
    return size


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`new` over `old`, key by key, in `cfg` and `telemetry` too: what is not known here is carried on."""
    merged = {**old, **new}
    for part in ("cfg", "telemetry"):
        before, after = old.get(part), new.get(part)
        if isinstance(before, dict) and isinstance(after, dict):
            merged[part] = {**before, **after}
    if isinstance(merged.get("cfg"), dict):
        merged["cfg"] = dict(merged["cfg"])
    return merged


def _entries(manifest: Mapping[str, Any]) -> dict[Any, dict[str, Any]]:
    """The experts' entries of a manifest by id, for the keys in them that are not known here."""
    listed = manifest.get("experts")
    return {entry.get("id"): entry for entry in listed} if isinstance(listed, list) else {}


def _entry(folder: Path, uid: int, shape: Mapping[str, Any], gate: float) -> dict[str, Any]:
    """An expert's entry in the manifest."""
    path = folder / layout.expert_file(uid)
    return {
        "id": uid,
        "file": path.name,
        "bytes": path.stat().st_size,
        "params": layout.numbers(layout.expert_shapes(shape)),
        "moments": _has_moments(path, files.identity(path)),
        "gate": gate,
    }


@lru_cache(maxsize=1 << 14)
def _has_moments(path: Path, identity: object) -> bool:
    """Whether an expert's file holds moments; asked once for every file there is."""
    with Npz(path) as archive:
        return any(name.endswith("_m") for name in archive.names)


def _plain(value: object) -> object:
    """numpy's numbers and arrays, for JSON."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"a manifest cannot hold a {type(value).__name__}")
