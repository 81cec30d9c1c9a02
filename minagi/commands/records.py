"""Which history `history` and `plot` are about, and which run in it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from minagi.errors import UsageError
from minagi.options import Parser, add_settings, add_sources, loaded_settings
from minagi.training.history import History
from minagi.training.stream_request import HISTORY


@dataclass(frozen=True)
class Chosen:
    """A history file and the model whose rows are meant; "" is the one written last."""

    history: History
    model: str


def add_history(made: Parser) -> None:
    """The flags that say which history is meant."""
    add_sources(made)
    add_settings(made, ["data.weights", "data.history"])


def chosen(arguments: argparse.Namespace) -> Chosen:
    """The history meant: of --history; else the one in --weights; else data.history. UsageError if none."""
    given = vars(arguments)
    data = loaded_settings(arguments).settings.data
    path = data.history
    if given["data.history"] is None and given["data.weights"] is not None:
        inside = data.weights / HISTORY
        path = inside if inside.exists() else path
    if not path.is_file():
        what = "is no plain file" if path.exists() else "does not exist"
        raise UsageError(
            f"The history {path} {what}. A run that saves writes one; name it with --history or --weights."
        )
    return Chosen(History(path), _model(data.weights) if given["data.weights"] is not None else "")


def _model(weights: Path) -> str:
    """A weights directory as rows name it."""
    return str(weights.absolute())
