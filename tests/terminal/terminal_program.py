"""A program in a pseudo-terminal: its keys, its emulated screen, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pexpect
import psutil
import pyte

PATIENCE = 60.0  # seconds; a wait ends as soon as what it waits for is there
LOOK = 0.05  # seconds between two looks at the screen
CTRL_C, CTRL_Q, CTRL_Z, ESCAPE, ENTER, DOWN = "\x03", "\x11", "\x1a", "\x1b", "\r", "\x1b[B"

_MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
_KEYBOARD = re.compile(rb"\x1b\[([<>])\d*u")  # kitty's protocol: pushed, popped
_BEYOND_PYTE = re.compile(rb"\x1b\[[<>=][\d;]*[a-zA-Z]|\x1b\[[\d;]*t")
_ANY_SEQUENCE = re.compile(rb"\x1b\[[^a-zA-Z]*[a-zA-Z]|\x1b\][^\x07]*\x07|\x1b[=>]")
# a terminal's private modes by number: what a program switches on, it must switch off
_MODES = {
    1000: "mouse", 1002: "mouse drag", 1003: "mouse motion", 1006: "mouse SGR", 1015: "mouse urxvt",
    1004: "focus", 1049: "alternate screen", 2004: "bracketed paste", 2048: "in-band resize",
}  # fmt: skip
_COOKED = termios.ICANON | termios.ECHO | termios.ISIG


class Program:
    """`argv` in a terminal of its own. `until` waits for a condition; nothing here sleeps blindly."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        folder: Path,
        environ: Mapping[str, str],
        columns: int = 110,
        lines: int = 34,
        preexec: Callable[[], None] | None = None,
    ) -> None:
        command, *arguments = map(str, argv)
        self._began = time.monotonic()
        self.child = pexpect.spawn(
            command, arguments, cwd=str(folder), env=dict(environ), dimensions=(lines, columns),
            preexec_fn=preexec,
        )  # fmt: skip
        self.child.delaybeforesend = None
        self.output = bytearray()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._over = False
        self._ever: list[psutil.Process] = []

    # ------------------------------------------------------------------------------------- seeing

    @property
    def screen(self) -> str:
        """What stands on the screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def seconds(self) -> float:
        """Time since it was started."""
        return time.monotonic() - self._began

    def pump(self, seconds: float = 0.0) -> None:
        """Take in for `seconds` what the program writes."""
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, end - time.monotonic())
            if self._over:
                time.sleep(left)
                return
            if not select.select([self.child.child_fd], [], [], left)[0]:
                return
            try:
                data = os.read(self.child.child_fd, 65_536)
            except OSError:  # nobody holds the other end any more
                data = b""
            self._over = not data
            self.output += data
            self._stream.feed(_BEYOND_PYTE.sub(b"", data))

    def until(self, wanted: str | Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait until a text stands on the screen, or a condition is true."""
        deadline = time.monotonic() + seconds
        while not (wanted in self.screen if isinstance(wanted, str) else wanted()):
            assert time.monotonic() < deadline, f"{wanted!r} did not come. The screen:\n{self.screen}"
            self.pump(LOOK)

    def until_gone(self, text: str) -> None:
        """Wait until a text has left the screen."""
        self.until(lambda: text not in self.screen)

    @property
    def step(self) -> int:
        """The step in the header, or 0."""
        found = re.search(r"step ([\d,]+)", self.screen)
        return int(found[1].replace(",", "")) if found else 0

    def until_step(self, more: int = 3) -> int:
        """Wait until so many more steps were made; returns the step."""
        self.until(lambda: self.step > 0)
        goal = self.step + more
        self.until(lambda: self.step >= goal)
        return self.step

    @property
    def worker(self) -> psutil.Process:
        """The worker process below this program."""
        found: list[psutil.Process] = []

        def look() -> bool:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in psutil.Process(self.child.pid).children(recursive=True):
                    if "minagi.worker" in process.cmdline():
                        found.append(process)
            return bool(found)

        self.until(look)
        self._ever.append(found[0])
        return found[0]

    # -------------------------------------------------------------------------------------- acting

    def press(self, *keys: str | bytes) -> None:
        """Type keys; a control key is the character it sends."""
        for key in keys:
            self.child.send(key)

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size."""
        self.pump()
        self.child.setwinsize(lines, columns)
        self._screen.resize(lines, columns)

    def signal(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        os.kill(self.child.pid, number)

    def hang_up(self) -> None:
        """Take the terminal away, as a lost connection does."""
        self._over = True
        self.child.ptyproc.fileobj.close()

    def end(self, seconds: float = PATIENCE) -> int:
        """Wait for the program's end; its exit status, or minus the signal that ended it."""
        self.until(lambda: not self.child.isalive(), seconds)
        self.pump()
        return self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus

    def close(self) -> None:
        """End whatever still runs."""
        with contextlib.suppress(AssertionError, psutil.NoSuchProcess):
            self._ever += psutil.Process(self.child.pid).children(recursive=True)
        if self.child.isalive():
            os.kill(self.child.pid, signal.SIGKILL)
        self.child.close()
        for process in self._ever:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    # --------------------------------------------------------------------------------- left behind

    @property
    def parting(self) -> str:
        """What it wrote after it left the alternate screen; all of it where it never was there."""
        text = bytes(self.output).rpartition(b"\x1b[?1049l")[2]
        return _ANY_SEQUENCE.sub(b"", text).decode("utf-8", "replace").replace("\r\n", "\n")

    def left_on(self) -> list[str]:
        """Names of what is not as it was in this terminal; [] when all was restored."""
        modes: dict[int, bool] = {}
        for numbers, letter in _MODE.findall(self.output):
            modes.update({int(number): letter == b"h" for number in numbers.split(b";")})
        wrong = [name for number, name in _MODES.items() if modes.get(number)]
        if not modes.get(25, True):
            wrong.append("hidden cursor")
        keyboard = _KEYBOARD.findall(self.output)
        if keyboard.count(b">") != keyboard.count(b"<"):
            wrong.append("keyboard protocol")
        if termios.tcgetattr(self.child.child_fd)[3] & _COOKED != _COOKED:
            wrong.append("raw mode")
        return wrong
