from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_runs import Home, drive, everything, losses, of, same_numbers

from minagi import protocol


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def trace(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def test_the_first_chunks_routing_as_it_was(home: Home) -> None:
    path = home.root / "routes.npz"
    session = home.open(trace_routes=path, trace_chunks=3)
    pool = session.engine.pool
    admitted: list[list[int]] = []
    resident: list[list[int]] = []
    said = drive(
        session,
        5,
        lambda step: (admitted.append(session.stepper.admitted), resident.append(pool.resident())),
    )
    session.close()
    (log,) = [log.text for log in of(protocol.Log, said) if "routing" in log.text]
    assert "first 3 chunks" in log and str(path) in log
    found = trace(path)
    assert found["step"].tolist() == [0, 1, 2] and found["chars"][0] == 0 and found["loads"][0] >= 4
    for chunk in range(3):
        assert [uid for uid in found["admitted"][chunk] if uid >= 0] == admitted[chunk]
        assert [uid for uid in found["resident"][chunk] if uid >= 0] == resident[chunk]
    pulses = of(protocol.Metrics, said)
    ends = [*found["start"][1:], len(found["position"])]
    for chunk, row, start, end in zip(found["chunk"], found["row"], found["start"], ends, strict=True):
        assert row < pulses[chunk].rows_run
        uid, weight, position = (found[name][start:end] for name in ("uid", "weight", "position"))
        assert uid.shape == weight.shape == (end - start, 3)
        assert set(uid[uid >= 0]) <= set(admitted[chunk]) and (weight >= 0).all()
        assert (np.diff(position) > 0).all() and position.max() < pulses[chunk].context
        assert all(len(set(row)) == 3 for row in uid.tolist()), "a character's experts are different ones"
    assert found["row"][0] == found["chunk"][0] == 0
    assert sorted(path.name for path in home.root.iterdir() if "routes" in path.name) == ["routes.npz"]


def test_tracing_changes_no_number(home: Home) -> None:
    plain, traced = home.open(), home.open(weights=home.root / "other", trace_routes=home.root / "t.npz")
    assert losses(drive(plain, 6)) == losses(drive(traced, 6))
    same_numbers(everything(plain), everything(traced))
    plain.close()
    traced.close()


def test_a_run_that_ends_early_leaves_what_it_has(home: Home) -> None:
    """In order, which is told, or not."""
    concluded, broken = home.root / "a.npz", home.root / "b.npz"
    session = home.open(trace_routes=concluded, trace_chunks=100)
    drive(session, 2)
    (log,) = of(protocol.Log, session.conclude())
    assert "first 2 chunks" in log.text
    session.close()
    session = home.open(trace_routes=broken, trace_chunks=100)
    drive(session, 2)
    session.close()
    assert len(trace(concluded)["step"]) == len(trace(broken)["step"]) == 2


def test_a_fault_is_told_and_an_older_trace_stays(home: Home) -> None:
    path = home.root / "gone" / "t.npz"
    session = home.open(trace_routes=path, trace_chunks=1)
    said = drive(session, 2)
    (log,) = [log for log in of(protocol.Log, said) if log.level == "warning"]
    assert str(path) in log.text
    session.close()


def test_what_a_killed_run_left_is_in_nobodys_way(home: Home) -> None:
    path = home.root / "t.npz"
    path.with_name("t.npz.part").write_bytes(b"half")
    path.write_bytes(b"old")
    session = home.open(trace_routes=path, trace_chunks=1)
    drive(session, 2)
    session.close()
    assert len(trace(path)["step"]) == 1 and not path.with_name("t.npz.part").exists()


def test_without_steps_there_is_no_file(home: Home) -> None:
    home.open(trace_routes=home.root / "t.npz").close()
    assert not (home.root / "t.npz").exists()
