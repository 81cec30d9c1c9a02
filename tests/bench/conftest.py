from __future__ import annotations

from pathlib import Path

import pytest

from minagi.bench import machine, paging, shapes


@pytest.fixture(autouse=True)
def no_time_to_lose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Benchmarks of a model of a few numbers, whose figures nobody looks at; scratch folders in tmp_path."""
    monkeypatch.setattr(machine, "SECONDS", 0.0)
    monkeypatch.setattr(machine, "PRODUCT_SIZE", 8)
    small = {
        "model.d_model": 16, "model.n_head": 2, "model.d_ff": 16, "model.n_prelude": 1, "pool.experts": 4,
        "pool.width": 16, "pool.top_k": 2, "pool.resident": 2,
    }  # fmt: skip
    monkeypatch.setitem(shapes.SHAPES, "mini", (small, 6))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(paging, "SECONDS", 0.0)


@pytest.fixture
def nothing_left(tmp_path: Path) -> object:
    """Afterwards no scratch folder is left."""
    yield
    assert not list(tmp_path.glob("minagi-*"))
