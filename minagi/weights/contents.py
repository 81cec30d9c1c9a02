"""The tensors of a checkpoint, read file by file through a view of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from minagi.errors import WeightsError
from minagi.weights import layout, memory, tensors
from minagi.weights.layout import Places
from minagi.weights.npz import Empty, Npz
from minagi.weights.tensors import Arrays, ExpertRecord, Optim
from minagi.weights.view import View, remedied

T = TypeVar("T")


class Contents:
    """Reads what views of one directory show. A file is verified when it is first read, not every time.

    FileFault names the file that is wrong and what to do about it.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._verified: dict[tuple[str, str], object] = {}  # (file, part of it) -> its identity then

    def core(self, view: View) -> Arrays:
        """Every tensor of core.npz."""
        return self._read(view, layout.CORE, tensors.read_core)

    def routers(self, view: View) -> Arrays:
        """Every tensor of routers.npz."""
        return self._read(view, layout.ROUTERS, tensors.read_routers)

    def optim(self, view: View) -> Optim:
        """Adam's state of all but experts; {} where there is no optim.npz."""
        if not view.has(layout.OPTIM):
            return {}
        return self._read(view, layout.OPTIM, tensors.read_optim, part="moments")

    def average(self, view: View) -> Arrays | None:
        """The averages of trunk and routers, fp32; None where there are none."""
        if not view.has(layout.OPTIM):
            return None
        return self._read(view, layout.OPTIM, tensors.read_average, part="average")

    def expert(self, view: View, uid: int, *, weights: bool, moments: bool) -> ExpertRecord:
        """An expert's weights with their average, and its moments: what is asked for and there."""
        model = view.made()
        name = model.experts.get(uid)
        if name is None:
            raise WeightsError(f"{self._places.root} has no expert {uid}. This is a defect; report it.")
        if name.endswith(".npy") and not weights:
            return ExpertRecord(uid, {})
        if name.endswith(".npy"):
            with remedied(self._places):
                return view.read(name, lambda path: tensors.read_flat_expert(path, uid, model.shape))

        def reader(archive: Npz, shape: Mapping[str, Any], *, check: bool) -> ExpertRecord:
            return tensors.read_expert(archive, uid, shape, weights=weights, moments=moments, check=check)

        part = "" if weights and moments else "weights" if weights else "moments"
        return self._read(view, name, reader, part, memory.empty)

    def _read(
        self, view: View, name: str, reader: Callable[..., T], part: str = "", empty: Empty = np.empty
    ) -> T:
        """`reader` of an archive of the checkpoint."""
        shape = view.made().shape

        def read(path: Path) -> T:
            with Npz(path, empty) as archive:
                known = archive.identity in (self._verified.get((name, part)), self._verified.get((name, "")))
                result = reader(archive, shape, check=not known)
                self._verified[name, part] = archive.identity
                return result

        with remedied(self._places):
            return view.read(name, read)
