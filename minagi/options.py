"""The flags of every command, the worker and the app, made from the table of settings. No torch.

Settings flags are text until `load_settings` checks them with everything else, so that a wrong value
gives the same sentence wherever it was written. Flags of a run are checked here.
"""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from minagi.config import KEYS, Key, LoadedSettings, load_settings
from minagi.config.settings import REFUSED
from minagi.errors import UsageError
from minagi.text.collect import check_paths
from minagi.training.request import Limits, SessionRequest

# What a training run uses. The app adds "ui".
ENGINE = ("model", "pool", "training", "growth", "prune", "data", "decoding", "plots", "hardware")
# What a model that is only read out uses.
READING = ("pool", "decoding", "hardware", "model.min_steps", "model.halt_thresh", "training.precision",
           "data.weights")  # fmt: skip
_COUNT = re.compile(r"\d[\d_]{0,18}|\d{1,18}(\.\d{1,18})?[eE]\+?\d{1,2}", re.ASCII)
_COUNT_MAX = 10**15
THREADS_MAX = 1_024


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are UsageErrors, and which knows the nearest flag to a mistyped one."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def parse(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Flags and paths in any order. Raises UsageError; SystemExit only after --help and --version."""
        given = list(sys.argv[1:] if argv is None else argv)
        if "--" in given:
            # argparse forgets where "--" stood when flags and paths are mixed; every positional is a path
            mark = given.index("--")
            after = [f"./{path}" if path.startswith("-") else path for path in given[mark + 1 :]]
            given = given[:mark] + after
        return self.parse_intermixed_args(given)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As argparse, but for `--flag=--`, of which it would make no value at all."""
        if action.option_strings and "--" in arg_strings:
            self.error(f"argument {'/'.join(action.option_strings)}: -- is no value")
        return super()._get_values(action, arg_strings)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help on its way out: argparse would keep quiet about a full disk or a closed pipe."""
        if message:
            stream = file or sys.stderr
            stream.write(message)
            stream.flush()

    def error(self, message: str) -> NoReturn:
        text = message[:1].upper() + message[1:].rstrip(".")
        match = re.search(r"unrecognized arguments: (--[^\s=]+)", message)
        if match:
            hint = nearest(match[1], self._option_string_actions)
            raise UsageError(f"There is no flag {match[1]}.{hint} {self.prog} --help lists them.")
        raise UsageError(f"{text}. {self.prog} --help tells more.")


def nearest(name: str, known: Collection[str]) -> str:
    """The sentence that names what was probably meant, with a space before it, or ""."""
    near = difflib.get_close_matches(name[:200], list(known), n=1)
    return f" The nearest there is: {near[0]}." if near else ""


class _Refused(argparse.Action):
    """A flag people know from elsewhere and that means nothing here."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> NoReturn:
        raise UsageError(f"{option_string} was given, but {REFUSED[self.dest]}.")


# --------------------------------------------------------------------------------------- adding flags


def add_settings(
    parser: argparse.ArgumentParser, chosen: Collection[str], also: Mapping[str, str] = MappingProxyType({})
) -> None:
    """A flag for every setting of the sections, or single settings ("data.weights"), that are chosen.

    `also` gives single settings one more spelling.
    """
    groups: dict[str, Any] = {}
    for path, key in KEYS.items():
        if path not in chosen and key.section not in chosen:
            continue
        if key.section not in groups:
            groups[key.section] = parser.add_argument_group(f"settings: {key.section}")
        names = [f"--{key.flag}"] + (["--weights-dir"] if path == "data.weights" else [])
        names += [also[path]] if path in also else []
        text = key.doc.replace("%", "%%")
        if key.kind is bool:
            groups[key.section].add_argument(
                *names, dest=path, action=argparse.BooleanOptionalAction, default=None, help=text
            )
        elif key.kind in (int, float, str, Path):
            groups[key.section].add_argument(*names, dest=path, metavar=_metavar(key), help=text)
    if "training" in chosen:
        for name in REFUSED:
            flag = "--" + name.replace("_", "-")
            parser.add_argument(flag, dest=name, nargs="?", action=_Refused, help=argparse.SUPPRESS)


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Where settings come from."""
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=path, metavar="FILE", help="settings file to use")
    group.add_argument("--profile", metavar="NAME", help="named set of settings, as in --profile cpu")


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Where settings come from and what to compute on."""
    add_sources(parser)
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--device", default="auto", metavar="NAME", help="auto, cpu, cuda, cuda:N or mps (default: auto)"
    )
    group.add_argument(
        "--threads",
        type=up_to(THREADS_MAX),
        metavar="N",
        help="threads to compute with (default: all cores but one)",
    )


def add_run(parser: argparse.ArgumentParser, *, saves: bool) -> None:
    """What to read and for how long. `saves`: whether the run keeps what it learns unless told not to."""
    parser.add_argument(
        "paths",
        nargs="*",
        type=path,
        metavar="PATH",
        help="files and folders to read (default: the setting data.train)",
    )
    group = parser.add_argument_group("the run")
    keep = group.add_mutually_exclusive_group()
    keep.add_argument(
        "--save", dest="dry_run", action="store_false", default=not saves,
        help="keep what is learnt" + (" (default)" if saves else ""),
    )  # fmt: skip
    keep.add_argument(
        "--dry-run", dest="dry_run", action="store_true",
        help="change nothing on disk" + ("" if saves else " (default)"),
    )  # fmt: skip
    group.add_argument("--minutes", type=positive, metavar="M", help="end after M minutes")
    group.add_argument("--chars", type=count, metavar="N", help="end after N characters")
    group.add_argument("--steps", type=count, metavar="N", help="end after N steps")
    group.add_argument("--passes", type=positive, metavar="N", help="end after N times the text")
    group.add_argument("--seed", type=natural, metavar="N", help="seed of everything random")
    group.add_argument("--lr-reset", action="store_true", help="start at the full learning rate again")
    group.add_argument("--follow-symlinks", action="store_true", help="read what symbolic links point to")
    add_guard(group)
    group.add_argument(
        "--pool-checkpoint", action=argparse.BooleanOptionalAction, default=True,
        help="save at once when experts were born or deleted (default: yes)",
    )  # fmt: skip
    records = parser.add_argument_group("records", "Kept beside the history; see also --sample-every.")
    records.add_argument(
        "--sample-chars", type=count, default=200, metavar="N", help="length of a sample (default: 200)"
    )
    records.add_argument(
        "--sample-raw-only", action="store_true", help="sample without the adapted half, in half the time"
    )
    records.add_argument(
        "--trace-routes",
        type=path,
        metavar="FILE",
        help="keep the routing of the first chunks in FILE (.npz)",
    )
    records.add_argument(
        "--trace-chunks", type=count, default=8, metavar="N", help="how many chunks that is (default: 8)"
    )


def add_guard(group: Any) -> None:
    """When a run goes back, and when it gives up."""
    group.add_argument(
        "--revert-factor", type=positive, default=1.5, metavar="X",
        help="go back when held-out is over X times its best (default: 1.5)",
    )  # fmt: skip
    group.add_argument(
        "--max-reverts", type=natural, default=3, metavar="N", help="stop after N times back (default: 3)"
    )


def _metavar(key: Key) -> str:
    if key.rule.choices:
        return "|".join(key.rule.choices)
    return {int: "N", float: "X", Path: "PATH"}.get(key.kind, "NAME")


def path(text: str) -> Path:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("a path must not be empty")
    return Path(text).expanduser()


def natural(text: str) -> int:
    number = int(float(text)) if _COUNT.fullmatch(text) else -1
    if "e" not in text.lower() and number >= 0:
        number = int(text.replace("_", ""))
    if not 0 <= number <= _COUNT_MAX:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a whole number from 0 to 10^15, such as 2000000 or 2e6"
        )
    return number


def count(text: str) -> int:
    number = natural(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def up_to(most: int) -> Callable[[str], int]:
    """The type of a flag that takes a whole number from 1 to `most`."""

    def limited(text: str) -> int:
        number = count(text)
        if number > most:
            raise argparse.ArgumentTypeError(f"{number:,} is too many: at most {most:,}")
        return number

    return limited


def real(allowed: Callable[[float], bool], told: str) -> Callable[[str], float]:
    """The type of a flag that takes a number which is `allowed`; `told` says which those are."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not allowed(number):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number {told}")
        return number

    return read


positive = real(lambda number: 0 < number < 1e12, "above 0")


# -------------------------------------------------------------------------------------- reading flags


def loaded_settings(arguments: argparse.Namespace) -> LoadedSettings:
    """The settings in effect under these flags. Raises UsageError."""
    given = {path: value for path, value in vars(arguments).items() if path in KEYS and value is not None}
    return load_settings(given, arguments.config, arguments.profile)


def session_request(arguments: argparse.Namespace, log: str = "") -> SessionRequest:
    """The session these flags ask for. Raises UsageError for what can be told without opening anything."""
    loaded = loaded_settings(arguments)
    data = loaded.settings.data
    paths = tuple(arguments.paths) or (data.train,)
    if not arguments.follow_symlinks:  # else finding out is the walk itself, made once, by the session
        check_paths(paths)
    check_weights(data.weights, writes=not arguments.dry_run)
    if arguments.trace_routes:
        check_new_file(arguments.trace_routes, "--trace-routes")
    return SessionRequest(
        paths=paths,
        weights=data.weights,
        loaded=loaded,
        dry_run=arguments.dry_run,
        device=arguments.device,
        seed=arguments.seed,
        limits=Limits(arguments.minutes, arguments.chars, arguments.steps, arguments.passes),
        lr_reset=arguments.lr_reset,
        threads=arguments.threads,
        follow_symlinks=arguments.follow_symlinks,
        revert_factor=arguments.revert_factor,
        max_reverts=arguments.max_reverts,
        pool_checkpoint=arguments.pool_checkpoint,
        sample_chars=arguments.sample_chars,
        sample_raw_only=arguments.sample_raw_only,
        trace_routes=arguments.trace_routes,
        trace_chunks=arguments.trace_chunks,
        log=log,
    )


def engine_flags(arguments: argparse.Namespace) -> list[str]:
    """The command line of a worker that does what these flags ask, what is only the app's left out."""
    flags: list[str] = []
    for path, value in vars(arguments).items():
        key = KEYS.get(path)
        if value is None or key is None or key.section not in ENGINE:
            continue
        if key.kind is bool:
            flags.append(f"--{key.flag}" if value else f"--no-{key.flag}")
        else:
            flags.append(f"--{key.flag}={value}")
    for name in ("config", "profile", "device", "threads", "minutes", "chars", "steps", "passes", "seed",
                 "revert_factor", "max_reverts", "sample_chars", "trace_routes", "trace_chunks"):  # fmt: skip
        value = getattr(arguments, name)
        if value is not None:
            flags.append(f"--{name.replace('_', '-')}={value}")
    flags.append("--dry-run" if arguments.dry_run else "--save")
    flags += ["--lr-reset"] if arguments.lr_reset else []
    flags += ["--follow-symlinks"] if arguments.follow_symlinks else []
    flags += ["--sample-raw-only"] if arguments.sample_raw_only else []
    flags += [] if arguments.pool_checkpoint else ["--no-pool-checkpoint"]
    return [*flags, "--", *map(str, arguments.paths)]


def check_new_file(file: Path, flag: str) -> None:
    """A file that a flag names to be written: its folder must be there and can be written in."""
    folder = file.absolute().parent
    if file.is_dir():
        raise UsageError(f"{flag} names {file}, which is a folder. Name a file in it.")
    if not folder.is_dir():
        raise UsageError(f"{flag} names {file}, but there is no folder {folder}. Make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{flag} names {file}, but nothing can be written in {folder}. Name another place.")


def check_weights(weights: Path, writes: bool) -> None:
    """A weights path that is a file, or where nothing can be written though something is to be."""
    if weights.exists() and not weights.is_dir():
        raise UsageError(f"The weights must be a directory, but {weights} is a file. Name another one.")
    there = next((place for place in (weights, *weights.absolute().parents) if place.exists()), weights)
    if not writes:
        return
    if not there.is_dir():
        raise UsageError(f"The weights cannot be kept in {weights}: {there} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            f"Nothing can be written in {there}, so the weights cannot be kept in {weights}. "
            "Name another directory with --weights, or read without saving."
        )
