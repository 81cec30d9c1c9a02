"""The programs as they are installed, a tiny model for them, and a home of nobody's."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from terminal_program import Program

from minagi.weights import Store

SCRIPTS = Path(sysconfig.get_path("scripts"))
TINY = Path(__file__).with_name("tiny.yaml")
WORDS = ("the", "sea", "was", "calm", "and", "under", "a", "pale", "moon", "we", "rowed", "home", "singing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real processes on a machine that does other things too: what fails here is tried once more."""
    for item in items:
        if item.get_closest_marker("pty"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@dataclass(frozen=True)
class Place:
    """A folder to work in, with a text to read, and the environment of a user who owns nothing else."""

    folder: Path
    environ: dict[str, str]

    @property
    def weights(self) -> Path:
        return self.folder / "w"

    @property
    def text(self) -> Path:
        return self.folder / "text.txt"

    def run(self, *argv: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
        """Run one of the programs to its end, without a terminal."""
        program, *arguments = map(str, argv)
        given: dict = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 60}
        return subprocess.run(
            [SCRIPTS / program, *arguments], cwd=self.folder, env=self.environ, **{**given, **options}
        )

    def checkpoint(self) -> tuple[int, bytes]:
        """The step of the last checkpoint and its trunk's bytes, seen beside whoever is writing."""
        with Store.open(self.weights, write=False) as store:
            trunk = b"".join(array.tobytes() for _, array in sorted(store.read_core().items()))
            return store.manifest["step"], trunk

    def read_only_step(self) -> int:
        """The step of the last checkpoint."""
        return self.checkpoint()[0]

    def saved_step(self) -> int:
        """Open the weights for writing and read every tensor of them; the step they hold."""
        with Store.open(self.weights, write=True) as store:
            store.read_core()
            store.read_routers()
            store.read_optim()
            for uid in store.uids:
                store.read_expert(uid)
            return store.manifest["step"]


def without_root_powers() -> Callable[[], None] | None:
    """For `preexec_fn`: the child obeys permissions even where the tests are run by root."""
    if os.geteuid() != 0:
        return None
    drop, override, read_search = 24, 1, 2  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "prctl"):
        pytest.skip("root ignores permissions here, and its powers cannot be dropped")

    def powerless() -> None:
        for capability in (override, read_search):
            if libc.prctl(drop, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")

    return powerless


def make_place(folder: Path) -> Place:
    foreign = ("MINAGI_", "XDG_", "COLUMNS", "LINES", "OMP_", "NO_COLOR", "TEXTUAL", "PYTEST_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    for name in ("CONFIG", "STATE", "DATA", "CACHE"):
        environ[f"XDG_{name}_HOME"] = str(folder / "home" / name.lower())
    environ |= {"TERM": "xterm-256color", "MINAGI_CONFIG": str(TINY), "COLORTERM": ""}
    chance = random.Random(1)
    (folder / "text.txt").write_text(" ".join(chance.choice(WORDS) for _ in range(4_000)))
    return Place(folder, environ)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A weights directory that was trained for forty steps."""
    place = make_place(tmp_path_factory.mktemp("made"))
    done = place.run("minagi", "read", "text.txt", "--weights", "w", "--save", "--steps", "40")
    assert done.returncode == 0, done.stderr
    return place.weights


@pytest.fixture
def made(made_once: Path, place: Place) -> Place:
    """A place with a model of forty steps in `w`."""
    shutil.copytree(made_once, place.weights)
    return place


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Starts a program in a terminal; whatever is left of it ends with the test."""
    programs: list[Program] = []

    def starter(place: Place, *argv: str | Path, welcome: bool = False, **options: object) -> Program:
        program, *arguments = argv or ("minagi-tui", "text.txt", "--weights", "w")
        if program == "minagi-tui" and not welcome:
            arguments.append("--yes")
        programs.append(Program([SCRIPTS / program, *arguments], place.folder, place.environ, **options))
        return programs[-1]

    yield starter
    for program in programs:
        program.close()
