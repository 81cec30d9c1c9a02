"""The recorded numbers of other implementations, through the real store and engine.

Two folders of the same form: the one MINAGI_FIXTURES names (../shared/fixtures/small beside the
repository when it is not set), recorded from an independent implementation; and tests/fixtures/tiny,
recorded from the slow oracle, which is always there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minagi.config import Decoding, Settings
from minagi.hardware import Hardware
from minagi.model.loss import Loss, training_loss
from minagi.model.reading import read
from minagi.model.routing import Forward
from minagi.text import alphabet
from minagi.training.engine import POOL_AUX, Engine
from minagi.training.writing import Writer
from minagi.weights import Store

ROOT = Path(__file__).parents[2]
RECORDED = Path(os.environ.get("MINAGI_FIXTURES") or ROOT.parent / "shared" / "fixtures" / "small")
FOLDERS = {"recorded": RECORDED, "tiny": ROOT / "tests" / "fixtures" / "tiny"}


class Recorded:
    """A fixture folder: what was recorded, and the engine opened on a copy of its weights."""

    def __init__(self, folder: Path, copy: Path, precision: str, ram: int = 0) -> None:
        self.folder = folder
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
        self.settings_in_force: dict[str, Any] = self.expected["settings"]
        shutil.copytree(folder / "weights", copy)
        cfg = json.loads((copy / "manifest.json").read_text())["cfg"]
        self.store = Store.open(copy, write=True)
        hardware = Hardware("cpu", "test", precision, 1, 10**12, False, False, "")
        self.engine = Engine.opened(self.store, self._settings(cfg, ram), hardware)

    def _settings(self, cfg: dict[str, Any], ram: int) -> Settings:
        """The settings under which the numbers were recorded."""
        given, usual = {**cfg, **self.settings_in_force}, Settings()
        depth = ("min_steps", "halt_prior", "halt_thresh", "halt_freeze", "ponder_beta", "bptt_window")
        return replace(
            usual,
            model=replace(
                usual.model,
                train_steps_mean=given["train_steps_mean"],
                **{name: given[name] for name in depth},
            ),
            pool=replace(
                usual.pool,
                resident=cfg["pool_resident"],
                ram_cache=ram,
                capacity_factor=given["capacity_factor"],
                balance=given["balance"],
            ),
            training=replace(
                usual.training,
                weight_decay=given["weight_decay"],
                clip=given["clip"],
                beta2=given["betas"][1],
            ),
        )

    @property
    def text(self) -> torch.Tensor:
        return ids_of(self.expected["reading"]["text"])

    def forward(self, text: Any = None, **more: Any) -> Forward:
        return Forward(self.engine.pool, text or self.engine.net.new_text(), self.engine.routing, **more)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / name, allow_pickle=False) as archive:
            return dict(archive)

    def step(self, data: str) -> tuple[Loss, float, Forward]:
        """One optimiser step over a window, all rows run."""
        engine, given = self.engine, self.settings_in_force
        ids = ids_of(data)
        forward = self.forward(training=True)
        rows = engine.shape.max_steps
        loss = training_loss(engine.net, ids[:-1], ids[1:], forward, rows, given["pool_aux"])
        loss.total.backward()
        norm = engine.optimiser.norm()
        engine.optimiser.step(given["lr"], given["lr"] * given["trunk_lr_mult"], norm)
        return loss, norm, forward


def ids_of(text: str) -> torch.Tensor:
    return torch.from_numpy(alphabet.encode(text.encode("latin-1"), markers=False).astype(np.int64))


def opened(which: str, tmp_path: Path, precision: str = "fp32", ram: int = 0) -> Recorded:
    folder = FOLDERS[which]
    if not (folder / "expected.json").is_file():
        assert which == "recorded" and not os.environ.get("MINAGI_FIXTURES"), f"nothing recorded in {folder}"
        pytest.skip(f"no recorded numbers: {folder} does not exist (MINAGI_FIXTURES may name another)")
    return Recorded(folder, tmp_path / "weights", precision, ram)


@pytest.fixture(params=list(FOLDERS))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recorded]:
    found = opened(request.param, tmp_path)
    yield found
    found.store.close()


def test_reading_a_new_text(recorded: Recorded) -> None:
    expected, arrays = recorded.expected["reading"], recorded.arrays("reading.npz")
    forward = recorded.forward(trace_rows=1)
    got = read(recorded.engine.net, recorded.text, forward)
    assert sorted(forward.admitted) == expected["admitted"]
    np.testing.assert_allclose(got.logits.numpy(), arrays["logits"], rtol=0, atol=2e-4)
    np.testing.assert_array_equal(got.rows.numpy(), arrays["rows"])
    np.testing.assert_array_equal(forward.traces[0].experts.numpy(), arrays["first_row_experts"])
    np.testing.assert_allclose(
        forward.traces[0].weights.numpy(), arrays["first_row_weights"], rtol=0, atol=2e-4
    )
    assert float(got.rows.double().mean()) == pytest.approx(expected["mean_rows"], abs=1e-4)
    nats = torch.nn.functional.cross_entropy(got.logits[:-1], recorded.text[1:])
    assert float(nats) == pytest.approx(expected["nats"], abs=1e-4)


def test_reading_through_the_caches_in_parts(recorded: Recorded) -> None:
    arrays = recorded.arrays("reading_cached.npz")
    net = recorded.engine.net
    text = net.new_text()
    logits, rows = [], []
    for part in recorded.text.split(recorded.settings_in_force.get("parts", [100, 60, 96])):
        got = read(net, part, recorded.forward(text))
        logits.append(got.logits)
        rows.append(got.rows)
    np.testing.assert_allclose(torch.cat(logits).numpy(), arrays["logits"], rtol=0, atol=2e-4)
    np.testing.assert_array_equal(torch.cat(rows).numpy(), arrays["rows"])


def test_writing(recorded: Recorded) -> None:
    """`rows` of a written character are those of the forward whose readout chose it."""
    for expected in recorded.expected["writing"]:
        decoding = Decoding(adapt_strength=expected["adapt_strength"], adapt_decay=expected["adapt_decay"])
        writer = Writer(recorded.engine, 4096, expected["adapt_strength"], decoding)
        written = list(writer.write(ids_of(expected["prompt"]).tolist(), len(expected["ids"])))
        assert [character.id for character in written] == expected["ids"]
        assert [character.rows for character in written] == expected["rows"]


def check_training(recorded: Recorded) -> None:
    for expected in recorded.expected["training"]:
        loss, norm, forward = recorded.step(expected["text"])
        assert sorted(forward.admitted) == expected["admitted"]
        assert forward.dropped == expected.get("dropped", 0)
        terms = {
            "loss": loss.total.detach(), "ce": loss.ce, "kl": loss.kl, "depth": loss.rows, "load": loss.load,
            "balance": loss.balance, "grad_norm": norm,
        }  # fmt: skip
        for name, got in terms.items():
            assert float(got) == pytest.approx(expected[name], rel=2e-4), name


def test_training(recorded: Recorded) -> None:
    assert recorded.settings_in_force["pool_aux"] == POOL_AUX
    check_training(recorded)


@pytest.mark.parametrize("which", list(FOLDERS))
def test_training_with_room_for_one_expert_in_ram(which: str, tmp_path: Path) -> None:
    """Experts go to disk and come back between the steps, and replies are written between them."""
    found = opened(which, tmp_path, ram=1)
    with found.store:
        writer = Writer(found.engine, 64, 0.0, Decoding())
        steps = found.expected["training"]
        for count in range(0, len(steps), 4):
            found.expected["training"] = steps[count : count + 4]
            check_training(found)
            list(writer.write(list(b"Meanwhile"), 3))
            found.store.checkpoint(found.engine.state({}))  # `settle` would round live moments


@pytest.mark.parametrize("which", list(FOLDERS))
def test_bf16(which: str, tmp_path: Path) -> None:
    """bf16 keeps 8 bits. Measured: logits within 0.03 but where a character chose another expert or was
    dropped for one that did, losses within 4e-4, norms within 5e-3."""
    found = opened(which, tmp_path, "bf16")
    with found.store:
        arrays = found.arrays("reading.npz")
        forward = found.forward()
        got = read(found.engine.net, found.text, forward)
        assert sorted(forward.admitted) == found.expected["reading"]["admitted"]
        assert (got.rows.numpy() == arrays["rows"]).mean() > 0.97
        off = np.abs(got.logits.numpy() - arrays["logits"]).max(1)
        assert (off < 0.1).mean() > 0.95
        for expected in found.expected["training"]:
            loss, norm, _ = found.step(expected["text"])
            assert float(loss.ce) == pytest.approx(expected["ce"], rel=3e-3)
            assert norm == pytest.approx(expected["grad_norm"], rel=0.03)
