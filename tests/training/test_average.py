"""Averaged weights: what they are, who reads with them, and that training never notices them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from minagi.errors import WeightsError
from minagi.training.average import EVERY, SHARE
from minagi.training.session import Session, open_reader
from minagi.weights import ExpertRecord
from tests.training.tiny_runs import Home, drive, everything, losses, prose, same_numbers

ON: dict[str, object] = {"training.average_chars": 200}
OFF: dict[str, object] = {"training.average_chars": 0}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def opened(home: Home) -> Iterator[Session]:
    session = home.open(ON)
    yield session
    session.close()


def newest(session: Session) -> dict[str, np.ndarray]:
    """Weights by name, experts' by uid and name; no moments, averages or counters."""
    kept = everything(session)
    return {name: array for name, array in kept.items() if "|" not in name and "telemetry" not in name}


def averages(session: Session) -> dict[str, np.ndarray]:
    return {name[:-2]: array for name, array in everything(session).items() if name.endswith("|a")}


def figure(session: Session) -> float:
    list(session.evaluate())
    assert session.progress.val is not None
    return session.progress.val


@pytest.mark.parametrize("ram", [0, 1])
def test_an_average_is_the_exponential_mean_of_what_the_weights_were(home: Home, ram: int) -> None:
    """Followed by hand in float64; an expert's moves only when the expert was stepped."""
    session = home.open({**ON, "pool.ram_cache": ram})
    before = newest(session)
    expected = {
        name: array.astype(np.float64) for name, array in before.items() if not name.endswith(("_m", "_v"))
    }
    for _ in range(12):
        chars = session.chars
        drive(session, 1)
        new = session.chars - chars
        stepped = {str(uid) for uid in session.stepper.admitted}
        total = session.chars
        every = min(EVERY, 2 ** int(math.log2(max(1, total // 16))))
        if total // every == chars // every:
            continue
        share = max(new, every) / (max(new, every) + min(SHARE * total, 200))
        for name, array in newest(session).items():
            uid = name.split()[0]
            if name in expected and (not uid.isdigit() or uid in stepped):
                expected[name] += share * (array - expected[name])
    found = averages(session)
    assert found.keys() >= {"tok_emb.weight", "pool.gate"}
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    session.close()


def test_an_average_follows_from_birth_on(home: Home) -> None:
    """Not for long do its weights stand still while the newest move on."""
    session = home.open(ON)
    before = averages(session)["tok_emb.weight"]
    for _ in range(12):
        drive(session, 10)
        after = averages(session)["tok_emb.weight"]
        assert (after != before).any(), f"unmoved at {session.chars} characters"
        before = after
    session.close()


def test_training_never_notices(home: Home) -> None:
    """The same losses and weights with averages and without, whatever was read out in between."""
    plain = home.open(OFF, weights=home.root / "plain")
    averaged = home.open(ON)
    mine = losses(drive(averaged, 12, lambda step: list(averaged.evaluate()) if step % 3 == 0 else None))
    assert mine == losses(drive(plain, 12))
    same_numbers(newest(averaged), newest(plain))
    plain.close()
    averaged.close()


def test_held_out_text_is_read_with_the_averages(home: Home) -> None:
    """The figure is what a model with the averages for weights gives."""
    opened = home.open({**ON, "pool.ram_cache": 0})
    drive(opened, 15)
    mine = figure(opened)
    engine = opened.engine
    kept = averages(opened)
    with torch.no_grad():
        for name, parameter in engine.net.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.from_numpy(kept[name]))
    for uid in engine.pool.telemetry.uid:
        mean = {name.split()[1]: kept[name] for name in kept if name.startswith(f"{uid} ")}
        if uid in engine.pool.resident():
            engine.pool.slots.load_weights(engine.pool._slot_of[uid], mean)
        if uid in engine.pool.ram:
            engine.pool.ram.put(ExpertRecord(uid, mean), dirty=True)
    engine.pool.use_weights = lambda newest: None  # nothing is exchanged from here on
    assert figure(opened) == mine
    opened.close()


def test_it_reads_otherwise_than_the_newest(home: Home) -> None:
    plain = home.open(OFF, weights=home.root / "plain")
    averaged = home.open(ON)
    drive(plain, 15)
    drive(averaged, 15)
    assert figure(plain) != figure(averaged)
    plain.close()
    averaged.close()


def test_saved_resumed_and_reverted_to_the_bit(home: Home) -> None:
    session = home.open(ON)
    drive(session, 9)
    list(session.checkpoint())
    saved = everything(session)
    went_on = losses(drive(session, 5))
    after = averages(session)
    list(session.revert("1"))
    same_numbers(everything(session), saved)
    session.close()

    again = home.open(ON)
    same_numbers(everything(again), saved)
    assert losses(drive(again, 5)) == went_on
    same_numbers(averages(again), after)
    again.close()


def test_eval_and_write_read_with_them(home: Home) -> None:
    """A reader gives the figure that the averages give, also after the settings no longer ask for them."""
    measured = home.root / "measured.txt"
    measured.write_text(prose(40, 5))
    home.made(15, ON)
    with_them = open_reader(home.weights, home.loaded(ON), "cpu")
    told_off = open_reader(home.weights, home.loaded(OFF), "cpu")
    assert with_them.engine.averages is not None and told_off.engine.averages is not None
    mine = with_them.evaluate(measured)["nats"]
    assert told_off.evaluate(measured)["nats"] == mine
    plain = home.open(OFF, weights=home.root / "plain")
    drive(plain, 15)
    list(plain.checkpoint())
    plain.close()
    other = open_reader(home.root / "plain", home.loaded(ON), "cpu")
    assert other.engine.averages is None, "a model made without averages stays without"
    assert other.evaluate(measured)["nats"] != mine
    assert math.isfinite(mine)
    for reader in (with_them, told_off, other):
        reader.close()


def test_births_and_deaths_resize_them(opened: Session) -> None:
    """A newborn's rows begin as they are in the weights; the rows of the others stay whose they were."""
    drive(opened, 9)
    list(opened.evaluate())  # leaves the averages in use
    engine = opened.engine
    before = averages(opened)
    list(opened.evaluate())
    (uid,) = engine.population.grow(1, 0.25, np.random.default_rng(0))
    grown = averages(opened)
    np.testing.assert_array_equal(grown["pool.gate"][:-1], before["pool.gate"])
    assert grown["pool.gate"][-1] == pytest.approx(0.25)
    list(opened.evaluate())
    idle = [
        p for p, u in enumerate(engine.pool.telemetry.uid) if u not in engine.pool.resident() and u != uid
    ]
    engine.population.prune(idle[:1])
    pruned = averages(opened)
    np.testing.assert_array_equal(pruned["pool.gate"], np.delete(grown["pool.gate"], idle[0]))
    drive(opened, 5)
    assert math.isfinite(figure(opened))


@pytest.mark.parametrize("fault", ["nan", "shape", "absent"])
def test_a_broken_average_is_told_or_begun_anew(home: Home, fault: str) -> None:
    """Numbers that are not finite are damage; an average that is gone or fits no more begins again."""
    home.made(5, ON)
    path = home.weights / "optim.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    name = "tok_emb.weight|a"
    if fault == "nan":
        arrays[name] = np.full_like(arrays[name], 0x7FC0)
    elif fault == "shape":
        arrays[name] = arrays[name][:-1]
    else:
        del arrays[name]
    np.savez(path, **arrays)
    if fault == "nan":
        with pytest.raises(WeightsError, match=r"optim\.npz.*tok_emb\.weight\|a.*not finite"):
            home.open(ON)
        return
    session = home.open(ON)
    assert session.engine.averages is not None
    parameter = session.engine.net.get_parameter("tok_emb.weight")
    assert torch.equal(session.engine.averages.of("tok_emb.weight"), parameter.detach())
    session.close()


@pytest.mark.parametrize(("weight", "moved"), [(1.0, 1 / 2), (0.1, 1 / 11), (0.01, 1 / 101)])
def test_a_step_at_a_lower_rate_moves_the_mean_less(home: Home, weight: float, moved: float) -> None:
    session = home.open({"training.average_chars": 10_000})
    averages, parameter = session.engine.averages, session.engine.net.adapter.weight
    assert averages is not None
    averages.newest()
    before = averages.of("adapter.weight").clone()
    with torch.no_grad():
        parameter.copy_(before + 1)
    averages.stepped(1_024, 10_240, weight)  # a tenth of them, 1,024, is what a mean spans
    torch.testing.assert_close(averages.of("adapter.weight") - before, torch.full_like(before, moved))
    session.close()
