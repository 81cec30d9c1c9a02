"""The whole log on disk: the pane keeps the newest thousand lines, this file all of them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import platformdirs

from minagi.worker.logfile import BYTES_MAX, open_log
from tui.sanitise import clean_line
from tui.state import LogLine

READ_MAX = 4 * BYTES_MAX  # bytes read at a time


def usual_place() -> Path:
    """The file in the user's folder for such things."""
    return platformdirs.user_log_path("minagi") / "app.log"


def written(entry: LogLine) -> str:
    """A line of the log as the file has it."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(0.0, min(entry.at, 4e9))))
    return f"{when} {entry.level:<7} {entry.topic:<10} {entry.text}"


class Pages:
    """The lines of such a file from its beginning on, and what is added to them; also when it was put aside
    and another has its name."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._aside = self._path.with_name(f"{self._path.name}.1")
        self._file = (0, 0)  # which one it is
        self._read = 0  # bytes, to the end of the last whole line

    def read_on(self) -> list[str]:
        """The lines that are whole since the last time; none where the file cannot be read."""
        try:
            status = self._path.stat()
        except OSError:
            return []
        rest: list[str] = []
        if self._file != (status.st_dev, status.st_ino) or status.st_size < self._read:
            if self._read:
                rest = self._lines_of(self._aside)
            self._file, self._read = (status.st_dev, status.st_ino), 0
        return [*rest, *self._lines_of(self._path)]

    def _lines_of(self, path: Path) -> list[str]:
        """What is whole past the place read to, if `path` is the file that was read."""
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._file or status.st_size <= self._read:
                    return []
                file.seek(self._read)
                data = file.read(READ_MAX).rpartition(b"\n")
        except OSError:
            return []
        self._read += len(data[0]) + len(data[1])
        return (
            [clean_line(text) for text in data[0].decode("utf-8", "replace").split("\n")] if data[1] else []
        )


class Logbook:
    """Appends each new line of the log to a file; when another app put that aside, to the one of its name.
    A disk that is full, or a folder that is gone, ends that quietly: the log is still on the screen, and the
    run is what matters."""

    def __init__(self, place: Path) -> None:
        self.path = open_log(place)
        self._file: IO[str] | None = None
        with contextlib.suppress(OSError):
            self._file = self._opened()
        self._serial = 0  # of the newest line that is written
        self._text, self._times = "", 1  # that line, and how often it came

    @property
    def kept(self) -> str:
        """The file, as long as it can be written and read again; "" otherwise."""
        with contextlib.suppress(OSError):  # a folder may be closed to us by now
            return str(self.path) if self._file is not None and self.path.is_file() else ""
        return ""

    def _opened(self) -> IO[str]:
        return self.path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)

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
            self._write(f"{written(entry)}\n")
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
            if self.put_aside:
                self._file.close()
                self._file = self._opened()
            self._file.write(line)
        except OSError:
            self._file = None

    @property
    def put_aside(self) -> bool:
        """Whether the name is another file's by now."""
        assert self._file is not None
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            return True
