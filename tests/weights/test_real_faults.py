"""Places that cannot be written for real: a full disk, folders of another user, a read-only file system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from weights_models import everything, make, public, state

from minagi.errors import EXIT_BAD_FILE, EXIT_FAILED, WeightsError
from minagi.weights import Store


def mount(place: Path, *options: str) -> bool:
    """Whether this user may mount a file system of memory at `place`, and now has."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
    return bool(shutil.which("mount")) and subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a few checkpoints."""
    place = tmp_path / "disk"
    if not mount(place, "size=400k"):
        pytest.skip("mounting takes a right that this user has not")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path, leave: int) -> Path:
    """A file that takes all but `leave` bytes of a disk."""
    stuffing = place / "stuffing"
    stuffing.write_bytes(bytes(shutil.disk_usage(place).free - leave))
    return stuffing


@pytest.mark.parametrize("background", [False, True])
def test_a_disk_that_is_full_costs_a_save_and_nothing_else(background: bool, small_disk: Path) -> None:
    path = make(small_disk / "model")
    before = public(path)
    with Store.open(path, write=True) as store:
        stuffing = fill(small_disk, 8192)
        with pytest.raises(WeightsError) as caught:
            if background:
                store.begin_checkpoint(state([0, 1, 2], 2)).result(60)
            else:
                store.checkpoint(state([0, 1, 2], 2))
        assert f"Could not save the model in {path}" in str(caught.value)
        assert "the disk is full. Free some space" in str(caught.value)
        assert caught.value.exit_status == EXIT_FAILED, "no file is damaged"
        assert public(path) == before
        stuffing.unlink()
        store.checkpoint(state([0, 1, 2], 3))
    with Store.open(path, write=False) as store:
        assert store.manifest["step"] == 3


def test_a_disk_without_room_for_a_new_model(small_disk: Path) -> None:
    fill(small_disk, 0)
    with pytest.raises(WeightsError, match="the disk is full"):
        Store.open(small_disk / "model", write=True)


def test_a_read_only_file_system(small_disk: Path) -> None:
    path = make(small_disk / "model")
    before = everything(path)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(WeightsError, match=r"read-only file system\. Copy the model to a place"):
        Store.open(path, write=True)
    with Store.open(path, write=False) as store:
        assert store.read_expert(1).uid == 1
    assert everything(path) == before


AS_NOBODY = """
import os, sys
from minagi import cli
from minagi.commands import info, revert, snapshots
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture
def forbidden() -> Iterator[Path]:
    """A model that this user, or nobody if this is root, may read and not write."""
    folder = Path(tempfile.mkdtemp(prefix="minagi-test-"))
    path = make(folder / "model")
    for place in (folder, path, *path.rglob("*")):
        place.chmod(0o555 if place.is_dir() else 0o444)
    yield path
    for place in (folder, path, *path.rglob("*")):
        place.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("command", "status"),
    [(["info"], 0), (["snapshots"], 0), (["revert", "--to", "1"], EXIT_BAD_FILE),
     (["snapshots", "--delete", "1"], EXIT_BAD_FILE)],
    ids=["info", "snapshots", "revert", "delete"],
)  # fmt: skip
def test_a_directory_one_may_only_read(command: list[str], status: int, forbidden: Path) -> None:
    before = everything(forbidden)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, command[0], str(forbidden), *command[1:]],
        capture_output=True, text=True, cwd=forbidden, timeout=60,
        env={**os.environ, "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    if status:
        assert str(forbidden) in done.stderr
        assert "permission was denied. Change the permissions" in done.stderr
        assert "Traceback" not in done.stderr
    assert everything(forbidden) == before
