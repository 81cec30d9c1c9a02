from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plot_rows import HOSTILE, read_rows, stream_rows

from minagi.errors import MinagiError, UsageError
from minagi.plots import __main__ as background
from minagi.plots.png import DASHBOARD, PROGRESS, draw
from minagi.plots.run import Run, runs_of
from minagi.training.history import History

pytest.importorskip("matplotlib", reason="the optional package plots is not installed")


def last(rows: list) -> Run:
    return list(runs_of(rows).values())[-1]


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG") and path.read_bytes().endswith(b"IEND\xaeB`\x82")


@pytest.mark.parametrize("rows", [read_rows(30), read_rows(1), stream_rows(), [{"chars": 5}]])
def test_two_pictures(tmp_path: Path, rows: list) -> None:
    made = draw(last(rows), tmp_path, 1.0)
    assert [path.name for path in made] == [PROGRESS, DASHBOARD]
    assert all(is_png(path) for path in made)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((PROGRESS, DASHBOARD))


def test_one_reading_is_a_point_that_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    titles: list[str] = []
    markers: list[object] = []
    plot = Axes.plot
    monkeypatch.setattr(Figure, "suptitle", lambda self, text: titles.append(text))

    def marked(self: Axes, *args: Any, **style: Any) -> Any:
        markers.append(style.get("marker"))
        return plot(self, *args, **style)

    monkeypatch.setattr(Axes, "plot", marked)
    draw(last(read_rows(1)), tmp_path, 1.0)
    assert all("one reading" in title for title in titles)
    assert markers.count("o") > 5 and "" not in markers


def test_hostile_rows_spoil_no_picture(tmp_path: Path) -> None:
    rows = [*read_rows(2), *({"model": "/models/mine", **row} for row in HOSTILE)]
    assert all(is_png(path) for path in draw(last(rows[:-2] + rows[-1:]), tmp_path, 100.0))
    many = {f"$_{n}": {"val": 1.0 + n} for n in range(30)}
    assert draw(last([{"chars": 5, "subjects": many, "val": 2.0}]), tmp_path, 100.0)


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / PROGRESS).mkdir()
    with pytest.raises(MinagiError, match=PROGRESS):
        draw(last(read_rows(1)), tmp_path, 1.0)
    assert [path.name for path in tmp_path.iterdir()] == [PROGRESS], "nothing half-made is left"


def test_without_matplotlib_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"minagi\[plots\]"):
        draw(last(read_rows(1)), tmp_path, 1.0)


def test_drawn_in_the_background(tmp_path: Path) -> None:
    """The process a run starts: one model's rows, nothing on a history that has none."""
    history = History(tmp_path / "history.jsonl")
    for row in [*read_rows(5), *read_rows(2, "/models/other")]:
        history.append(row)
    program = [sys.executable, "-m", "minagi.plots", str(history.path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*program, "/models/mine", str(tmp_path), "1.0"], env=environ, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert is_png(tmp_path / PROGRESS) and is_png(tmp_path / DASHBOARD)


def test_the_background_ends_in_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "lower_priority", lambda: None)
    history = History(tmp_path / "history.jsonl")
    assert background.main(str(history.path), "/models/mine", str(tmp_path), "1") == 0
    history.append(read_rows(1)[0])
    assert background.main(str(history.path), "/models/mine", str(tmp_path / "no"), "1") == 1
    assert background.main(str(history.path), "/models/other", str(tmp_path / "no"), "1") == 0
