"""Commands that only read, over and over beside a worker that trains and saves: one whole checkpoint each."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from live_workers import PATIENCE, started, whole

from minagi import cli
from minagi.protocol import Saved
from minagi.weights import Store

ROUNDS = 3  # different checkpoints seen


def test_readers_beside_a_live_trainer_see_one_whole_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "measured.txt"
    text.write_text("Words that nobody trains on.")
    with started(tmp_path) as live:
        pid = live.start()
        live.wait_for_saved()
        end = time.monotonic() + PATIENCE
        steps: list[int] = []
        while len(set(steps)) < ROUNDS:
            assert time.monotonic() < end, "nothing more was saved"
            with Store.open(live.weights, write=False) as reader:
                steps.append(reader.manifest["step"])
                whole(reader, f"round {len(steps)}")
                assert len(reader.snapshots()) > 0
            for command in (
                ["info", str(live.weights)],
                ["snapshots", str(live.weights)],
                ["eval", str(text), "--weights", str(live.weights), "--device", "cpu"],
                ["write", "--prompt", "A", "--chars", "3", "--weights", str(live.weights), "--device", "cpu"],
            ):
                status = cli.main([*command, "--json"])
                told = capsys.readouterr()
                assert status == 0, told.err
                assert json.loads(told.out)
        assert steps == sorted(steps)
        live.kill(pid)
        saved = [event.step for event in live.heard() if isinstance(event, Saved)]
        assert set(steps[:-1]) <= {*saved, steps[-1]}, "a checkpoint that was never completed was seen"
