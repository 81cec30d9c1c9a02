"""The whole log on disk: the pane keeps the newest thousand lines, this file all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import platformdirs

from minagi.worker.logfile import open_log
from tui.state import LogLine


def usual_place() -> Path:
    """The file in the user's folder for such things."""
    return platformdirs.user_log_path("minagi") / "app.log"


class Logbook:
    """Appends each new line of the log to a file. A disk that is full, or a folder that is gone, ends that
    quietly: the log is still on the screen, and the run is what matters."""

    def __init__(self, place: Path) -> None:
        self.path = open_log(place)
        self._file: IO[str] | None = None
        with contextlib.suppress(OSError):
            self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
        self._serial = 0  # of the newest line that is written
        self._text, self._times = "", 1  # that line, and how often it came

    def keep(self, log: Sequence[LogLine]) -> None:
        """Write what is new of the log; a repetition is counted, and told when another line follows."""
        fresh = []
        for entry in reversed(log):
            if entry.serial <= self._serial:
                break
            fresh.append(entry)
        for entry in reversed(fresh):
            self._serial = entry.serial
            if entry.times > 1 and entry.text == self._text:
                self._times = entry.times
                continue
            self._tell_times()
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(0.0, min(entry.at, 4e9))))
            self._write(f"{when} {entry.level:<7} {entry.topic:<10} {entry.text}\n")
            self._text, self._times = entry.text, entry.times

    def close(self) -> None:
        self._tell_times()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None

    def _tell_times(self) -> None:
        if self._times > 1:
            self._write(f"{'':<19} the same, {self._times:,} times in a row\n")
            self._times = 1

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line)
        except OSError:
            self._file = None
