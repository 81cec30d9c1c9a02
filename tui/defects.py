"""A defect of the app's own: the traceback goes to a file, a sentence to whoever used it."""

from __future__ import annotations

import contextlib
import time
import traceback
from pathlib import Path

from tui.sanitise import clean_line, clean_text

_BRIEF = 200  # characters of what an exception says


def told(error: BaseException, file: Path) -> str:
    """Add the traceback to `file`; returns the sentence that names it."""
    lines = "".join(traceback.format_exception(error))
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    with contextlib.suppress(OSError), file.open("a", encoding="utf-8", errors="backslashreplace") as log:
        log.write(f"{when} error   app        The app ended in a defect.\n{clean_text(lines, len(lines))}")
    what = clean_line(" ".join(f"{type(error).__name__}: {error}".split()), _BRIEF)
    return f"Something went wrong inside the app ({what}). The log has the details: {file}"
