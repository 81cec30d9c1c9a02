"""Numbers of new snapshots, whatever others named the files beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minagi.weights import snapshots


@pytest.mark.parametrize("alien", ["999999999999.gone", "999999999.gone", "٠٠٠٠٠٩"])
def test_a_number_that_no_model_reaches_takes_no_later_one(tmp_path: Path, alien: str) -> None:
    (tmp_path / snapshots.folder_name(1)).mkdir()
    (tmp_path / alien).mkdir()
    made = []
    for _ in range(3):
        made.append(snapshots.next_number(tmp_path))
        (tmp_path / snapshots.folder_name(made[-1])).mkdir()
    assert made == sorted(set(made))
    assert snapshots.numbers(tmp_path) == [*reversed(made), 1]
