"""Where a process writes what people see only when they look for it: tracebacks, warnings of libraries."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import platformdirs

FORMAT = "%(asctime)s %(process)d %(levelname)s %(message)s"  # several processes write to one log
STARTS = "Worker %d starts: "
_LABEL = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (\d+) ([A-Z]+) ")  # as FORMAT begins
BYTES_MAX = 4 * 1024 * 1024  # a log larger than this is put aside before it is added to


def usual_log() -> Path:
    """The log in the user's folder for such things."""
    return platformdirs.user_log_path("minagi") / "minagi.log"


def open_log(asked: Path | None = None) -> Path:
    """A log file that can be appended to, somewhere; a full or foreign home folder must not end a run."""
    spare = Path(tempfile.gettempdir()) / f"minagi-{os.getpid()}.log"
    for path in (asked or usual_log(), spare):
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file() and path.stat().st_size > BYTES_MAX:
                path.replace(path.with_name(path.name + ".1"))
            path.open("ab").close()
            return path
    return Path(os.devnull)


def lines_of(process: int, log: Sequence[str]) -> list[str]:
    """What a worker left in a log that others wrote to as well: its line from the start on.

    What has no label (a traceback, the words of native code) goes with the error before it, and is taken for
    this process's where there is none.
    """
    mine: list[str] = []
    foreign = False
    for line in log:
        label = _LABEL.match(line)
        if label:
            other = int(label[1]) != process
            foreign = other and label[2] in ("ERROR", "CRITICAL")
            if other:
                continue
            if line[label.end() :].startswith(STARTS % process):
                mine = []
        if not foreign:
            mine.append(line)
    return mine


@contextlib.contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Send logging and Python's warnings to `path` and nowhere else."""
    root = logging.getLogger()
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter(FORMAT))
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:], root.level = handlers, level
        handler.close()
