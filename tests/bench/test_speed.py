"""What benchmarks measure on, and what they report; never how fast anything was."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from minagi import cli
from minagi.bench import paging, saving, training, writing
from minagi.bench.shapes import Recipe, random_text
from minagi.errors import UsageError

MINI = Recipe("mini", "fp32")
pytestmark = pytest.mark.usefixtures("nothing_left")


def sound(found: dict[str, Any]) -> None:
    """What every figure comes with."""
    for name in ("characters_per_second", "gflops_fp32", "gflops_bf16", "peak_bytes"):
        assert found[name] > 0
    assert (found["precision"], found["device"]) == ("fp32", "cpu")
    json.dumps(found, allow_nan=False)


def test_training_runs_every_row_of_a_shape() -> None:
    found = training.train(MINI, window=20, steps=2)
    sound(found)
    assert found["rows"] == 6
    assert found["halted_by_middle_row"] == 0


def test_a_halting_head_set_so_stops_half_of_the_characters_early() -> None:
    found = training.train(MINI, window=200, steps=2, halting="half")
    assert found["halted_by_middle_row"] == pytest.approx(0.5, abs=0.02)
    assert 1 < found["rows"] < 6
    assert found["halting"] == "half"


def test_a_step_trains() -> None:
    with MINI.made() as engine:
        before = {name: p.detach().clone() for name, p in engine.net.named_parameters()}
        training.step(engine, random_text(np.random.default_rng(0), 17))
        assert any((p != before[name]).any() for name, p in engine.net.named_parameters())


def test_writing_is_timed_a_character() -> None:
    found = writing.write(MINI, chars=3)
    sound(found)
    assert found["rows"] == 6
    assert found["written"] == 3


def test_paging_moves_a_whole_expert() -> None:
    found = paging.page(MINI)
    assert found["expert_weight_bytes"] == 3 * 16 * 16 * 4
    assert found["expert_file_bytes"] > found["expert_weight_bytes"] * 2
    for name in ("ram_to_memcpy", "disk_to_read", "disk_weights_to_read"):
        assert found[name] > 0


def test_a_pool_grows_on_disk_and_is_paged() -> None:
    found = paging.pool(MINI, window=16, steps=3, sizes=(4, 24))
    sound(found)
    small, large = found["pools"]
    assert (small["experts"], large["experts"]) == (4, 24)
    assert large["loads_per_step"] > 0
    assert math.isfinite(found["growth"])


def test_no_room_for_a_pool_is_told_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 10}))
    with pytest.raises(UsageError, match="TMPDIR"):
        paging.pool(MINI, window=16, steps=1, sizes=(4,))


def test_shapes_are_those_of_the_published_figures() -> None:
    seed, tiny = (Recipe(name).settings() for name in ("seed", "tiny"))
    assert (seed.model.d_model, seed.model.n_prelude, seed.pool.experts, seed.pool.width) == (
        512,
        2,
        64,
        2048,
    )
    assert (seed.pool.top_k, seed.pool.resident, seed.pool.capacity_factor, seed.model.max_steps) == (
        8,
        32,
        1.5,
        12,
    )
    assert (tiny.model.d_model, tiny.pool.experts, tiny.pool.width, tiny.model.min_steps) == (128, 16, 256, 3)
    with pytest.raises(UsageError, match="There are: seed, tiny, mini, cpu"):
        Recipe("huge").settings()


# ------------------------------------------------------------------------------------- the command


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "train", "--shape", "mini", "--steps", "1", "--window", "9", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert (found["bench"], found["shape"], found["window"]) == ("train", "mini", 9)
    assert found["threads"] >= 1


def test_figures_are_told_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "page", "--shape", "mini", "--threads", "1"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["expert_weight_bytes"] == "3,072"
    assert float(lines["gigabytes_per_second.ram"]) >= 0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "usage"), (["trian"], "nearest there is: train"), (["\x1b[2J"], "There are: train"),
        (["train", "--shape", "huge"], "no shape"), (["train", "--window", "0"], "--window"),
        (["train", "--steps", "-1"], "--steps"), (["train", "--halting", "some"], "--halting"),
        (["train", "--precision", "fp8"], "--precision"), (["train", "--text", "x"], "no flag --text"),
        (["write", "--chars", "nan"], "--chars"), (["write", "--threads", "0"], "--threads"),
        (["write", "--device", "tpu"], "no device"), (["page", "--window", "3"], "no flag"),
    ],
)  # fmt: skip
def test_bad_flags_are_a_sentence(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *argv]) == 2
    captured = capsys.readouterr()
    assert words in captured.out + captured.err
    assert "\x1b" not in captured.err
    assert captured.err.count("\n") == (1 if argv else 0)


def test_a_save_is_timed_beside_the_steps_it_holds_up() -> None:
    found = saving.checkpoint(MINI, window=8, gigabytes=0.0001)
    assert found["experts"] == 16
    assert found["bytes_written"] > 0
    assert 0 < found["pause_seconds"] < found["write_seconds"]
    assert found["ratio"] == pytest.approx(found["pause_seconds"] / found["write_seconds"], abs=0.02)
    json.dumps(found, allow_nan=False)
