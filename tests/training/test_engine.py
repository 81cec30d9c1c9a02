"""The model made, opened, saved and loaded again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import Home, drive, everything, same_numbers

from minagi.config import Settings
from minagi.hardware import Hardware
from minagi.model.shape import Shape
from minagi.training.engine import Engine, depth_of, depth_warnings, shape_of
from minagi.weights import Store, layout

CPU = Hardware("cpu", "test", "fp32", 1, 10**12, False, False, "")
SHAPE = Shape(16, 2, 24, 1, 1, 0, 4, 8, 1, 2)

NGRAM, SQUARES = (2 * 40 + 2 * 30) * 16, 2 * 40 + 2 * 30


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "weights", write=True) as opened:
        yield opened


def settings_of(home: Home, **changes: object) -> Settings:
    return home.loaded({name.replace("__", "."): value for name, value in changes.items()}).settings


def test_initialisation(home: Home, store: Store) -> None:
    settings = settings_of(home, model__d_model=64, model__d_ff=128, model__n_prelude=2, pool__width=64)
    engine = Engine.fresh(store, settings, CPU, seed=1)
    numbers = {name: p.detach() for name, p in engine.net.stored().items()}
    out = 0.02 / math.sqrt(2 * 3)
    for name, value in numbers.items():
        if name == "adapter.weight":
            assert torch.equal(value, torch.cat((torch.eye(64), torch.eye(64)), 1))
        elif name == "halt.bias":
            assert value.tolist() == [-2]
        elif name == "halt.weight":
            assert 0.5 < float(value.std()) / 2e-4 < 1.5
        elif name.endswith("depth_emb") or name.startswith("ngram."):
            assert not value.any()
        elif value.dim() == 1:
            assert bool((value == 1).all()), name
        else:
            wanted = out if name.endswith(("proj.weight", "w2.weight")) else 0.02
            assert float(value.std()) == pytest.approx(wanted, rel=0.1), name
    for place in range(engine.pool.experts):
        weights = engine.pool.record(place).weights
        assert weights["w1"].std() == pytest.approx(0.02, rel=0.1)
        assert weights["w3"].std() == pytest.approx(0.02, rel=0.1)
        assert weights["w2"].std() == pytest.approx(out, rel=0.1)


def test_a_seed_makes_the_same_newborn(home: Home, tmp_path: Path) -> None:
    def newborn(folder: str, seed: int) -> dict[str, np.ndarray]:
        with Store.open(tmp_path / folder, write=True) as store:
            engine = Engine.fresh(store, settings_of(home), CPU, seed)
            found = {name: p.detach().numpy().copy() for name, p in engine.net.stored().items()}
            return found | {str(e): engine.pool.record(e).weights["w1"] for e in range(engine.pool.experts)}

    same_numbers(newborn("a", 3), newborn("b", 3))
    other = newborn("c", 4)
    assert not np.array_equal(other["0"], newborn("d", 3)["0"])
    assert not np.array_equal(other["0"], other["1"])


def test_a_newborn_is_nowhere_until_it_is_saved(home: Home) -> None:
    session = home.open()
    drive(session, 3)
    assert not (home.weights / "manifest.json").exists() and not (home.weights / "core.npz").exists()
    session.close()
    again = home.open()
    assert again.start.fresh and again.steps == 0
    again.close()


def test_what_is_saved_is_what_is_opened(home: Home) -> None:
    session = home.open({"pool.depth": 2})
    drive(session, 15)
    list(session.checkpoint())
    saved = everything(session)
    manifest = session.engine.store.manifest
    session.close()
    again = home.open({"pool.depth": 2})
    same_numbers(everything(again), saved)
    assert again.engine.store.manifest == manifest
    assert again.engine.shape == session.engine.shape
    again.close()


def test_a_model_keeps_its_shape_whatever_the_settings(home: Home) -> None:
    home.made(2)
    session = home.open({"model.d_model": 32, "pool.experts": 20, "pool.width": 64, "pool.top_k": 1})
    shape = session.engine.shape
    assert (shape.d_model, shape.expert_width, shape.top_k) == (16, 8, 3)
    assert session.engine.pool.experts == 7
    drive(session, 2)
    session.close()


def test_the_positions_a_directory_states_bound_no_window(home: Home) -> None:
    """They are what the program that wrote it had tables for; here tables are as long as a text."""
    home.made(4)
    longer: dict[str, object] = {"model.context_start": 96, "model.context_end": 1_100}
    session = home.open(longer)
    assert session.engine.store.shape["block"] == 64 and session.window.ceiling == 1_100
    session.window.context = 1_100
    assert drive(session, 2)
    list(session.checkpoint())
    assert session.engine.store.shape["block"] == 1_100
    session.close()
    again = home.open()
    assert again.window.context == 64, "a lowered ceiling binds"
    drive(again, 1)
    list(again.checkpoint())
    assert again.engine.store.shape["block"] == 1_100, "what was once stated stays"
    again.close()


def test_other_slots_and_ram_than_before(home: Home) -> None:
    home.made(4)
    for resident, ram in ((1, 1), (7, 0), (30, 2)):
        session = home.open({"pool.resident": resident, "pool.ram_cache": ram}, dry_run=True)
        drive(session, 3)
        assert len(session.engine.pool.resident()) <= min(resident, 7)
        session.close()


def test_keys_that_are_not_known_travel_through(home: Home) -> None:
    home.made(2)
    path = home.weights / "manifest.json"
    text = path.read_text().replace('"cfg": {', '"cfg": {\n  "colour": "green",', 1)
    path.unlink()
    path.write_text(text.replace("{", '{\n "owner": {"name": "Ada"},', 1))
    session = home.open()
    drive(session, 2)
    list(session.checkpoint())
    assert session.engine.store.manifest["owner"] == {"name": "Ada"}
    assert session.engine.store.manifest["cfg"]["colour"] == "green"
    session.close()


def test_counting(home: Home, store: Store) -> None:
    engine = Engine.fresh(store, settings_of(home), CPU, 0)
    trunk = sum(p.numel() for p in engine.net.parameters())
    assert engine.parameters == trunk + 7 * 3 * 8 * 16
    store.checkpoint(engine.state({}))
    assert engine.parameters == layout.parameters(store.shape), "sums of squares are no parameters"
    assert engine.expert_bytes == 3 * 8 * 16 * 8
    assert engine.model_bytes == (engine.parameters - NGRAM) * 8 + (NGRAM + SQUARES) * 4


def test_averages_count_among_the_bytes_that_growth_may_take(home: Home) -> None:
    session = home.open({"training.average_chars": 200})
    drive(session, 4)
    list(session.checkpoint())
    engine = session.engine
    uid = engine.pool.resident()[0]  # a newborn that no step changed has no average yet
    session.close()
    assert engine.model_bytes == (engine.parameters - NGRAM) * 10 + (NGRAM + SQUARES) * 4
    with np.load(home.weights / "experts" / f"e{uid:05d}.npz") as arrays:
        assert engine.expert_bytes == sum(array.nbytes for array in arrays.values())


def test_depth_that_fits_is_taken_as_it_is() -> None:
    settings = Settings()
    settings = replace(
        settings,
        model=replace(settings.model, bptt_window=2, min_steps=2, train_steps_mean=3.5, halt_prior=0.3),
    )
    depth = depth_of(settings, SHAPE)
    assert (depth.bptt_window, depth.min_steps, depth.train_steps_mean) == (2, 2, 3.5)
    assert depth_warnings(settings, SHAPE) == []


def test_depth_that_does_not_fit_is_told_and_bounded() -> None:
    settings = Settings()
    settings = replace(
        settings,
        model=replace(settings.model, bptt_window=5, min_steps=6, train_steps_mean=4.0, halt_prior=0.16),
    )
    depth = depth_of(settings, SHAPE)
    assert (depth.bptt_window, depth.min_steps, depth.train_steps_mean) == (4, 4, 0.0)
    said = depth_warnings(settings, SHAPE)
    assert len(said) == 4 and all(s.startswith("model.") and s.endswith(".") for s in said)


def test_freezing_needs_one_recurrent_block_and_no_coda() -> None:
    settings = Settings()
    settings = replace(
        settings, model=replace(settings.model, bptt_window=4, train_steps_mean=0, halt_prior=0.3)
    )
    for shape in (replace(SHAPE, n_recur=2), replace(SHAPE, n_coda=1)):
        assert not depth_of(settings, shape).halt_freeze
        assert any("halt_freeze" in sentence for sentence in depth_warnings(settings, shape))
    assert depth_of(settings, SHAPE).halt_freeze


def test_shape_of_a_manifest() -> None:
    cfg = {
        "d_model": 16, "n_head": 2, "d_ff": 24, "n_prelude": 1, "n_recur": 1, "n_coda": 0, "max_steps": 4,
        "pool_d_ff": 8, "pool_depth": 1, "pool_top_k": 2, "rope_theta": 10000, "vocab_size": 265,
    }  # fmt: skip
    assert shape_of(cfg) == SHAPE


def test_models_with_blocks_after_the_rows(home: Home) -> None:
    """n_recur and n_coda above the published ones: trained, saved and opened all the same."""
    changes: dict[str, object] = {
        "model.n_recur": 2, "model.n_coda": 1, "model.max_steps": 2, "model.halt_freeze": False,
    }  # fmt: skip
    home.made(4, changes)
    session = home.open(changes)
    assert not session.engine.net.freezes
    drive(session, 3)
    list(session.checkpoint())
    session.close()
