"""`minagi snapshots`: every kept checkpoint of a model, and what deleting one would free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from minagi.commands.directory import add_directory, directory_of
from minagi.commands.output import harmless, put, put_json, say
from minagi.errors import EXIT_OK
from minagi.options import Parser
from minagi.protocol import SNAPSHOT_KINDS
from minagi.units import LN2, size
from minagi.weights import SnapshotInfo, Store

EXAMPLE = """examples:
  minagi snapshots my/model
  minagi snapshots my/model --delete 12
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi snapshots",
        usage="%(prog)s [DIR] [--delete ID] [--json]",
        description="List the kept checkpoints of a model, newest first. Named ones stay until deleted.\n"
        "Held-out is the last reading before each, in bits a character (in JSON: held_out, in nats, too).",
        epilog=EXAMPLE,
    )
    made.add_argument(
        "--delete",
        metavar="ID",
        help="delete this one, by id or name; not the one that the model goes on from",
    )
    made.add_argument("--json", action="store_true", help="one object")
    add_directory(made)
    return made


def main(argv: Sequence[str]) -> int:
    """List, or delete one."""
    arguments = parser().parse(argv)
    weights = directory_of(arguments)
    if arguments.delete:
        with Store.open(weights, write=True, role="snapshots", repair=True) as store:
            info = store.find(arguments.delete)
            store.delete_snapshot(info.id)
        name = f" ({info.name})" if info.name else ""
        say(f"Snapshot {info.id}{name} is deleted, which gave back {size(info.bytes_freed)}.")
        return EXIT_OK
    with Store.open(weights, write=False) as store:
        kept = store.snapshots()
    if arguments.json:
        put_json({"snapshots": [as_json(info) for info in kept]})
        return EXIT_OK
    for line in lines(kept):
        put(line)
    say(
        "Held-out is the last reading before each, in bits a character."
        if kept
        else "No snapshot is kept yet."
    )
    return EXIT_OK


def as_json(info: SnapshotInfo) -> dict[str, Any]:
    """A snapshot as an object; `held_out` in nats."""
    return {**asdict(info), "bits_per_byte": None if info.held_out is None else info.held_out / LN2}


def lines(kept: Sequence[SnapshotInfo]) -> list[str]:
    """Snapshots, newest first, as a line each. Older ones of the same name are marked, as in the app."""
    shown, names = [], Counter[str]()
    for info in kept:
        newer = names[info.name]
        names[info.name] += bool(info.name)
        older = "" if not newer else " (older)" if newer == 1 else f" (older, {newer})"
        shown.append(_line(info) + older)
    return shown


def _line(info: SnapshotInfo) -> str:
    what = SNAPSHOT_KINDS[info.kind] + (f", “{harmless(info.name)}”" if info.name else "")
    when = datetime.fromtimestamp(info.at).strftime("%Y-%m-%d %H:%M")
    held_out = "not measured" if info.held_out is None else f"{info.held_out / LN2:.4f} bits"
    if info.held_out_step is not None and info.held_out_step < info.step:
        held_out += f" at step {info.held_out_step:,}"
    return (
        f"{info.id:>5}  {when}  step {info.step:>9,}  {info.chars:>13,} characters  held-out {held_out:<12}  "
        f"frees {info.bytes_freed / 2**20:8.1f} MiB  {what}"
    )
