"""The real app in a pseudo-terminal: `minagi bench start` and `minagi bench ui`. Loads no torch itself."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from minagi.errors import MinagiError, UsageError

COLUMNS, LINES = 120, 40
PATIENCE = 120.0  # seconds until something that has to come must have come
FRAME = "minagi"  # stands in the first frame, as the model's name or the program's
WORD = "qzxjvkwq"  # letters typed; no pane shows them of itself
CLEAR_LINE, CHAT = "\x15", "i"
_SEQUENCE = re.compile(rb"\x1b\[[^a-zA-Z]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>()][A-Z0-9]?")
_STEP = re.compile(r"step ([\d,]+)")


class App:
    """`minagi-tui` in a terminal of its own: what it wrote since the last look, and keys to press."""

    def __init__(self, flags: Sequence[str], environ: Mapping[str, str]) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tui", *flags], stdin=inner, stdout=inner, stderr=inner, env=dict(environ),
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(inner)
        self._written = bytearray()

    def press(self, keys: str) -> None:
        """Type, and forget what was written before."""
        self.look(0.0)
        self._written.clear()
        os.write(self._fd, keys.encode())

    def look(self, seconds: float) -> str:
        """Wait for up to `seconds` for something to be written; all since the last key, as plain text."""
        if select.select([self._fd], [], [], seconds)[0]:
            with contextlib.suppress(OSError):  # nobody holds the other end any more
                self._written += os.read(self._fd, 1 << 16)
        return _SEQUENCE.sub(b"", bytes(self._written)).decode("utf-8", "replace")

    def until(self, seen: Callable[[str], object], what: str) -> float:
        """Seconds since the start at which what was written shows it. MinagiError when it never comes."""
        end = time.perf_counter() + PATIENCE
        while not seen(self.look(0.05)):
            if self.process.poll() is not None or time.perf_counter() > end:
                told = " ".join(self.look(0.0)[-400:].split())
                raise MinagiError(
                    f"The app was started to be measured and did not show {what}. It wrote: {told}"
                )
        return time.perf_counter() - self.began

    def close(self) -> None:
        """End it, and the worker below it."""
        below = []
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 30.0
        while self.process.poll() is None and time.monotonic() < end:
            self.look(0.05)  # it may have to write before it can leave
        for process in (*below, psutil.Process(self.process.pid) if self.process.poll() is None else None):
            with contextlib.suppress(psutil.Error, AttributeError):
                process.kill()  # type: ignore[union-attr]
        self.process.wait()
        os.close(self._fd)


@contextmanager
def _app(threads: int) -> Iterator[App]:
    """The app on a folder of made-up text and a fresh model, in a dry run that leaves nothing behind."""
    if sys.platform == "win32":
        raise UsageError("The app is measured in a pseudo-terminal, which this system does not have.")
    with tempfile.TemporaryDirectory(prefix="minagi-bench-") as name:
        folder = Path(name)
        text = folder / "words" / "words.txt"
        text.parent.mkdir()
        text.write_text(_words(200_000))
        environ = {key: value for key, value in os.environ.items() if not key.startswith("MINAGI_")}
        environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUNBUFFERED": "1"}
        environ |= {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
        environ.pop("OMP_NUM_THREADS", None)
        flags = [
            str(text.parent), "--weights", str(folder / "minagi"), "--dry-run", "--yes", "--device", "cpu",
            "--profile", "cpu", "--threads", str(threads),
        ]  # fmt: skip
        app = App(flags, environ)
        try:
            yield app
        finally:
            app.close()


def _words(characters: int) -> str:
    """Text of made-up words, the same every time."""
    noise = random.Random(0)
    kinds = ["".join(noise.choices("aeioulnrst", k=noise.randint(2, 8))) for _ in range(400)]
    lines = (" ".join(noise.choices(kinds, k=10)) + ".\n" for _ in range(characters // 50))
    return "".join(lines)[:characters]


def _stepped(text: str) -> bool:
    return any(int(number.replace(",", "")) > 0 for number in _STEP.findall(text))


def start(threads: int, runs: int) -> dict[str, Any]:
    """Seconds from the command to the first frame and to the first training step; medians of `runs`."""
    frames, steps = [], []
    for _ in range(runs):
        with _app(threads) as app:
            frames.append(app.until(lambda text: FRAME in text, "its first frame"))
            steps.append(app.until(_stepped, "a training step"))
    return {
        "runs": runs,
        "first_frame_seconds": round(statistics.median(frames), 3),
        "first_step_seconds": round(statistics.median(steps), 3),
        "all": [[round(a, 3), round(b, 3)] for a, b in zip(frames, steps, strict=True)],
    }


def ui(threads: int, keys: int, hours: float) -> dict[str, Any]:
    """How long a key takes to show while the model trains, and what the app holds after days of events."""
    with _app(threads) as app:
        app.until(_stepped, "a training step")
        app.press(CHAT)
        app.look(1.0)
        delays = _key_delays(app, keys)
        process = psutil.Process(app.process.pid)
        held = process.memory_info().rss
        libraries = _libraries(process)
    delays.sort()
    return {
        "keys": len(delays),
        "key_milliseconds": {
            "p50": round(1e3 * statistics.median(delays), 1),
            "p95": round(1e3 * delays[int(0.95 * (len(delays) - 1))], 1),
            "worst": round(1e3 * delays[-1], 1),
        },
        "app_bytes": held,
        "torch_loaded": None if libraries is None else any("libtorch" in path for path in libraries),
        "days": endurance(hours),
    }


def _key_delays(app: App, keys: int) -> list[float]:
    """Seconds from each key to the text with it on the screen."""
    noise = random.Random(0)
    delays: list[float] = []
    typed = ""
    while len(delays) < keys:
        if len(typed) == len(WORD):
            app.press(CLEAR_LINE)
            app.look(0.3)
            typed = ""
        time.sleep(noise.uniform(0.05, 0.25))
        typed += WORD[len(typed)]
        began = time.perf_counter()
        app.press(typed[-1])
        app.until(_showing(typed), f"the letters {typed!r} in the chat")
        delays.append(time.perf_counter() - began)
    return delays


def _showing(typed: str) -> Callable[[str], bool]:
    return lambda text: typed in text


def _libraries(process: psutil.Process) -> list[str] | None:
    """Files mapped into a process; None where the system does not tell."""
    try:
        return [part.path for part in process.memory_maps()]
    except (psutil.Error, AttributeError, NotImplementedError):
        return None


def endurance(hours: float) -> dict[str, Any]:
    """What `python -m tui.endurance` found: a headless app through `hours` of events in compressed time."""
    done = subprocess.run(
        [sys.executable, "-m", "tui.endurance", str(hours)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MinagiError(f"The app could not be run through {hours:g} hours: {done.stderr.strip()[-400:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
