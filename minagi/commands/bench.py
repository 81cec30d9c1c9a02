"""`minagi bench`: what this machine does with minagi, measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from minagi.commands.output import put, put_json, say
from minagi.config import Hardware
from minagi.errors import EXIT_OK, UsageError
from minagi.hardware import prepare_environment, processor_name, usable_cores
from minagi.options import THREADS_MAX, Parser, natural, nearest, path, positive, up_to

MILLION = 1_000_000
Flag = Callable[[argparse.ArgumentParser], object]
SHAPES = "seed, tiny, or a profile such as cpu"


def _flag(*names: str, **settings: Any) -> Flag:
    return lambda parser: parser.add_argument(*names, **settings)


def _shape(default: str) -> Flag:
    return _flag("--shape", default=default, metavar="NAME", help=f"{SHAPES} (default: {default})")


def _steps(default: int) -> Flag:
    return _flag(
        "--steps", type=up_to(MILLION), default=default, metavar="N", help=f"steps timed (default: {default})"
    )


_WINDOW = _flag(
    "--window", type=up_to(MILLION), default=512, metavar="N", help="characters a step (default: 512)"
)
_PRECISION = _flag(
    "--precision", default="auto", choices=("auto", "bf16", "fp32"), help="number format (default: auto)"
)
_DEVICE = _flag("--device", default="auto", metavar="NAME", help="auto, cpu, cuda, cuda:N or mps")
_THREADS = _flag(
    "--threads",
    type=up_to(THREADS_MAX),
    metavar="N",
    help="threads to compute with (default: every core there is)",
)


@dataclass(frozen=True)
class Bench:
    """One thing that is measured: in a few words, in sentences, and by what."""

    brief: str
    description: str
    example: str
    flags: tuple[Flag, ...]
    run: Callable[[argparse.Namespace], dict[str, Any]]  # loads torch


def _train(given: argparse.Namespace) -> dict[str, Any]:
    from minagi.bench import shapes, training

    recipe = shapes.Recipe(given.shape, given.precision, given.device)
    return training.train(recipe, given.window, given.steps, given.halting)


def _write(given: argparse.Namespace) -> dict[str, Any]:
    from minagi.bench import shapes, writing

    return writing.write(shapes.Recipe(given.shape, given.precision, given.device), given.chars)


def _page(given: argparse.Namespace) -> dict[str, Any]:
    from minagi.bench import paging, shapes

    return paging.page(shapes.Recipe(given.shape, given.precision, given.device))


def _pool(given: argparse.Namespace) -> dict[str, Any]:
    from minagi.bench import paging, shapes

    return paging.pool(shapes.Recipe(given.shape, given.precision, given.device), given.window, given.steps)


def _checkpoint(given: argparse.Namespace) -> dict[str, Any]:
    from minagi.bench import saving, shapes

    recipe = shapes.Recipe(given.shape, given.precision, given.device)
    return saving.checkpoint(recipe, given.window, given.gigabytes)


def _learn(given: argparse.Namespace) -> dict[str, Any]:
    from minagi.bench import learning

    return learning.learn(given.text, given.minutes, given.profile, given.seed, given.device, tell=say)


def _start(given: argparse.Namespace) -> dict[str, Any]:
    from minagi.bench import machine, program

    found: dict[str, Any] = {}
    with machine.products_beside(found):
        found |= program.start(given.threads or usable_cores(), given.runs)
    return found


def _ui(given: argparse.Namespace) -> dict[str, Any]:
    from minagi.bench import machine, program

    found: dict[str, Any] = {}
    with machine.products_beside(found):
        found |= program.ui(given.threads or usable_cores(), given.keys, given.hours)
    return found


BENCHES: dict[str, Bench] = {
    "train": Bench(
        "characters a second in training",
        "Train fresh weights on random text. The shapes seed and tiny run a fixed number of rows for every\n"
        "character (12 and 3); --halting half lets half of the characters stop by the middle row instead.",
        "minagi bench train --shape tiny --window 512 --threads 2 --json",
        (
            _shape("tiny"),
            _WINDOW,
            _steps(12),
            _flag(
                "--halting", default="full", choices=("full", "half"), help="rows that run (default: full)"
            ),
            _PRECISION,
            _DEVICE,
            _THREADS,
        ),
        _train,
    ),
    "write": Bench(
        "characters a second in writing",
        "Write with fresh weights after a random prompt of 256 characters.",
        "minagi bench write --shape seed --json",
        (
            _shape("tiny"),
            _flag(
                "--chars", type=up_to(MILLION), default=64, metavar="N", help="characters timed (default: 64)"
            ),
            _PRECISION,
            _DEVICE,
            _THREADS,
        ),
        _write,
    ),
    "page": Bench(
        "an expert's way onto the card",
        "Load one expert from RAM and from a file the system holds in memory, beside a plain copy\n"
        "and a plain read of as many bytes.",
        "minagi bench page --shape seed",
        (_shape("seed"), _PRECISION, _DEVICE, _THREADS),
        _page,
    ),
    "pool": Bench(
        "the cost of a large pool",
        "Train with 64, 256 and 1,024 experts on disk. `growth` is the dearest character against one of the\n"
        "smallest pool, the router's own work taken off.",
        "minagi bench pool --shape tiny",
        (_shape("tiny"), _WINDOW, _steps(24), _PRECISION, _DEVICE, _THREADS),
        _pool,
    ),
    "start": Bench(
        "how soon the app is there",
        "Start the real app in a pseudo-terminal on made-up text and a new model: seconds to its first\n"
        "frame and to the first training step.",
        "minagi bench start --runs 5",
        (
            _flag("--runs", type=up_to(1_000), default=3, metavar="N", help="starts timed (default: 3)"),
            _THREADS,
        ),
        _start,
    ),
    "ui": Bench(
        "how soon a key shows, and the app's memory",
        "Type into the real app while it trains on every core, and take a headless one through days of\n"
        "events by a clock that is wound on; 72 hours take some ten minutes.",
        "minagi bench ui --keys 100 --hours 8",
        (
            _flag("--keys", type=up_to(MILLION), default=200, metavar="N", help="keys timed (default: 200)"),
            _flag(
                "--hours", type=positive, default=72.0, metavar="H", help="hours lived through (default: 72)"
            ),
            _THREADS,
        ),
        _ui,
    ),
    "checkpoint": Bench(
        "how long a save holds training up",
        "Save a model while it trains: how long training stands still for that, and how long the writing\n"
        "takes that goes on meanwhile.",
        "minagi bench checkpoint --gigabytes 1 --json",
        (
            _shape("seed"),
            _flag("--gigabytes", type=positive, default=1.0, metavar="N", help="of the model (default: 1)"),
            _flag(
                "--window",
                type=up_to(MILLION),
                default=64,
                metavar="N",
                help="characters a step (default: 64)",
            ),
            _PRECISION,
            _DEVICE,
            _THREADS,
        ),
        _checkpoint,
    ),
    "learn": Bench(
        "bits a character after so many minutes",
        "Train a newborn on the first nine tenths of a text, and score every byte of the rest after 1 and 3\n"
        "minutes of training and at the end, beside a Witten-Bell table of byte n-grams.",
        "minagi bench learn --text book.txt --minutes 3 --threads 2 --json",
        (
            _flag("--text", type=path, required=True, metavar="FILE", help="what to learn from"),
            _flag("--minutes", type=positive, required=True, metavar="M", help="minutes of training"),
            _flag("--profile", default="cpu", metavar="NAME", help="of the newborn (default: cpu)"),
            _flag("--seed", type=natural, default=0, metavar="N", help="seed of everything random"),
            _DEVICE,
            _THREADS,
        ),
        _learn,
    ),
}
OVERVIEW = """usage: minagi bench WHAT [flags]

Measure what this machine does with minagi. Figures mean something on a quiet machine only.

what:
{benches}

  minagi bench WHAT --help tells more about one.

example:
  minagi bench train --shape tiny --json"""


def parsers() -> dict[str, Parser]:
    """The flags of each benchmark."""
    made = {}
    for name, bench in BENCHES.items():
        made[name] = Parser(
            prog=f"minagi bench {name}",
            usage="%(prog)s [flags]",
            description=bench.description,
            epilog=f"example:\n  {bench.example}\n",
        )
        for flag in bench.flags:
            flag(made[name])
        made[name].add_argument("--json", action="store_true", help="one object")
    return made


def main(argv: Sequence[str]) -> int:
    """Measure one thing and tell."""
    name, rest = (argv[0], argv[1:]) if argv else ("", [])
    if name in ("", "--help", "-h"):
        put(OVERVIEW.format(benches="\n".join(f"  {n:<10} {b.brief}" for n, b in BENCHES.items())))
        return EXIT_OK if argv else UsageError.exit_status
    if name not in BENCHES:
        known = ", ".join(BENCHES)
        raise UsageError(f"There is no benchmark {name[:60]!r}.{nearest(name, BENCHES)} There are: {known}.")
    given = parsers()[name].parse(rest)
    threads = _prepare(given.threads)
    found = {
        "bench": name, "version": version("minagi"), "processor": processor_name(), "threads": threads,
        **BENCHES[name].run(given),
    }  # fmt: skip
    if given.json:
        put_json(found)
    else:
        for key, value in _flat(found):
            put(f"{key:<36} {value}")
    return EXIT_OK


def _prepare(threads: int | None) -> int:
    """Set the machine up as a benchmark has it: to itself. Returns the threads it computes with."""
    wanted = threads or usable_cores()
    if "torch" not in sys.modules:
        prepare_environment(wanted, Hardware(), shares=False)
    import torch

    torch.set_num_threads(wanted)
    return wanted


def _flat(found: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Every figure under its full name."""
    lines: list[tuple[str, Any]] = []
    for key, value in found.items():
        values = enumerate(value) if isinstance(value, list) else None
        inner = {str(i): v for i, v in values} if values is not None else value
        if isinstance(inner, Mapping):
            lines += _flat(inner, f"{prefix}{key}.")
        else:
            lines.append((prefix + key, f"{value:,}" if isinstance(value, int) else value))
    return lines
