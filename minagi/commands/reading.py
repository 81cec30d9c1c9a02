"""Opening the model of a directory for commands that only read it out: `write`, `eval`, `probe`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from minagi.config import LoadedSettings
from minagi.errors import UsageError
from minagi.hardware import prepare_environment
from minagi.options import loaded_settings
from minagi.training.request import ReaderLike
from minagi.worker.signals import loading

# (weights, settings, device) -> the model
OpenReader = Callable[[Path, LoadedSettings, str], ReaderLike]


def model_of(arguments: argparse.Namespace) -> tuple[LoadedSettings, Path]:
    """The settings in effect and the weights directory they name. UsageError when there is none."""
    loaded = loaded_settings(arguments)
    weights = loaded.settings.data.weights
    if not weights.exists():
        raise UsageError(f"There are no weights at {weights}. Name their directory with --weights.")
    if not weights.is_dir():
        raise UsageError(f"The weights must be a directory, but {weights} is a file. Name another one.")
    return loaded, weights


def open_model(arguments: argparse.Namespace, open_reader: OpenReader | None) -> ReaderLike:
    """The model these flags name. torch is loaded here. Raises MinagiError."""
    loaded, weights = model_of(arguments)
    if open_reader is not None:
        return open_reader(weights, loaded, arguments.device)
    if "torch" not in sys.modules:
        prepare_environment(arguments.threads, loaded.settings.hardware)
    with loading():
        from minagi.training import session

    return session.open_reader(weights, loaded, arguments.device)
