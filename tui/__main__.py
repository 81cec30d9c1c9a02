"""The program `minagi-tui`, also `python -m tui`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the app; returns its exit status."""
    # Loading takes half a second, in which ctrl+c must end the program, not print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tui.app import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
