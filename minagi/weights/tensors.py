"""The tensors of a model's files, read and written: names and shapes checked, moments in bf16.

Reading gives float32 arrays of their own memory, but for an expert's moments and average, which stay the
bf16 bits of the file (`moments.py`): widening them costs more than reading them. `check` verifies checksums
and that every number is finite; a caller leaves it out only for a file it has checked before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from minagi.errors import WeightsError
from minagi.weights import files, layout
from minagi.weights.faults import FileFault, Unreadable
from minagi.weights.moments import all_finite, any_negative, from_bf16, to_bf16
from minagi.weights.npz import Member, Npz, parse_header, write_npz

Arrays = dict[str, np.ndarray]
# parameter -> (m, v, t): Adam's moments or None where they start at zero, and its step count. Moments are
# read as fp32 and may be given to be written as that, or as bf16 bits (int16).
Optim = dict[str, tuple[np.ndarray | None, np.ndarray | None, float]]


@dataclass
class ExpertRecord:
    """One expert off the card."""

    uid: int
    weights: Arrays  # w1, w3 [W, D], w2 [D, W]; deeper levels b0_w1, …; fp32; {} where not asked for
    # Real numbers, or bf16 bits where int16:
    moments: Arrays | None = None  # w1_m, w1_v, … of the weights' shapes; None = zeros
    average: Arrays | None = None  # w1, … as they were on average lately; None = as they are


# ------------------------------------------------------------------------------------------ reading


def survey(path: Path, name: str, shape: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Whether model file `name` can hold what the manifest says, judged by its headers; its identity."""
    if name == layout.MANIFEST or path.suffix == ".npy":
        fd = files.open_regular(path)
        try:
            status = os.fstat(fd)
            if path.suffix == ".npy":
                _flat_header(path, fd, layout.numbers(layout.expert_shapes(shape)))
            return files.identity_of(status)
        finally:
            os.close(fd)
    if name == layout.OPTIM:
        shapes: layout.Shapes = {}  # what does not fit there starts anew
    elif name == layout.CORE:
        shapes = layout.core_shapes(shape)
        shapes.pop("head.weight")
    elif name == layout.ROUTERS:
        shapes = layout.router_shapes(shape, shape["pool_experts"])
    else:
        shapes = layout.expert_shapes(shape)
    with Npz(path) as archive:
        for tensor, size in shapes.items():
            _fitting_member(archive, tensor, size)
        return archive.identity


def read_core(archive: Npz, shape: Mapping[str, Any], *, check: bool) -> Arrays:
    """Every tensor of core.npz; `head.weight` is the same array as `tok_emb.weight`, as they are tied."""
    shapes = layout.core_shapes(shape)
    shapes.pop("head.weight")
    core = {name: _weight(archive, name, size, check) for name, size in shapes.items()}
    for name in (layout.NGRAM_SQUARES, layout.NGRAM_YOUNG_SQUARES):
        if check and name in core:
            _not_negative(archive.path, name, core[name], "sums of squares")
    core["head.weight"] = core["tok_emb.weight"]
    return core


def read_routers(archive: Npz, shape: Mapping[str, Any], *, check: bool) -> Arrays:
    """Every tensor of routers.npz: gate [E], router rows [E, D] and depth embeddings [D]."""
    shapes = layout.router_shapes(shape, shape["pool_experts"])
    return {name: _weight(archive, name, size, check) for name, size in shapes.items()}


def read_optim(archive: Npz, shape: Mapping[str, Any], *, check: bool) -> Optim:
    """Adam's state of all that is no expert, and the step counts of the experts' slots (`pool.w1`, …).

    A tensor whose shape no longer fits starts anew, (None, None, 0). The slots' own moments are not read.
    """
    shapes = layout.dense_shapes(shape)
    optim: Optim = {}
    for key in archive.names:
        name, _, kind = key.rpartition("|")
        if kind != "t" or (name not in shapes and not name.startswith("pool.")):
            continue
        t = _count(archive, key, check)
        m = v = None
        if name in shapes:
            m, v = (_fitting_moment(archive, f"{name}|{kind}", shapes[name], check) for kind in "mv")
            if m is None or v is None:
                m, v, t = None, None, 0.0
            else:
                m, v = from_bf16(m), from_bf16(v)
        optim[name] = (m, v, t)
    return optim


def read_expert(
    archive: Npz, uid: int, shape: Mapping[str, Any], *, weights: bool, moments: bool, check: bool
) -> ExpertRecord:
    """An expert's weights with their average, and its moments: what is asked for and there."""
    shapes = layout.expert_shapes(shape)
    record = ExpertRecord(uid, {})
    if weights:
        record.weights = {name: _weight(archive, name, size, check) for name, size in shapes.items()}
        record.average = _average(archive, "{}_a", shapes, check)
    if moments and any(name.endswith(("_m", "_v")) for name in archive.names):
        record.moments = _moments(archive, shapes, check)
    return record


def _moments(archive: Npz, shapes: layout.Shapes, check: bool) -> Arrays:
    state = {}
    for name, size in shapes.items():
        for kind in "mv":
            moment = _fitting_moment(archive, f"{name}_{kind}", size, check)
            if moment is None:
                raise FileFault(archive.path, f"lacks the moment {name}_{kind} as {_dims(size)}")
            state[f"{name}_{kind}"] = moment
    return state


def read_average(archive: Npz, shape: Mapping[str, Any], *, check: bool) -> Arrays | None:
    """The averages of the trunk and the routers, from optim.npz; None unless all of them are there."""
    shapes = layout.dense_shapes(shape)
    shapes.pop("head.weight")
    average = _average(archive, "{}|a", shapes, check)
    return None if average is None else {name: from_bf16(array) for name, array in average.items()}


def _average(archive: Npz, key: str, shapes: layout.Shapes, check: bool) -> Arrays | None:
    """Averaged tensors by the names of what they average, stored under `key` of it."""
    average = {}
    for name, size in shapes.items():
        found = _fitting_moment(archive, key.format(name), size, check)
        if found is None:
            return None
        average[name] = found
    return average


def read_flat_expert(path: Path, uid: int, shape: Mapping[str, Any]) -> ExpertRecord:
    """An expert of an older directory: one flat `.npy` array, w1, w3 and w2 one after the other."""
    shapes = layout.expert_shapes(shape)
    fd = files.open_regular(path)
    try:
        count = layout.numbers(shapes)
        dtype, start = _flat_header(path, fd, count)
        flat = np.empty(count, dtype)
        if not files.read_into(fd, flat, start):
            raise FileFault(path, "is cut short")
    except OSError as error:
        raise Unreadable(path, error) from None
    finally:
        os.close(fd)
    weights = {}
    at = 0
    for name, size in shapes.items():
        end = at + prod(size)
        weights[name] = _finite(path, name, np.array(flat[at:end].reshape(size), np.float32))
        at = end
    return ExpertRecord(uid, weights)


def _flat_header(path: Path, fd: int, count: int) -> tuple[np.dtype, int]:
    """Kind of the `count` numbers of a flat file, and where they begin in it."""
    dtype, dims, start = parse_header(path, "the array", os.pread(fd, 4096, 0))
    if dtype.kind != "f" or dims != (count,):
        raise FileFault(
            path, f"should be a flat array of {count:,} real numbers, and is {dtype} {_dims(dims)}"
        )
    if start + count * dtype.itemsize != os.fstat(fd).st_size:
        raise FileFault(path, "is cut short or damaged: its size is not what its shape needs")
    return dtype, start


def _fitting_member(archive: Npz, name: str, size: tuple[int, ...]) -> Member:
    member = archive.member(name)
    if member is None:
        raise FileFault(archive.path, f"lacks the tensor {name!r}")
    if member.shape != size:
        fault = f"holds {name!r} as {_dims(member.shape)}; the manifest calls for {_dims(size)}"
        raise FileFault(archive.path, fault)
    return member


def _weight(archive: Npz, name: str, size: tuple[int, ...], check: bool) -> np.ndarray:
    member = _fitting_member(archive, name, size)
    if member.dtype.kind != "f":
        raise FileFault(archive.path, f"holds {name!r} as {member.dtype}; real numbers were expected")
    array = archive.read(member, check=check).astype(np.float32, copy=False)
    return _finite(archive.path, name, array) if check else array


def _fitting_moment(archive: Npz, name: str, size: tuple[int, ...], check: bool) -> np.ndarray | None:
    """A moment as bf16 bits, or in fp32 where the file has real numbers; None when none has this shape."""
    member = archive.member(name)
    if member is None or member.shape != size:
        return None
    if member.dtype.kind != "f" and member.dtype not in (np.dtype(np.int16), np.dtype(np.uint16)):
        raise FileFault(archive.path, f"holds {name!r} as {member.dtype}, not as bf16 bits or real numbers")
    array = archive.read(member, check=check)
    array = array.astype(np.float32, copy=False) if member.dtype.kind == "f" else array.view(np.int16)
    if check:
        _finite(archive.path, name, array)
        if name.endswith("v"):
            _not_negative(archive.path, name, array, "a mean of squares")
    return array


def _count(archive: Npz, key: str, check: bool) -> float:
    member = archive.member(key)
    if member is None or member.shape not in ((), (1,)):
        raise FileFault(archive.path, f"holds {key!r} as an array; one number was expected")
    count = float(archive.read(member, check=check).reshape(()))
    if not 0 <= count < 1e15:
        raise FileFault(archive.path, f"is damaged: {key!r} is {count:g}, and a step count was expected")
    return count


def _finite(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    if not all_finite(array):
        raise FileFault(path, f"holds numbers in {name!r} that are not finite (NaN or infinity)")
    return array


def _not_negative(path: Path, name: str, array: np.ndarray, what: str) -> None:
    if any_negative(array):
        raise FileFault(path, f"is damaged: {name!r}, {what}, holds negative numbers")


def _dims(size: tuple[int, ...]) -> str:
    return " × ".join(f"{n:,}" for n in size) if size else "one number"


# ------------------------------------------------------------------------------------------ writing


def rounded(record: ExpertRecord) -> ExpertRecord:
    """`record` with moments and averages as a checkpoint keeps them. What is so already, and the weights, are
    the same arrays: nobody may change them."""

    def bits(arrays: Arrays | None) -> Arrays | None:
        return None if arrays is None else {name: to_bf16(array) for name, array in arrays.items()}

    return ExpertRecord(record.uid, record.weights, bits(record.moments), bits(record.average))


def as_written(record: ExpertRecord, moments: bool = True, weights: bool = True) -> ExpertRecord:
    """`record` as it will read when a checkpoint has written it, in memory of its own."""

    def own(arrays: Arrays | None) -> Arrays | None:
        if arrays is None:
            return None
        return {n: a.copy() if a.dtype == np.int16 else to_bf16(a) for n, a in arrays.items()}

    parts = ExpertRecord(record.uid, {}, own(record.moments) if moments else None)
    if weights:
        parts.weights = {name: array.copy() for name, array in record.weights.items()}
        parts.average = own(record.average)
    return parts


def check_tensors(what: str, arrays: Mapping[str, np.ndarray], shapes: layout.Shapes) -> None:
    """WeightsError unless `arrays` are exactly the tensors `shapes` tells of, all of them finite."""
    if absent := sorted(shapes.keys() - arrays.keys()):
        raise WeightsError(
            f"{what} lacks {', '.join(absent[:3])}, so nothing was saved. This is a defect; report it."
        )
    for name, size in shapes.items():
        array = arrays[name]
        if array.shape != size:
            raise WeightsError(
                f"{what} has {name} as {_dims(array.shape)} where {_dims(size)} was due, so nothing was "
                "saved. This is a defect; report it."
            )
        if not all_finite(array):
            raise WeightsError(
                f"{what} holds numbers in {name} that are not finite, so nothing was saved. "
                "Revert to the last checkpoint."
            )


def write_core(path: Path, core: Mapping[str, np.ndarray], shape: Mapping[str, Any]) -> int:
    """Makes core.npz; its size."""
    shapes = layout.core_shapes(shape)
    tensors = {**core, "head.weight": core["tok_emb.weight"]}
    check_tensors("The trunk", tensors, shapes)
    return write_npz(path, {name: np.asarray(tensors[name], np.float32) for name in shapes})


def write_routers(path: Path, routers: Mapping[str, np.ndarray], shape: Mapping[str, Any]) -> int:
    """Makes routers.npz; its size."""
    shapes = layout.router_shapes(shape, shape["pool_experts"])
    check_tensors("The router", routers, shapes)
    return write_npz(path, {name: np.asarray(routers[name], np.float32) for name in shapes})


def write_optim(path: Path, optim: Optim, average: Arrays, shape: Mapping[str, Any]) -> int:
    """Makes optim.npz: `|t` of every entry, `|m` and `|v` of those that have moments, `|a` of what is
    averaged; its size."""
    shapes = layout.dense_shapes(shape)
    arrays: Arrays = {}
    for name, (m, v, t) in optim.items():
        arrays[f"{name}|t"] = np.array(float(t))
        if m is not None and v is not None:
            size = shapes.get(name, m.shape)
            check_tensors(f"Adam's state of {name}", {"m": m, "v": v}, {"m": size, "v": size})
            arrays[f"{name}|m"], arrays[f"{name}|v"] = to_bf16(m), to_bf16(v)
    check_tensors("The average", average, {name: shapes[name] for name in average})
    arrays.update({f"{name}|a": to_bf16(array) for name, array in average.items()})
    return write_npz(path, arrays)


def write_expert(path: Path, record: ExpertRecord, shape: Mapping[str, Any]) -> int:
    """Makes an expert's file, weights first; its size. Moments that are None are written as zeros."""
    shapes = layout.expert_shapes(shape)
    check_tensors(f"Expert {record.uid}", record.weights, shapes)
    arrays = {name: np.asarray(record.weights[name], np.float32) for name in shapes}
    sizes = {f"{name}_{kind}": size for name, size in shapes.items() for kind in "mv"}
    if record.moments is None:
        arrays.update({name: np.zeros(size, np.int16) for name, size in sizes.items()})
    else:
        check_tensors(f"Expert {record.uid}", record.moments, sizes)
        arrays.update({name: to_bf16(record.moments[name]) for name in sizes})
    if record.average is not None:
        check_tensors(f"The average of expert {record.uid}", record.average, shapes)
        arrays.update({f"{name}_a": to_bf16(record.average[name]) for name in shapes})
    return write_npz(path, arrays)
