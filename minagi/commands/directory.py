"""The one weights directory that `info`, `snapshots` and `revert` are about."""

from __future__ import annotations

import argparse
from pathlib import Path

from minagi.errors import UsageError
from minagi.options import Parser, add_settings, add_sources, loaded_settings, path


def add_directory(made: Parser) -> None:
    """The argument DIR, and the flags that say which one is meant without it."""
    made.add_argument(
        "dir",
        nargs="?",
        type=path,
        metavar="DIR",
        help="a weights directory (default: the setting data.weights)",
    )
    add_sources(made)
    add_settings(made, ["data.weights"])


def directory_of(arguments: argparse.Namespace) -> Path:
    """The directory meant; UsageError in words where there is none."""
    weights: Path = arguments.dir or loaded_settings(arguments).settings.data.weights
    if not weights.is_dir():
        what = "is a file" if weights.exists() else "does not exist"
        raise UsageError(f"{weights} {what}. Name a weights directory.")
    return weights
