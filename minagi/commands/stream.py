"""`minagi stream`: packed corpora read for a number of steps, by a schedule."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from minagi.commands.running import log_path, told
from minagi.config import KEYS
from minagi.errors import UsageError
from minagi.hardware import prepare_environment
from minagi.options import (
    Parser,
    add_guard,
    add_machine,
    add_settings,
    check_weights,
    count,
    loaded_settings,
    natural,
    real,
)
from minagi.protocol import Goodbye, Message, Phase
from minagi.text.mix import Mix, Source
from minagi.training.ours import ours_of
from minagi.training.request import Limits
from minagi.training.stream_request import HISTORY, STREAM, StreamRequest
from minagi.weights import Store
from minagi.worker.eventlog import logged_beside
from minagi.worker.loop import goodbye
from minagi.worker.parties import ChannelLike, RunLike
from minagi.worker.serve import hold
from minagi.worker.signals import Signals, loading

DESCRIPTION = """Read packed corpora (see minagi pack) for a number of steps and be trained by them. A window
opens at a random place of a corpus drawn by its weight and is read chunk by chunk; so many chunks make a
step. The rate warms up and falls to a tenth along a cosine; the window grows from --ctx-start to --context
over the first 35 % of the steps. Every --eval-every steps held-out text is read: the best is saved, and
experts die and are born.

OUT is a weights directory, for every other command. Where it holds a model, that one goes on; where it
holds an unfinished stream, the steps that are left are made. Ctrl+c saves after the chunk in flight, a
second one ends it at once. Reading goes on while checkpoints are written.

Windows are drawn at random, so a stream does not know what it reads again: all of it is learnt at one
rate, and training.again_lr_mult and training.ngram_renew are for minagi read alone.

Beside the flags of its own it takes the settings of a run, listed below; among them --out, --context,
--ctx-start, --chunk, --lr, --trunk-lr-mult, --wd, --clip, --grow-k and --grow-mem-frac."""
EXAMPLE = """examples:
  minagi pack shakespeare.txt --out corpora/shakespeare
  minagi stream --mix corpora/shakespeare --out my/model --steps 2000
  minagi stream --mix corpora/books:3,corpora/code:1 --out my/model --steps 50e3 --accum 4 --replay 0.05
  minagi write --weights my/model --prompt "Once upon a time"

OUT/history.jsonl tells the story, a JSON object a line, by its "kind": start, step, val, pruned, grew, held,
saved, reverted, done. OUT/events.jsonl keeps what was said meanwhile, as --json prints it, but for the steps.
Settings come from where minagi read takes them: see minagi config.

exit status:
  0 every step was made, now or before      1 it could not go on: diverged, or a corpus was damaged
  2 a flag, a setting or a corpus is wrong  3 a file of the weights is damaged or not ours
  4 another program is writing OUT          130 stopped by a signal, saved"""
_SHARE = real(lambda share: 0 <= share < 1, "from 0 to less than 1")
# How the flags are spelled that other commands know by the name of their setting.
SPELLINGS = {
    "data.weights": "--out",
    "model.context_end": "--context",
    "model.context_start": "--ctx-start",
    "training.weight_decay": "--wd",
    "growth.k": "--grow-k",
    "growth.mem_frac": "--grow-mem-frac",
}
# Settings of a trainer that a stream has flags of its own for, or a schedule, or no use.
UNUSED = {
    "model.context_step", "model.context_grow_every_chars", "model.context_gain_min",
    "model.context_every_chars", "training.eval_every_chars", "training.sample_every", "growth.every_chars",
    # windows are drawn at random: nobody counts what was read before, and there are no rounds
    "training.again_lr_mult", "training.ngram_renew",
}  # fmt: skip
USED = [
    path
    for path, key in KEYS.items()
    if path not in UNUSED
    and (
        key.section in ("model", "pool", "training", "growth", "prune", "hardware") or path == "data.weights"
    )
]


def parser() -> Parser:
    made = Parser(
        prog="minagi stream",
        usage="%(prog)s --mix NAME[:WEIGHT],… --out DIR [--steps N] [flags]",
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    _add_reading(made.add_argument_group("the stream"))
    _add_measuring(made.add_argument_group("measuring and the pool"))
    add_machine(made)
    add_settings(made, USED, SPELLINGS)
    return made


def _add_reading(group: argparse._ArgumentGroup) -> None:
    """What is read, for how long, and what is told."""
    group.add_argument(
        "--mix", required=True, metavar="NAME:W,…",
        help="corpus folders, or their names in the data folder, and their weights (1 where none is given)",
    )  # fmt: skip
    group.add_argument(
        "--steps", type=count, default=10_000, metavar="N", help="steps in all (default: 10000)"
    )
    group.add_argument("--accum", type=count, default=1, metavar="N", help="chunks a step (default: 1)")
    group.add_argument(
        "--warmup", type=natural, metavar="N",
        help="steps over which the rate rises (default: 100, or a tenth of --steps)",
    )  # fmt: skip
    group.add_argument(
        "--restart", action="store_true", help="begin the schedule anew on the model that is there"
    )
    group.add_argument("--seed", type=natural, metavar="N", help="seed of everything random")
    group.add_argument(
        "--replay", type=_SHARE, default=0.0, metavar="SHARE",
        help="share of windows that reopen a place read before, of 512 remembered (default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--replay-burst", type=count, default=4, metavar="N", help="chunks such a window has (default: 4)"
    )
    add_guard(group)
    group.add_argument("--json", action="store_true", help="events as JSON lines on stdout, as minagi read")


def _add_measuring(group: argparse._ArgumentGroup) -> None:
    """When held-out text is read, and what becomes of the pool then."""
    group.add_argument(
        "--log-every", type=count, default=20, metavar="N", help="steps between two rows (default: 20)"
    )
    group.add_argument(
        "--eval-every", type=count, default=500, metavar="N", help="steps between two readings (default: 500)"
    )
    group.add_argument(
        "--eval-chunks", type=count, default=64, metavar="N",
        help="chunks of held-out text of each corpus that a reading takes (default: 64)",
    )  # fmt: skip
    group.add_argument(
        "--grow-min-age", type=count, metavar="N",
        help="steps an expert may go unused, and a newborn is on trial (default: prune.survival_chars)",
    )  # fmt: skip
    group.add_argument(
        "--pool-max", type=natural, default=0, metavar="N", help="experts at most; 0 is no limit (default: 0)"
    )


def main(argv: Sequence[str], open_stream: Callable[[StreamRequest], StreamerLike] | None = None) -> int:
    """Stream until every step is made, or a signal. `open_stream` stands in for the real one."""
    arguments = parser().parse(argv)
    request = stream_request(arguments)
    opened = partial(open_stream or _open, request)

    def held(channel: ChannelLike, signals: Signals) -> int:
        kept = logged_beside(channel, request.out / HISTORY, request.out)
        return hold(opened, lambda run: drive(run, kept, signals), kept, signals, request.log)

    limits = Limits(steps=steps_left(request))
    return told(arguments.json, limits, request.loaded.notice, held)


def stream_request(arguments: argparse.Namespace) -> StreamRequest:
    """The stream these flags ask for. Raises UsageError for what can be told without opening anything."""
    loaded = loaded_settings(arguments)
    data = loaded.settings.data
    check_weights(data.weights, writes=True)
    own = (
        "steps", "accum", "warmup", "log_every", "eval_every", "eval_chunks", "grow_min_age", "pool_max",
        "replay", "replay_burst", "restart", "seed", "revert_factor", "max_reverts", "device", "threads",
    )  # fmt: skip
    request = StreamRequest(
        mix=mix_of(arguments.mix, data.train.parent),
        out=data.weights,
        loaded=loaded,
        given=frozenset(path for path in KEYS if getattr(arguments, path, None) is not None),
        log=log_path(),
        **{name: getattr(arguments, name) for name in own},
    )
    request.check()
    return request


def steps_left(request: StreamRequest) -> int:
    """The steps of the stream that OUT does not have yet. Raises WeightsError where OUT is no model's."""
    with Store.open(request.out, write=False) as store:
        stream = ours_of(store.manifest).get(STREAM)
    done = stream.get("done") if isinstance(stream, dict) and not request.restart else 0
    return max(request.steps - done, 0) if isinstance(done, int) else request.steps


def mix_of(text: str, folder: Path) -> tuple[Source, ...]:
    """The corpora that `--mix` names: each a path, or the name of one in `folder`. Raises UsageError."""
    named: list[tuple[str, float]] = []
    for part in text.split(","):
        name, colon, weight = part.rpartition(":")
        if not colon:
            name, weight = part, "1"
        if not name.strip() or "\0" in name:
            raise UsageError(f"--mix is {text[:80]!r}: every corpus needs a name, as in books:2,code:1")
        named.append((name.strip(), _weight(name, weight)))
    twice = [name for index, (name, _) in enumerate(named) if name in dict(named[:index])]
    if twice:
        raise UsageError(f"{twice[0]} is in the mix twice. Name every corpus once, with one weight.")
    return tuple(Source(name, _folder(name, folder), weight) for name, weight in named)


def _folder(name: str, folder: Path) -> Path:
    given = Path(name).expanduser()
    try:
        return given if given.exists() or not (folder / name).exists() else folder / name
    except OSError:
        return given  # what is wrong with it shows when it is opened


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < 1e12:
        raise UsageError(
            f"The weight of {name[:60]} in the mix is {text[:40]!r}. It must be a number above 0."
        )
    return weight


# ------------------------------------------------------------------------------------------ the run


class StreamerLike(RunLike, Protocol):
    """What is driven here (`minagi.training.streamer.Streamer`)."""

    @property
    def concluded(self) -> bool:
        """Every step was made, and measured."""
        ...

    def conclude(self) -> Iterable[Message]:
        """What there is to say when a run ends in order."""
        ...


def _open(request: StreamRequest) -> StreamerLike:
    """The real streamer. torch is loaded here, after its environment was set. Raises MinagiError."""
    mix = Mix(request.mix)  # what is wrong with a corpus shows at once
    prepare_environment(request.threads, request.loaded.settings.hardware)
    with loading():
        from minagi.training import stream

    return stream.open_stream(request, mix)


def drive(run: StreamerLike, channel: ChannelLike, signals: Signals) -> Goodbye:
    """Take a stream to its end, or to where a signal or the loss of the other side ends it; save; say why."""

    phase = ""

    def send(messages: Iterable[Message]) -> None:
        nonlocal phase
        for message in messages:
            if isinstance(message, Phase):
                if message.phase == phase:
                    continue
                phase = message.phase
            channel.send(message)

    began = run.steps
    with signals.breakable():
        send(run.greet())
    while not (why := f"stopped by {signals.received}" if signals.received else channel.closed):
        if run.concluded:
            made = run.steps - began
            why = f"{made} steps were made, the last of the stream"
            if not made:
                why = "every step was made before (give more with --steps, or begin anew with --restart)"
            break
        with signals.breakable():
            send(run.step())
    send(run.conclude())
    if run.unsaved_chars:
        send(run.checkpoint(kind="final"))
    return goodbye(run, why, saved=True)
