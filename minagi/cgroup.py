"""What a container may use: processors and memory, from the control groups this process is in.

Neither `os` nor psutil looks there. Both versions of cgroups are read; the tightest limit of a group
and its parents counts. Everything here gives None where there is no limit or nothing to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MINE = Path("/proc/self/cgroup")
_NO_LIMIT = 2**60  # bytes; version 1 writes an absurd number where there is none


def cpu_limit(root: Path = _ROOT, mine: Path = _MINE) -> float | None:
    """Processors' worth of time this process may use, or None."""
    limits = []
    for folder in _folders("cpu", root, mine):
        quota, _, period = _text(folder / "cpu.max").partition(" ")  # version 2: "200000 100000"
        if not quota:  # version 1
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(quota) > 0 and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def memory_limit(root: Path = _ROOT, mine: Path = _MINE) -> int | None:
    """Bytes of memory the group of this process may use, or None."""
    limits = []
    for folder in _folders("memory", root, mine):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            text = _text(folder / name)
            if text.isdigit() and 0 < int(text) < _NO_LIMIT:
                limits.append(int(text))
    return min(limits, default=None)


def _folders(controller: str, root: Path, mine: Path) -> Iterator[Path]:
    """The group's folder for `controller` and its parents, wherever each version mounts them."""
    for line in _text(mine).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            mounts = [root, root / "unified"]
        elif controller in controllers.split(","):
            mounts = [root / controllers, root / controller]
        else:
            continue
        inside = Path(path.lstrip("/"))
        for mount in mounts:
            for part in (inside, *inside.parents):  # the last parent is the mount itself
                yield mount / part


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
