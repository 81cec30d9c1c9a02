"""What this program keeps in a manifest beyond the public layout. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OURS = "minagi"  # the key it is kept under


def ours_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier run of this program kept in a manifest; {} where there is nothing usable."""
    return part_of(manifest, OURS)


def part_of(state: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The mapping that stands under `key`; {} where there is none."""
    part = state.get(key)
    return part if isinstance(part, dict) else {}


def texts(value: Any) -> list[str]:
    """The texts of a list that a manifest may hold."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
