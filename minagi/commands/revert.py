"""`minagi revert`: make a model again what it was at a kept checkpoint. Can itself be undone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from minagi.commands.directory import add_directory, directory_of
from minagi.commands.output import harmless, put_json, say
from minagi.errors import EXIT_OK
from minagi.options import Parser
from minagi.weights import Store

EXAMPLE = """example:
  minagi revert my/model --to 12
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi revert",
        usage="%(prog)s [DIR] --to ID [--json]",
        description="Make a model what it was at a snapshot, given by id or by name. The present is "
        "kept as a snapshot, if it is not one already, so this can be undone; a damaged directory can be "
        "reverted too.",
        epilog=EXAMPLE,
    )
    made.add_argument("--to", metavar="ID", required=True, help="id or name, see: minagi snapshots DIR")
    made.add_argument("--json", action="store_true", help="one object: snapshot, undo")
    add_directory(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Keep the present, go back."""
    arguments = parser().parse(argv)
    weights = directory_of(arguments)
    with Store.open(weights, write=True, role="revert", repair=True) as store:
        target = store.find(arguments.to)
        undo, fault = store.revert(target.id)
    if fault is not None:
        say(f"The present could not be kept, so this cannot be undone: {fault}")
    if arguments.json:
        put_json({"snapshot": target.id, "undo": undo})
    else:
        name = f" ({harmless(target.name)})" if target.name else ""
        when = datetime.fromtimestamp(target.at).strftime("%Y-%m-%d %H:%M")
        say(f"The model is what it was at snapshot {target.id}{name} of {when}: step {target.step:,}.")
        if undo:
            say(f"To undo this: minagi revert {weights} --to {undo}")
    return EXIT_OK
