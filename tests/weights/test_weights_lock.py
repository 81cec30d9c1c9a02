from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from weights_models import everything, make, public, state

from minagi.errors import EXIT_LOCKED, LockedError
from minagi.weights import Store, lock
from minagi.weights.lock import Lock

HOLDER = """
import sys, time
from minagi.weights import Store
store = Store.open(sys.argv[1], write=True, role="trainer")
print("holding", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path):
    """A process that has the model open for writing, and the model's directory."""
    path = make(tmp_path / "model")
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    yield process, path
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_live_owner_is_named_and_a_dead_one_is_taken_over(holder) -> None:
    process, path = holder
    before = everything(path)
    with pytest.raises(LockedError) as caught:
        Store.open(path, write=True)
    sentence = str(caught.value)
    assert f"process {process.pid} (trainer) on this machine since " in sentence
    assert all(way in sentence for way in ("Wait until", "quit it", "--weights", "--dry-run", "minagi info"))
    assert caught.value.exit_status == EXIT_LOCKED
    assert everything(path) == before
    with Store.open(path, write=False) as reader:  # readers need no lock
        assert reader.uids == [0, 1, 2]
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Store.open(path, write=True) as store:
        store.checkpoint(state([0, 1, 2], 2))


def test_this_very_process_is_refused_too_until_it_closes(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    store = Store.open(path, write=True)
    with pytest.raises(LockedError, match="this very process"):
        Store.open(path, write=True)
    store.close()
    store.close()
    Store.open(path, write=True).close()


def owner_file(path: Path, **changes: object) -> None:
    owner = {"pid": 1, "host": socket.gethostname(), "role": "trainer", "since": 0.0, "boot": lock._boot()}
    (path / ".minagi" / "lock").write_text(json.dumps({**owner, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": os.getppid()},  # the number lives, given out again: the kernel's lock says it is another
        {"boot": "an earlier start of this machine"},
        {"host": "a container that is gone", "boot": lock._boot()},
    ],
)
def test_who_certainly_died_is_taken_over(changes: dict, tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    owner_file(path, **changes)
    Store.open(path, write=True).close()


def test_an_owner_on_another_machine_is_never_taken_over(tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    owner_file(path, host="elsewhere", boot="other", pid=77)
    with pytest.raises(LockedError) as caught:
        Store.open(path, write=True)
    assert "process 77 (trainer) on elsewhere" in str(caught.value)
    assert f"delete {path / '.minagi' / 'lock'}" in str(caught.value)
    (path / ".minagi" / "lock").unlink()
    Store.open(path, write=True).close()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff\xfe", b'{"since": 1e400}', b"[" * 99999]
)
def test_a_lock_file_that_makes_no_sense_is_no_owner(content: bytes, tmp_path: Path) -> None:
    path = make(tmp_path / "model")
    (path / ".minagi" / "lock").write_bytes(content)
    Store.open(path, write=True).close()


def test_the_file_names_the_owner_while_it_is_held(tmp_path: Path) -> None:
    folder = tmp_path / "lock"
    held = Lock(folder, "revert", clock=lambda: 1234.5)
    assert json.loads(folder.read_text()) == {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "role": "revert",
        "since": 1234.5,
        "boot": lock._boot(),
    }
    held.release()
    held.release()
    assert folder.read_bytes() == b""


def test_without_kernel_locks_the_process_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(fd: int, mode: int) -> None:
        raise OSError(lock.errno.EOPNOTSUPP, "not supported")

    path = make(tmp_path / "model")
    monkeypatch.setattr(lock.fcntl, "flock", unsupported)
    owner_file(path, pid=os.getppid())
    with pytest.raises(LockedError, match=f"process {os.getppid()}"):
        Store.open(path, write=True)
    owner_file(path, pid=2**30)
    Store.open(path, write=True).close()


def test_a_killed_trainer_leaves_its_last_checkpoint(tmp_path: Path) -> None:
    """The whole of it in a real process: saves as fast as it can, is killed at some moment, and opens."""
    path = make(tmp_path / "model")
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from weights_models import state\nfrom minagi.weights import Store\n"
        "store = Store.open(sys.argv[1], write=True)\nseed = 2\nprint('go', flush=True)\n"
        "while True:\n    store.checkpoint(state([0, 1, 2], seed, changed=[seed % 3]))\n    seed += 1\n"
    )
    for pause in (0.05, 0.11, 0.17):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(Path(__file__).parent)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(pause)
        process.kill()
        process.wait()
        process.stdout.close()
        with Store.open(path, write=True) as store:
            assert float(store.read_optim()["ln_f.weight"][2]) == store.manifest["step"]
            newest = store.snapshots()[0]
            assert newest.step == store.manifest["step"]
            before = public(path)
            store.revert(newest.id)
            assert public(path) == before


def test_a_directory_that_no_model_came_to_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    Store.open(path, write=True).close()
    assert list(tmp_path.iterdir()) == []
    path.mkdir(parents=True)
    Store.open(path, write=True).close()
    assert list(path.iterdir()) == [], "it was there before"
    with Store.open(path, write=True):
        (path / ".minagi" / "chat").mkdir()
    assert (path / ".minagi" / "chat").is_dir(), "what others keep there stays"
    shutil.rmtree(path / ".minagi")
    make(path)
    Store.open(path, write=True).close()
    assert (path / ".minagi" / "lock").exists()
    gone = Store.open(tmp_path / "c", write=True)
    shutil.rmtree(tmp_path / "c")
    gone.close()


def test_a_lock_that_was_removed_while_it_was_waited_for_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    first = Lock(path, "trainer")
    tried = Lock._try

    def late(lock: Lock) -> bool:
        """The first owner leaves between the second one's opening of the file and its asking for the lock."""
        if first._fd >= 0:
            first.remove()
        return tried(lock)

    monkeypatch.setattr(Lock, "_try", late)
    second = Lock(path, "trainer")
    assert path.exists()
    with pytest.raises(LockedError):
        Lock(path, "trainer")
    second.release()


def test_a_file_that_is_numbered_anew_at_every_look_is_taken_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(100))
    monkeypatch.setattr(Lock, "_named", lambda lock: next(looks) < 0)
    Lock(tmp_path / "lock", "trainer").release()
    assert len(list(tmp_path.iterdir())) == 1
