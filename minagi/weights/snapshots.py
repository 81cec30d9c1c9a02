"""Kept checkpoints: each a folder with all files of the model, the unchanged ones shared by hard links.

    .minagi/snapshots/000012/   meta.json  manifest.json  core.npz  routers.npz  optim.npz  experts/…

A snapshot is never changed once it is there: it appears whole, and it leaves whole. A reader pins the one it
reads by a shared `flock` on its meta.json, which writes nothing; removal asks for that lock alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from minagi import finite
from minagi.errors import UsageError, WeightsError
from minagi.weights import files, layout, ways
from minagi.weights.faults import LINK, FileFault
from minagi.weights.npz import check_npz

META = "meta.json"
MEASURED = "val_text"  # the manifest's name of the text that `val` was measured on
KEPT_AUTOMATIC = 5
KEPT_BEFORE_REVERT = 3
KINDS = ("auto", "asked", "named", "best", "before-revert", "final")
_RECENT = ("auto", "asked", "named", "best", "final")  # of which the last few are kept
DAMAGED = "damaged"  # the kind of a folder whose meta.json cannot be read

_META_MAX = 1 << 26
_FOLDER = re.compile(r"[0-9]{6,12}")
_REACHED = 10**9  # no model has so many snapshots: what is named so was named by others
_GONE = ".gone"  # after the number of a snapshot that was the newest when it was removed: an empty file


@dataclass(frozen=True)
class SnapshotInfo:
    """A kept checkpoint, as people see it."""

    id: str
    name: str = ""  # the user's name for it, or ""
    kind: str = "auto"  # auto | asked (by a person) | named | best | before-revert | final | damaged
    at: float = 0.0  # Unix time
    step: int = 0
    chars: int = 0  # characters read in the model's life
    held_out: float | None = None  # nats; the last reading before it, not one of its own
    measured: str = ""  # names the text of that reading; "" where nobody said
    held_out_step: int | None = None  # when that was read
    experts: int = 0
    bytes_freed: int = 0  # what deleting it would free
    bytes_written: int = 0  # what making it cost; only checkpoint() fills this in
    ways: ways.Ways = ()  # how it came about, see `minagi.weights.ways`; () where that was not kept


@dataclass(frozen=True)
class Snapshot:
    """A snapshot's folder and what its meta.json says."""

    folder: Path
    info: SnapshotInfo
    files: dict[str, tuple[int, int]]  # path below the folder -> (size, checksum) as it was taken


def folder_name(number: int) -> str:
    """The folder of snapshot `number`."""
    return f"{number:06d}"


def numbers(root: Path) -> list[int]:
    """Numbers of the snapshots under `root` (.minagi/snapshots), newest first."""
    try:
        names = [entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((int(name) for name in names if _FOLDER.fullmatch(name)), reverse=True)


def next_number(root: Path) -> int:
    """A number for a new snapshot under `root`, free whatever lies there: one that was told of a snapshot,
    by an event or an undo, never means another."""
    names = [path.name.removesuffix(_GONE) for path in root.iterdir()]
    taken = {int(name) for name in names if _FOLDER.fullmatch(name)}
    number = max((known for known in taken if known < _REACHED), default=0) + 1
    while number in taken:
        number += 1
    return number


def describe(model: layout.Model, number: int, kind: str, name: str, at: float) -> SnapshotInfo:
    """The info of a snapshot of `model`."""
    manifest = model.manifest
    return SnapshotInfo(
        id=str(number),
        name=name,
        kind="named" if name and kind in ("auto", "asked") else kind,
        at=at,
        step=int(manifest.get("step", 0)),
        chars=int(finite.number(manifest.get("read_chars")) or 0),
        held_out=held_out_of(manifest),
        measured=str(manifest.get(MEASURED) or ""),
        held_out_step=held_out_step_of(manifest),
        experts=len(model.experts),
    )


def held_out_of(manifest: Mapping[str, Any]) -> float | None:
    """The last held-out reading, in nats, that a manifest tells of; None where it tells of none."""
    return finite.number(manifest.get("val"))


def held_out_step_of(manifest: Mapping[str, Any]) -> int | None:
    """The step of that reading; None where it is not told."""
    step = finite.number(manifest.get("val_step"), 2**62)
    return None if step is None or step < 0 or held_out_of(manifest) is None else int(step)


def ways_to(info: SnapshotInfo, base: Snapshot | None) -> ways.Ways:
    """How a new snapshot comes about that goes on from `base`, if from any. A base that does not tell its own
    ways stands on one by itself."""
    number = int(info.id)
    if base is None:
        return ways.reached((), 0, number, info.step, info.chars)
    known = base.info
    before = known.ways or ((int(known.id), known.step, known.chars),)
    return ways.reached(before, int(known.id), number, info.step, info.chars)


def write_meta(folder: Path, info: SnapshotInfo, contents: Mapping[str, tuple[int, int]]) -> None:
    """Writes a snapshot's meta.json, the last of its files."""
    body = {**asdict(info), "files": {name: list(value) for name, value in contents.items()}}
    del body["bytes_freed"], body["bytes_written"]
    files.write_file(folder / META, [json.dumps(body).encode()])


def read(folder: Path) -> Snapshot:
    """The snapshot in `folder`. FileFault when its meta.json is missing or makes no sense."""
    path = folder / META
    if folder.is_symlink():
        raise FileFault(folder, LINK)
    body = layout.parse_manifest(path, files.read_small(path, _META_MAX))
    try:
        info = SnapshotInfo(
            id=str(int(folder.name)) if _FOLDER.fullmatch(folder.name) else str(body["id"]),
            name=str(body["name"]),
            kind=body["kind"] if body["kind"] in KINDS else "auto",
            at=float(body["at"]),
            step=int(body["step"]),
            chars=int(body["chars"]),
            held_out=held_out_of({"val": body["held_out"]}),
            measured=str(body.get("measured") or ""),
            held_out_step=held_out_step_of({"val": body["held_out"], "val_step": body.get("held_out_step")}),
            experts=int(body["experts"]),
            ways=ways.read(body),
        )
        datetime.fromtimestamp(info.at)  # a time that there is
        contents = {str(name): (int(size), int(checksum)) for name, (size, checksum) in body["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError):
        raise FileFault(path, "is damaged") from None
    if strange := [name for name in contents if not layout.is_model_file(name)]:
        raise FileFault(path, f"names the file {layout.shown(strange[0])}, which is none of a model's")
    return Snapshot(folder, info, contents)


def listing(root: Path) -> list[SnapshotInfo]:
    """Every snapshot, newest first, with what deleting it would free."""
    found = []
    for number in numbers(root):
        folder = root / folder_name(number)
        try:
            info = read(folder).info
        except WeightsError:
            if files.identity(folder) is None:
                continue  # it left while this was reading
            info = SnapshotInfo(id=str(number), kind=DAMAGED)
        found.append(replace(info, bytes_freed=_own_bytes(folder)))
    return found


def find(root: Path, wanted: str) -> SnapshotInfo:
    """The snapshot with this id, or else the newest with this name. UsageError when there is none."""
    kept = listing(root)
    for info in [i for i in kept if i.id == wanted] + [i for i in kept if i.name and i.name == wanted]:
        return info
    there = ", ".join(f"{i.id} ({i.name!r})" if i.name else i.id for i in kept[:8]) or "none"
    raise UsageError(f"There is no snapshot {wanted!r}. There are: {there}.")


def _own_bytes(folder: Path) -> int:
    """Bytes of the files that no other name keeps."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                status = (Path(place) / name).lstat()
                total += status.st_size if status.st_nlink == 1 else 0
    return total


def same(path: Path, snapshot: Snapshot, name: str) -> bool:
    """Whether the file `path` is what a snapshot took as `name`, and the snapshot still has it."""
    if files.identity(path) is None or files.fingerprint(path) != snapshot.files[name]:
        return False
    kept = snapshot.folder / name
    return shared(path, snapshot, name) or (
        files.identity(kept) is not None and files.fingerprint(kept) == snapshot.files[name]
    )


def shared(path: Path, snapshot: Snapshot, name: str) -> bool:
    """Whether the file `path` and file `name` of a snapshot are one file under two names."""
    mine, kept = files.identity(path), files.identity(snapshot.folder / name)
    return mine is not None and kept is not None and mine[:2] == kept[:2]


def matching(root: Path, model: Path, names: Iterable[str]) -> Snapshot | None:
    """The newest snapshot whose files are all the same as the model's; `names` are those of the model."""
    wanted = sorted(names)
    for number in numbers(root):
        try:
            snapshot = read(root / folder_name(number))
            matches = sorted(snapshot.files) == wanted and all(same(model / n, snapshot, n) for n in wanted)
        except WeightsError:
            continue  # a damaged snapshot is no copy of anything
        if matches:
            return snapshot
    return None


def known_files(root: Path) -> set[str]:
    """Every file, as a path below the directory, that a snapshot holds."""
    known: set[str] = set()
    for number in numbers(root):
        with suppress(WeightsError):
            known |= read(root / folder_name(number)).files.keys()
    return known


def check(snapshot: Snapshot, known: Path) -> None:
    """Reads a snapshot's files against their checksums, but for those that `known`, the model, shares."""
    for name, recorded in snapshot.files.items():
        path = snapshot.folder / name
        if files.fingerprint(path) != recorded:
            raise FileFault(path, "is not what the snapshot took: another program changed it")
        if path.suffix == ".npz" and not shared(known / name, snapshot, name):
            check_npz(path)


# ------------------------------------------------------------------------------ pinning and removal


def pin(folder: Path) -> int | None:
    """A descriptor that keeps a snapshot from being removed until it is closed; None when it is leaving."""
    path = folder / META
    try:
        fd = files.open_regular(path)
    except WeightsError:
        return None
    if _flock(fd, fcntl.LOCK_SH) and files.identity(path) == files.identity_of(os.fstat(fd)):
        return fd
    os.close(fd)
    return None


def _flock(fd: int, mode: int) -> bool:
    """False when another holds a lock that excludes this one. A file system without locks excludes nobody."""
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def remove(folder: Path, trash: Path) -> bool:
    """Removes a snapshot, in one step to others. False when a reader has it pinned."""
    fd = -1
    with suppress(OSError):  # a damaged snapshot may have no meta.json; nobody reads that
        fd = os.open(folder / META, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if fd >= 0 and not _flock(fd, fcntl.LOCK_EX):
            return False
        files.remove_tree(trash)
        newest = next_number(folder.parent) == int(folder.name) + 1
        marked = newest and _mark_gone(folder)
        files.rename(folder, trash)
        files.fsync_folder(folder.parent)
        files.remove_tree(trash)
        if newest and not marked:  # the disk was too full for a name more
            _mark_gone(folder)
    finally:
        if fd >= 0:
            os.close(fd)
    return True


def _mark_gone(folder: Path) -> bool:
    """Leave the number of the newest snapshot behind, in place of one left before; whether that was done."""
    mark = folder.with_name(folder.name + _GONE)
    try:
        older = [path for path in folder.parent.glob(f"*{_GONE}") if path != mark]
        if files.identity(mark) is None:
            files.write_file(mark, [])
        for path in older:
            files.unlink(path)
    except OSError:
        return False
    return True


def expendable(infos: Iterable[SnapshotInfo]) -> list[SnapshotInfo]:
    """Those that retention lets go of. Kept are: every named one, the last few automatic ones and the one
    with the best held-out among them, and the last few taken before a revert, or left by one. Readings of
    other text than the newest was measured on make no best: they say nothing of how well it is known."""
    newest_first = sorted(infos, key=lambda info: int(info.id), reverse=True)
    automatic = [i for i in newest_first if not i.name and i.kind in _RECENT]
    tips = _left(newest_first)
    reverts = [i for i in newest_first if not i.name and (i.kind == "before-revert" or i in tips)]
    undo = reverts[:KEPT_BEFORE_REVERT]
    reverts = [i for i in reverts if i.kind == "before-revert"]
    text = next((info.measured for info in newest_first if info.kind != DAMAGED), "")
    measured = [info for info in automatic if info.held_out is not None and info.measured == text]
    best = min(measured, key=lambda info: (info.held_out, -int(info.id)), default=None)
    going = [*automatic[KEPT_AUTOMATIC:], *reverts]
    return [info for info in going if info is not best and info not in undo]


def _left(newest_first: Sequence[SnapshotInfo]) -> list[SnapshotInfo]:
    """The last on every way that the newest does not come from: what was gone back from."""
    here = {way: reached for way, *reached in newest_first[0].ways} if newest_first else {}
    tips: dict[int, SnapshotInfo] = {}
    for info in newest_first:
        for way, *reached in info.ways[-1:]:
            if reached > here.get(way, []):
                tips.setdefault(way, info)
    return list(tips.values())


def expire(root: Path, trash: Path) -> None:
    """Lets go of what need not be kept, but for what a reader has pinned."""
    for info in expendable(listing(root)):
        remove(root / folder_name(int(info.id)), trash)
