"""`minagi snapshots`: every kept checkpoint of a model, and what deleting one would free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from minagi.commands.directory import add_directory, directory_of
from minagi.commands.output import harmless, put, put_json, say
from minagi.errors import EXIT_OK, UsageError
from minagi.options import Parser
from minagi.weights import SnapshotInfo, Store

EXAMPLE = """examples:
  minagi snapshots my/model
  minagi snapshots my/model --delete 12
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi snapshots",
        usage="%(prog)s [DIR] [--delete ID] [--json]",
        description="List the kept checkpoints of a model, newest first. Named ones stay until deleted.",
        epilog=EXAMPLE,
    )
    made.add_argument(
        "--delete", metavar="ID", help="delete this one; the model as it is never changes by that"
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
            info = named(store, arguments.delete)
            store.delete_snapshot(info.id)
        say(f"Snapshot {info.id}{f' ({info.name})' if info.name else ''} is deleted.")
        return EXIT_OK
    with Store.open(weights, write=False) as store:
        kept = store.snapshots()
    if arguments.json:
        put_json({"snapshots": [asdict(info) for info in kept]})
        return EXIT_OK
    for info in kept:
        put(told(info))
    if not kept:
        say("No snapshot is kept yet.")
    return EXIT_OK


def named(store: Store, wanted: str) -> SnapshotInfo:
    """The snapshot with this id, or else with this name. UsageError when there is none."""
    kept = store.snapshots()
    found = [i for i in kept if i.id == wanted] or [i for i in kept if i.name and i.name == wanted]
    if not found:
        there = ", ".join(info.id for info in kept[:8]) or "none"
        raise UsageError(f"{store.path} has no snapshot {wanted!r}. There are: {there}.")
    return found[0]


def told(info: SnapshotInfo) -> str:
    """A snapshot as one line."""
    when = datetime.fromtimestamp(info.at).strftime("%Y-%m-%d %H:%M")
    held_out = "not measured" if info.held_out is None else f"{info.held_out:.4f} nats"
    return (
        f"{info.id:>5}  {when}  step {info.step:>9,}  {info.chars:>13,} characters  held-out {held_out:<12}  "
        f"frees {info.bytes_freed / 2**20:8.1f} MiB  {harmless(info.name) or info.kind}"
    )
