from __future__ import annotations

import numpy as np
import pytest

from minagi.training.signal import DECAY, GradSignal


def drive(signal: GradSignal, gradients: np.ndarray, key: object = "trunk") -> list[float | None]:
    """What a trainer does with it, gradients (readings, parameters)."""
    mean = np.zeros(gradients.shape[1])
    values = []
    for g in gradients:
        mean = mean * signal.begin(key) + (1 - DECAY) * g  # type: ignore[arg-type]
        values.append(signal.observe(float(mean @ mean), float(g @ g)))
    return values


def test_one_direction_is_all_signal_and_noise_is_almost_none() -> None:
    g = np.random.default_rng(0).normal(size=(400, 500))
    assert drive(GradSignal(), np.ones((20, 5)))[-1] == pytest.approx(1.0)
    assert drive(GradSignal(), g)[-1] == pytest.approx(0.01, abs=0.005)
    value = drive(GradSignal(), g + 1.0)[-1]
    assert value == pytest.approx(0.5, abs=0.03)


def test_it_speaks_from_eight_readings_on() -> None:
    values = drive(GradSignal(), np.ones((9, 5)))
    assert values[:7] == [None] * 7
    assert values[7] is not None


def test_it_starts_over_when_the_set_of_gradients_changes() -> None:
    signal = GradSignal()
    drive(signal, np.ones((9, 5)), key=("a", "b"))
    assert signal.begin(("a", "b", "c")) == 0.0
    assert signal.value is None
    assert drive(signal, np.ones((8, 5)), key=("a", "b", "c"))[-1] == pytest.approx(1.0)


def test_a_reading_that_is_not_finite_starts_it_over() -> None:
    signal = GradSignal()
    drive(signal, np.ones((9, 5)))
    assert signal.observe(float("nan"), 1.0) is None
    assert signal.begin("trunk") == 0.0


def test_zero_gradients_give_no_figure() -> None:
    assert drive(GradSignal(), np.zeros((10, 5)))[-1] is None


def test_every_eighth_step() -> None:
    assert [step for step in range(20) if GradSignal.due(step)] == [0, 8, 16]
