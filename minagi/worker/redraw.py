"""The pictures of a run, drawn anew in a process of its own that holds nothing up and ends nothing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


class Redraw:
    """Draws `model`'s rows of `history` beside it; `last` is the setting plots.last."""

    def __init__(
        self,
        history: Path,
        model: str,
        last: float,
        popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
    ) -> None:
        self._history = history
        self._arguments = [str(history), model, str(history.parent), str(last)]
        self._popen = popen
        self._drawing: subprocess.Popen[bytes] | None = None
        self._possible = importlib.util.find_spec("matplotlib") is not None

    def start(self) -> str:
        """Draw, unless that is still being done. Returns a sentence where the last time went wrong, or ""."""
        if not self._possible or not self._history.exists():
            return ""
        status = self._drawing.poll() if self._drawing is not None else 0
        if status is None:
            return ""
        try:
            self._drawing = self._popen(
                [sys.executable, "-m", "minagi.plots", *self._arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,  # ctrl+c is not for it
            )  # fmt: skip
        except OSError as error:
            return f"The pictures of the run could not be drawn: {error.strerror or error}."
        if status:
            why = f"minagi plot --history {self._history} --png {self._history.parent}"
            return f"The pictures of the run could not be drawn. To see why: {why}"
        return ""
