from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minagi.records import RecordFile, beside


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")


def test_folders_are_made_and_lines_added(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "a" / "b" / "log")
    file.append(b"one\n")
    file.append(b"two\n")
    assert lines(file.path) == [b"one", b"two", b""]


def test_a_torn_line_is_closed_off(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "log")
    file.path.write_bytes(b"whole\ntor")
    file.append(b"next\n")
    assert lines(file.path) == [b"whole", b"tor", b"next", b""]


def test_it_is_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "log", limit=10, keep=2)
    for number in range(100, 110):
        file.append(b"%d\n" % number)
    assert lines(file.path) == [b"108", b"109", b""]
    assert lines(tmp_path / "log.1") == [b"106", b"107", b""]
    assert lines(tmp_path / "log.2") == [b"104", b"105", b""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2"]


def test_what_is_larger_than_the_limit_is_kept_all_the_same(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "log", limit=10, keep=1)
    file.append(b"x" * 50 + b"\n")
    file.append(b"y\n")
    assert lines(file.path) == [b"y", b""]
    assert (tmp_path / "log.1").stat().st_size == 51


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    """Four processes add to one file that is put aside again and again meanwhile."""
    program = (
        "import sys; from pathlib import Path; from minagi.records import RecordFile\n"
        "file = RecordFile(Path(sys.argv[1]), limit=2000, keep=100)\n"
        "for n in range(300): file.append(f'{sys.argv[2]} {n}\\n'.encode())\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "log"), str(n)], env=environ)
        for n in range(4)
    ]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    found = [line for path in tmp_path.iterdir() for line in lines(path) if line]
    assert sorted(found) == sorted(f"{w} {n}".encode() for w in range(4) for n in range(300))


@pytest.mark.parametrize("place", ["folder", "file/log"])
def test_faults_are_the_systems_own(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        RecordFile(tmp_path / place).append(b"x\n")


def test_records_lie_beside_the_history_or_nowhere(tmp_path: Path) -> None:
    assert beside(tmp_path / "history.jsonl", "samples.txt") == tmp_path / "samples.txt"
    assert beside(Path(os.devnull), "samples.txt") is None
