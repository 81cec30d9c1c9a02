"""The program `python -m minagi.worker`."""

import signal


def main() -> None:
    """Run a worker, and end the process with its status."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in minagi.__main__
    from minagi.worker.ending import ending
    from minagi.worker.process import main as run

    ending(run, interrupt)


if __name__ == "__main__":
    main()
