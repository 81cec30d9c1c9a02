"""Run by the tests as a worker process with a fake trainer: `python worker_process.py MODE [flags]`.

MODE: plain | slow (steps of 50 ms) | printing (stray output from Python and from below it) |
crash (a defect in the fourth step) | locked (opening is refused).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from worker_fakes import FakeTrainer

from minagi.errors import LockedError
from minagi.training.request import SessionRequest
from minagi.worker.process import main


def open_fake(request: SessionRequest) -> FakeTrainer:
    mode = os.environ["FAKE_MODE"]
    if mode == "locked":
        raise LockedError("These weights are being trained by process 12. Stop it first.")
    trainer = FakeTrainer(dry_run=request.dry_run, step_seconds=0.05 if mode == "slow" else 0.002)
    if mode == "crash":
        trainer.faults["step"] = RuntimeError("something impossible")
    if mode == "printing":
        print("stray print")
        os.system("echo stray echo; echo stray error >&2")
        os.write(1, b"stray bytes\n")
        print(sys.stdin.read(), "nothing to read here")
    return trainer


if __name__ == "__main__":
    os.environ["FAKE_MODE"] = sys.argv[1]
    status = main(sys.argv[2:], open_fake)
    assert "torch" not in sys.modules, "the worker loads torch before its session"
    sys.exit(status)
