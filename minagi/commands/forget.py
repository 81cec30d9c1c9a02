"""`minagi forget`: what reading a new subject would cost what a model knows. Measured on a copy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from minagi.commands.output import harmless, put, put_json, put_table, say
from minagi.commands.reading import model_of
from minagi.errors import EXIT_INTERRUPTED, EXIT_OK, UsageError
from minagi.experiments.forgetting import CHANCE, CHARS, Change, ForgetRequest, Point, cost, report
from minagi.hardware import prepare_environment
from minagi.options import Parser, add_machine, add_settings, count, natural, path, real
from minagi.protocol import Log, Message
from minagi.text.collect import check_paths
from minagi.units import LN2
from minagi.worker.signals import Signals, loading

CHARS_MAX = 10**9
_SHARE = real(lambda share: 0 < share < 1, "between 0 and 1")
SETTINGS = (
    "pool", "growth", "prune", "hardware", "model.min_steps", "model.halt_prior", "model.halt_thresh",
    "model.ponder_beta", "model.bptt_window", "model.train_steps_mean", "model.context_end", "training.lr",
    "training.trunk_lr_mult", "training.weight_decay", "training.clip", "training.beta2", "training.chunk",
    "training.precision", "training.eval_every_chars", "data.weights", "data.held_out", "data.passage",
    "data.eval_chars",
)  # fmt: skip
ABOUT = """Read a new subject with a copy of a model, and score it and every known subject on the way.
The weights are not changed. Known subjects are what earlier runs read, or what --old names.

gained    bits a character that the new subject's held-out text got easier
lost      bits a character that the known subjects' got harder, each subject counting alike
retained  share left of the known subjects' lead over chance: (c - after) / (c - before), where
          c = 8 bits is a guess that takes every character for as likely as any other
"""
EXAMPLE = """examples:
  minagi forget poems/ --weights my/model --trunk-lr-mult 0.1
  minagi forget poems/ --weights my/model --interleave 0.5 --old ~/notes ~/letters
  minagi forget poems/ --weights my/model --plain --json
"""


class StudyLike(Protocol):
    """A measurement under way, as `minagi.experiments.study.Study` makes it."""

    points: list[Point]
    notice: str

    @property
    def chars(self) -> int: ...

    def describe(self) -> dict[str, Any]:
        """What is measured and how, as plain JSON; `new` is the new subject's name."""
        ...

    def run(self) -> Iterator[Message | Point]: ...

    def close(self) -> None: ...


def parser() -> Parser:
    made = Parser(
        prog="minagi forget",
        usage="%(prog)s NEW_TEXT --weights DIR [--old PATH…] [--chars N] [--interleave SHARE | --plain]\n"
        "       [--points N,N,…] [--seed N] [--json] [flags]",
        description=ABOUT,
        epilog=EXAMPLE,
    )
    made.add_argument(
        "new", type=path, metavar="NEW_TEXT", help="a file or folder, one subject the model has not read"
    )
    made.add_argument(
        "--old", type=path, nargs="+", action="extend", default=[], metavar="PATH",
        help="text of what it has read (default: what is recorded with the model)",
    )  # fmt: skip
    made.add_argument(
        "--chars", type=count, default=CHARS, metavar="N",
        help=f"characters of the new subject to read (default: {CHARS:,})",
    )  # fmt: skip
    made.add_argument(
        "--points", type=_points, metavar="N,N,…",
        help="characters of it after which all is scored, beside start and end (default: quarters)",
    )  # fmt: skip
    how = made.add_mutually_exclusive_group()
    how.add_argument(
        "--interleave", type=_SHARE, default=0.0, metavar="SHARE",
        help="read the known subjects in this share of all reading, as in 0.5 (default: the new one alone)",
    )  # fmt: skip
    how.add_argument(
        "--plain", action="store_true",
        help="plain fine-tuning instead: everything at the same constant rate, every expert on the card",
    )  # fmt: skip
    made.add_argument("--seed", type=natural, metavar="N", help="of the order of reading")
    made.add_argument("--json", action="store_true", help="one object: what was measured, and its points")
    add_machine(made)
    add_settings(made, SETTINGS)
    return made


def main(argv: Sequence[str], open_study: Callable[[ForgetRequest], StudyLike] | None = None) -> int:
    """Measure and tell. `open_study` stands in for the real one."""
    arguments = parser().parse(argv)
    request = _request(arguments)
    study = (open_study or _open_study(arguments.threads))(request)
    try:
        if study.notice:
            say(study.notice)
        with Signals() as signals:
            _follow(study, request, signals)
    finally:
        study.close()
    if signals.received:
        say(f"Stopped by {signals.received} after {study.chars:,} of {request.chars:,} characters.")
    if study.points:
        described = study.describe()
        if arguments.json:
            points = report(study.points, described["new"])
            put_json({**described, "stopped": signals.received, "chance": CHANCE, "points": points})
        else:
            _tell(study.points, described["new"])
    return EXIT_INTERRUPTED if signals.received else EXIT_OK


def _request(arguments: argparse.Namespace) -> ForgetRequest:
    """What these flags ask for. Raises UsageError for what can be told without opening anything."""
    if arguments.chars > CHARS_MAX:
        raise UsageError(f"--chars is {arguments.chars}: at most {CHARS_MAX:,} characters are read.")
    points = arguments.points
    if points is None:
        points = tuple(arguments.chars * quarter // 4 for quarter in (1, 2, 3))
    if points and max(points) > arguments.chars:
        raise UsageError(f"--points goes to {max(points)}, past the {arguments.chars} of --chars.")
    if arguments.plain and vars(arguments)["training.trunk_lr_mult"] is not None:
        raise UsageError("--plain has the trunk at 1.0 times lr: leave out --trunk-lr-mult, or --plain.")
    loaded, weights = model_of(arguments)
    for given in (arguments.new, *arguments.old):
        check_paths((given,))
    return ForgetRequest(
        new=arguments.new,
        weights=weights,
        loaded=loaded,
        old=tuple(arguments.old),
        chars=arguments.chars,
        points=points,
        interleave=arguments.interleave,
        plain=arguments.plain,
        seed=arguments.seed,
        device=arguments.device,
    )


def _points(text: str) -> tuple[int, ...]:
    if text.count(",") >= 1000:
        raise argparse.ArgumentTypeError("at most 1,000 points are scored")
    return tuple(natural(part.strip()) for part in text.split(","))


def _open_study(threads: int | None) -> Callable[[ForgetRequest], StudyLike]:
    def opened(request: ForgetRequest) -> StudyLike:
        """torch is loaded here, after its environment was set."""
        if "torch" not in sys.modules:
            prepare_environment(threads, request.loaded.settings.hardware)
        with loading():
            from minagi.experiments.study import Study

        return Study(request)

    return opened


def _follow(study: StudyLike, request: ForgetRequest, signals: Signals) -> None:
    """Drive the study to its end or to the first signal, telling how far it is on stderr."""
    console = Console(file=sys.stderr, highlight=False, markup=False)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=20), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task("scoring", total=request.chars)
        for event in study.run():
            if isinstance(event, Point):
                console.print(_sentence(event), soft_wrap=True)
            elif isinstance(event, Log) and event.level != "info":
                console.print(harmless(event.text), soft_wrap=True)
            doing = "reading" if study.points and study.chars < request.chars else "scoring"
            bar.update(task, completed=min(study.chars, request.chars), description=doing)
            if signals.received:
                return


def _sentence(point: Point) -> str:
    new, known = point.new.nats / LN2, point.known_nats / LN2
    return f"After {point.chars:,} characters: new {new:.3f}, known {known:.3f} bits a character."


def _tell(points: list[Point], new: str) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("new read", "new", "known", "gained", "lost", "gained/lost", "retained"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in points:
        found = cost(points[0], point)
        ratio, retained = found.gained_per_lost, found.retained
        table.add_row(
            f"{point.chars:,}", f"{point.new.nats / LN2:.3f}", f"{point.known_nats / LN2:.3f}",
            f"{found.gained.nats / LN2:+.3f}", f"{found.lost.nats / LN2:+.3f}",
            "" if ratio is None else f"{ratio:.2f}", "" if retained is None else f"{retained:.1%}",
        )  # fmt: skip
    put_table(table)
    found = cost(points[0], points[-1])
    for name, change in found.subjects.items() if len(found.subjects) > 1 else ():
        put(f"lost on {harmless(name)}: {_shown(change)} bits a character")
    put(f"gained on {harmless(new)}: {_shown(found.gained)} bits a character")
    put(f"lost on what was known: {_shown(found.lost)} bits a character")


def _shown(change: Change) -> str:
    error = "" if change.stderr is None else f" ± {change.stderr / LN2:.3f}"
    return f"{change.nats / LN2:+.3f}{error}"
