"""Run by the soak: starts one real worker a line of its stdin, by forking, so that torch is loaded once.

`python soak_worker.py EVENTS FLAG…`: a worker appends its events to the file EVENTS. Its process id is
printed when it was started, "gone" when it has ended.
"""

from __future__ import annotations

import os
import sys

import torch

from minagi.training.session import open_session
from minagi.worker.process import main


def worker(events: str, flags: list[str], read_fd: int) -> int:
    """The process itself from here on: commands from `read_fd`, which never says anything, and events out."""
    out = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(read_fd, 0)
    os.dup2(out, 1)
    return main(flags, open_session)


if __name__ == "__main__":
    torch.set_num_threads(1)
    read_fd, write_fd = (
        os.pipe()
    )  # the end that is written to stays open here: a worker leaves when it closes
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.close(write_fd)
            os._exit(worker(sys.argv[1], sys.argv[2:], read_fd))
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("gone", flush=True)
