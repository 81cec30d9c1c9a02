"""The program `minagi`, also `python -m minagi`."""

import signal


def main() -> None:
    """Run one command, and end the process with its status."""
    # Loading takes a tenth of a second, in which ctrl+c must end the program, not print a traceback.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from minagi.cli import main as run
    from minagi.worker.ending import ending

    ending(run, interrupt)


if __name__ == "__main__":
    main()
