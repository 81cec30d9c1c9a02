"""Rows as `minagi read` and `minagi stream` write them."""

from __future__ import annotations

from typing import Any


def read_rows(count: int, model: str = "/models/mine") -> list[dict[str, Any]]:
    """A run that learns, whose pool grows by one expert every tenth row."""
    rows = []
    for number in range(1, count + 1):
        chars = 50_000 * number
        uids = list(range(4 + number // 10))
        val = 3.5 * chars**-0.06
        rows.append({
            "time": 1.79e9 + 300 * number, "model": model, "step": 100 * number, "chars": chars,
            "val": val, "val_chars": chars,
            "loss": val * 0.98, "experts": len(uids), "context": 256 + number, "rate": 1 - number / 1000,
            "memory": 10**9, "uid": uids, "use": [1 / len(uids)] * len(uids), "gate": [1.0] * len(uids),
            "subjects": {
                "letters": {"chars": chars, "loss": val, "val": val, "stderr": 0.01},
                "logbook": {"chars": 0, "loss": None, "val": val * 1.1, "stderr": None},
            },
        })  # fmt: skip
    return rows


def stream_rows(model: str = "/models/out") -> list[dict[str, Any]]:
    """One row of every kind of a stream."""
    same = {"time": 1.79e9, "model": model, "experts": 8}
    return [
        {"kind": "start", **same, "step": 0, "chars": 0, "context": 512, "mix": {"books": 1.0}},
        {"kind": "step", **same, "step": 20, "chars": 4000, "loss": 2.0, "lr": 3e-4, "context": 256},
        {"kind": "val", **same, "step": 20, "chars": 4000, "val": 1.9, "stderr": 0.02, "best": True,
         "subjects": {"books": {"nats": 1.9, "stderr": 0.02}}},
        {"kind": "saved", **same, "step": 20, "chars": 4000, "val": 1.9, "memory": 10**9,
         "uid": [0, 1], "use": [0.5, 0.5], "gate": [1, 1]},
        {"kind": "pruned", **same, "step": 20, "chars": 4000, "uids": [1], "experts": 7, "why": "Unused."},
        {"kind": "grew", **same, "step": 20, "chars": 4000, "uids": [8]},
        {"kind": "held", **same, "step": 40, "chars": 8000, "experts": 8, "why": "The gap is too wide."},
        {"kind": "step", **same, "step": 40, "chars": 8000, "loss": 1.8, "lr": 2e-4, "context": 512},
        {"kind": "reverted", **same, "step": 20, "chars": 4000, "left_at": 40, "why": "It diverged."},
        {"kind": "done", **same, "step": 40, "chars": 8000, "val": 1.7, "loss": 1.75},
    ]  # fmt: skip


HOSTILE: list[dict[str, Any]] = [
    {}, {"chars": "many"}, {"chars": -5, "val": 1.0}, {"chars": True, "loss": 2.0},
    {"chars": 1e300, "val": 1.0},
    {"chars": 100, "val": float("nan")}, {"chars": 100, "val": float("inf")}, {"chars": 100, "val": -1.0},
    {"chars": 100, "val": 0.0, "loss": 0}, {"chars": 0, "val": 2.0}, {"chars": 10**400, "experts": 10**400},
    {"chars": 100, "subjects": []}, {"chars": 100, "subjects": {"a": 3, "b": {"val": {}}, "": {"val": 1.0}}},
    {"chars": 100, "uid": [1], "use": ["x"], "gate": [None]}, {"chars": 100, "uid": [1, 2], "use": [1.0]},
    {"chars": 50, "val": 1.0, "model": ["x"], "kind": 7, "time": 1e300, "step": None, "memory": -1},
    {"chars": 100, "subjects": {"\x1b[31m\n$x_{": {"val": 1.5, "stderr": 1e308}}, "context": 1e15,
     "rate": -1e15},
]  # fmt: skip
