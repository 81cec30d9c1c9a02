"""The public directory layout: which files there are, which tensors they hold, and what a manifest may say.

    manifest.json  core.npz  routers.npz  optim.npz  experts/e00000.npz …

The layout is mini-AGI's (github.com/volotat/mini-AGI). Everything read from a manifest is checked here
before anything is made of it: kinds, ranges, names that stay inside the directory.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minagi.weights.faults import FileFault

MANIFEST = "manifest.json"
CORE = "core.npz"
ROUTERS = "routers.npz"
OPTIM = "optim.npz"
EXPERTS = "experts"
PRIVATE = ".minagi"  # everything of ours that is not part of the public layout
# Tensors in core.npz that Adam does not step:
NGRAM, NGRAM_SQUARES = "ngram.weight", "ngram.squares"
WORD_KINDS = 2  # kinds of word hashes that have rows of their own, behind those of n-grams
NGRAM_YOUNG, NGRAM_YOUNG_SQUARES = "ngram.young", "ngram.young_squares"  # while rows begin anew
FORMAT = 1  # the newest layout this program knows; a manifest without a number is of the first

MANIFEST_MAX = 1 << 28  # bytes
_FORMAT_KEYS = ("format", "format_version", "version")
_EXPERT_FILE = re.compile(r"e(\d{5,12})\.(npz|npy)")
_MODEL_FILE = re.compile(rf"(manifest\.json|(core|routers|optim)\.npz|{EXPERTS}/e\d{{5,12}}\.np[zy])")

Shapes = dict[str, tuple[int, ...]]

# key -> smallest and largest value of whole numbers that fix or bound the shape
_WHOLE = {
    "vocab_size": (265, 265),
    "n_layer": (0, 1 << 20),
    "n_head": (1, 1 << 12),
    "d_model": (1, 1 << 16),
    "block": (1, 1 << 28),
    "d_ff": (1, 1 << 20),
    "pool_experts": (1, 1 << 24),
    "pool_d_ff": (1, 1 << 20),
    "pool_depth": (1, 1 << 8),
    "pool_top_k": (1, 1 << 16),
    "pool_max": (0, 1 << 30),
    "pool_resident": (0, 1 << 24),
    "n_prelude": (0, 1 << 8),
    "n_recur": (1, 1 << 8),
    "n_coda": (0, 1 << 8),
    "max_steps": (1, 1 << 16),
    "ngram": (0, 1 << 6),
    "ngram_rows": (0, 1 << 28),
    "word_rows": (0, 1 << 28),
    "min_steps": (0, 1 << 16),
    "bptt_window": (0, 1 << 16),
}
_REAL = {
    "rope_theta": (1.0, 1e12),
    "pool_capacity_factor": (0.0, 1e9),
    "pool_aux": (0.0, 1e9),
    "train_steps_mean": (0.0, 1e9),
    "ponder_beta": (0.0, 1e9),
    "halt_prior": (0.0, 1.0),
    "halt_thresh": (0.0, 1.0),
}
_FLAGS = ("tie_embeddings", "use_pool", "halt_freeze", "ngram_young")
_NEEDED = ("n_head", "d_model", "d_ff", "n_prelude", "pool_d_ff", "pool_top_k", "max_steps")
_USUAL: dict[str, Any] = {
    "vocab_size": 265,
    "n_recur": 1,
    "n_coda": 0,
    "pool_depth": 1,
    "rope_theta": 10000.0,
    "tie_embeddings": True,
    "use_pool": True,
}


@dataclass(frozen=True)
class Model:
    """A manifest that holds: what the directory says it is."""

    manifest: dict[str, Any]
    shape: dict[str, Any]  # the checked cfg; pool_experts is the number of experts there are
    experts: dict[int, str]  # uid -> path below the directory, in pool order

    @property
    def files(self) -> list[str]:
        """Every file of the model, as paths below the directory; optim.npz may be absent."""
        return [MANIFEST, CORE, ROUTERS, OPTIM, *self.experts.values()]


@dataclass(frozen=True)
class Places:
    """Where things lie in one weights directory."""

    root: Path

    @property
    def private(self) -> Path:
        """Everything that is not part of the public layout."""
        return self.root / PRIVATE

    @property
    def lock(self) -> Path:
        """Who writes."""
        return self.private / "lock"

    @property
    def journal(self) -> Path:
        """The commit that is under way; its presence is the commit."""
        return self.private / "journal.json"

    @property
    def snapshots(self) -> Path:
        """One folder a kept checkpoint."""
        return self.private / "snapshots"

    @property
    def incoming(self) -> Path:
        """The snapshot that is being made."""
        return self.private / "incoming"

    @property
    def staged(self) -> Path:
        """Second names of the files about to be put in place."""
        return self.private / "staged"

    @property
    def trash(self) -> Path:
        """A snapshot that is being removed."""
        return self.private / "trash"

    @property
    def chat(self) -> Path:
        """What was said with the model; no checkpoint holds it and no revert changes it."""
        return self.private / "chat"

    @property
    def spill(self) -> Path:
        """Experts that left RAM since the last checkpoint."""
        return self.private / "spill"


def expert_file(uid: int) -> str:
    """Path of an expert's file below the weights directory."""
    return f"{EXPERTS}/e{uid:05d}.npz"


def is_model_file(name: str) -> bool:
    """Whether `name` is one that a file of a model may have, below its directory."""
    return _MODEL_FILE.fullmatch(name) is not None


# ------------------------------------------------------------------------------------------ tensors


def core_shapes(shape: Mapping[str, Any]) -> Shapes:
    """Name -> shape of every tensor in core.npz. `head.weight` is tied to `tok_emb.weight`."""
    d = shape["d_model"]
    shapes: Shapes = {"tok_emb.weight": (shape["vocab_size"], d)}
    for part, count in (("prelude", "n_prelude"), ("recur", "n_recur"), ("coda", "n_coda")):
        for i in range(shape[count]):
            block = f"{part}.{i}"
            shapes[f"{block}.ln1.weight"] = (d,)
            shapes[f"{block}.attn.qkv.weight"] = (3 * d, d)
            shapes[f"{block}.attn.proj.weight"] = (d, d)
            shapes[f"{block}.ln2.weight"] = (d,)
            if part != "recur":  # the recurrent block's mlp is the pool
                shapes[f"{block}.mlp.w1.weight"] = (shape["d_ff"], d)
                shapes[f"{block}.mlp.w3.weight"] = (shape["d_ff"], d)
                shapes[f"{block}.mlp.w2.weight"] = (d, shape["d_ff"])
    shapes["adapter.weight"] = (d, 2 * d)
    shapes["ln_f.weight"] = (d,)
    shapes["halt.weight"] = (1, d)
    shapes["halt.bias"] = (1,)
    shapes["head.weight"] = (shape["vocab_size"], d)
    return {**shapes, **ngram_shapes(shape)}


def ngram_shapes(shape: Mapping[str, Any]) -> Shapes:
    """The n-gram tables in core.npz and the sums of squares by which their rows are stepped, where the model
    has them, and the young ones beside them: no moments and no averages belong to these."""
    rows = max(shape.get("ngram", 0) - 1, 0) * shape.get("ngram_rows", 0)
    if not rows:
        return {}
    rows += WORD_KINDS * shape.get("word_rows", 0)
    shapes: Shapes = {NGRAM: (rows, shape["d_model"]), NGRAM_SQUARES: (rows,)}
    if shape.get("ngram_young"):
        shapes |= {NGRAM_YOUNG: (rows, shape["d_model"]), NGRAM_YOUNG_SQUARES: (rows,)}
    return shapes


def dense_shapes(shape: Mapping[str, Any]) -> Shapes:
    """Every tensor of trunk and routers that Adam steps."""
    shapes = {**core_shapes(shape), **router_shapes(shape, shape["pool_experts"])}
    return {name: size for name, size in shapes.items() if name not in ngram_shapes(shape)}


def parameters(shape: Mapping[str, Any]) -> int:
    """Numbers that are learnt: the trunk (tied embeddings once), the routers, every expert."""
    learnt = {**core_shapes(shape), **router_shapes(shape, shape["pool_experts"])}
    if shape["tie_embeddings"]:
        del learnt["head.weight"]
    for name in (NGRAM_SQUARES, NGRAM_YOUNG, NGRAM_YOUNG_SQUARES):
        learnt.pop(name, None)
    return numbers(learnt) + shape["pool_experts"] * numbers(expert_shapes(shape))


def router_shapes(shape: Mapping[str, Any], experts: int) -> Shapes:
    """Name -> shape of every tensor in routers.npz, for a pool of `experts`."""
    shapes: Shapes = {"pool.gate": (experts,)}
    for i in range(shape["n_recur"]):
        shapes[f"recur.{i}.mlp.depth_emb"] = (shape["d_model"],)
        shapes[f"recur.{i}.mlp.router.weight"] = (experts, shape["d_model"])
    return shapes


def expert_shapes(shape: Mapping[str, Any]) -> Shapes:
    """Name -> shape of an expert's weights: w1, w3 [W, D], w2 [D, W], and b0_… for each deeper level."""
    d, w = shape["d_model"], shape["pool_d_ff"]
    shapes: Shapes = {}
    for prefix in ("", *(f"b{level}_" for level in range(shape["pool_depth"] - 1))):
        shapes[f"{prefix}w1"] = (w, d)
        shapes[f"{prefix}w3"] = (w, d)
        shapes[f"{prefix}w2"] = (d, w)
    return shapes


def numbers(shapes: Shapes) -> int:
    """How many numbers tensors of these shapes hold."""
    return sum(math.prod(shape) for shape in shapes.values())


# ----------------------------------------------------------------------------------------- manifest


def parse_manifest(path: Path, text: bytes) -> dict[str, Any]:
    """The object in a manifest's bytes. FileFault when it is none, or of a later format."""
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFault(path, f"is not readable as JSON ({error})") from None
    if not isinstance(manifest, dict):
        raise FileFault(path, f"holds a JSON {type(manifest).__name__}; an object was expected")
    for key in _FORMAT_KEYS:
        value = manifest.get(key)
        if isinstance(value, (int, float)) and value > FORMAT:
            raise FileFault(
                path,
                f"was written by a newer program ({key} {shown(value)}; this one knows {FORMAT})",
                "Update this program, or use the one that wrote it.",
            )
    return manifest


def check_shape(path: Path, manifest: Mapping[str, Any], *, complete: bool) -> dict[str, Any]:
    """The manifest's `cfg` with every known value checked; unknown keys are kept.

    With `complete` the sizes a made model must state have to be there, and those that older manifests
    leave out take their usual values. FileFault names the key that is wrong.
    """
    cfg = manifest.get("cfg", None if complete else {})
    if not isinstance(cfg, dict):
        fault = "lacks 'cfg', the shape of the model" if cfg is None else "has a 'cfg' that is no object"
        raise FileFault(path, fault)
    shape = {**_USUAL, **cfg} if complete else dict(cfg)
    for key in _NEEDED if complete else ():
        if key not in shape:
            raise FileFault(path, f"lacks '{key}' in 'cfg', a size of the model")
    for key, value in shape.items():
        _check_value(path, key, value)
    if shape.get("tie_embeddings") is False or shape.get("use_pool") is False:
        raise FileFault(
            path, "describes a model without tied embeddings or without a pool; neither is supported"
        )
    if complete and shape["d_model"] % (2 * shape["n_head"]):
        raise FileFault(
            path, f"has d_model {shape['d_model']}, which {shape['n_head']} heads of even width cannot share"
        )
    return shape


def _check_value(path: Path, key: str, value: Any) -> None:
    low, high = _WHOLE.get(key) or _REAL.get(key) or (0, 0)
    if key in _FLAGS:
        sound, allowed = isinstance(value, bool), "true or false"
    elif key in _WHOLE:
        sound = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        allowed = f"a whole number from {low} to {high:,}" if low < high else str(low)
    elif key in _REAL:
        sound = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
        allowed = f"a number from {low:g} to {high:g}"
    else:
        return
    if not sound:
        raise FileFault(path, f"says {key} {shown(value)}; {allowed} was expected")


def shown(value: Any) -> str:
    """A value from a file, short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"


def read_model(path: Path, manifest: dict[str, Any], names: Iterable[str]) -> Model:
    """A made model's manifest, checked. `names` are the files in experts/; `path` is the manifest's."""
    shape = check_shape(path, manifest, complete=True)
    step = manifest.get("step", 0)
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise FileFault(path, f"says step {shown(step)}; a whole number was expected")
    experts = _expert_files(path, manifest, sorted(names))
    if not experts:
        raise FileFault(path, "names no experts, and a model has at least one")
    count = manifest.get("n_experts", len(experts))
    if count != len(experts):
        raise FileFault(path, f"says n_experts {shown(count)}, and there are {len(experts):,}")
    shape["pool_experts"] = len(experts)
    return Model(manifest, shape, experts)


def _expert_files(path: Path, manifest: Mapping[str, Any], names: list[str]) -> dict[int, str]:
    """uid -> path below the directory, in pool order."""
    telemetry = manifest.get("telemetry")
    order = telemetry.get("uid") if isinstance(telemetry, dict) else None
    listed = manifest.get("experts")
    if listed is None:  # a manifest older than the list: the folder tells
        found = _by_uid(path, names)
        if order is None:
            return {uid: found[uid] for uid in sorted(found)}
        if not isinstance(order, list) or sorted(map(repr, order)) != sorted(map(repr, found)):
            raise FileFault(path, f"has telemetry for other experts than the files in {EXPERTS}/")
        return {uid: found[uid] for uid in order}
    if not isinstance(listed, list):
        raise FileFault(path, "has an 'experts' that is no list")
    files = []
    for position, entry in enumerate(listed):
        if not isinstance(entry, dict):
            raise FileFault(path, f"has an entry {shown(entry)} in 'experts' that is no object")
        files.append(_entry_file(path, position, entry))
    experts = _by_uid(path, files)
    if order is not None and order != list(experts):
        raise FileFault(path, "lists other experts, or in another order, in 'experts' than in 'telemetry'")
    return experts


def _entry_file(path: Path, position: int, entry: Mapping[str, Any]) -> str:
    uid = entry.get("id")
    file = entry.get("file")
    if file is None and isinstance(uid, int):
        file = f"e{uid:05d}.npz"
    if not isinstance(file, str) or not (match := _EXPERT_FILE.fullmatch(file)):
        raise FileFault(
            path, f"names the expert file {shown(file)}; a name such as 'e00000.npz' was expected"
        )
    if uid is not None and uid not in (int(match[1]), position):
        raise FileFault(path, f"gives the expert file {shown(file)} the id {shown(uid)}")
    return file


def _by_uid(path: Path, files: list[str]) -> dict[int, str]:
    experts: dict[int, str] = {}
    for file in files:
        match = _EXPERT_FILE.fullmatch(file)
        if match is None:
            continue
        uid = int(match[1])
        if uid in experts:
            raise FileFault(path, f"has expert {uid} twice")
        experts[uid] = f"{EXPERTS}/{file}"
    return experts
