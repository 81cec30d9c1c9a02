"""`minagi revert`: make a model again what it was at a kept checkpoint. Can itself be undone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from minagi.commands.output import put_json, say
from minagi.commands.snapshots import told, weights_folder
from minagi.errors import EXIT_OK, WeightsError
from minagi.options import Parser, add_machine, add_settings, loaded_settings, path
from minagi.weights import Store

EXAMPLE = """example:
  minagi revert my/model --to 12
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi revert",
        usage="%(prog)s [DIR] --to ID [--json]",
        description="Make a model what it was at a snapshot, given by id or by name. The present is "
        "kept as a snapshot first, so this can be undone; a damaged directory can be reverted too.",
        epilog=EXAMPLE,
    )
    made.add_argument("dir", nargs="?", type=path, metavar="DIR", help="(default: data.weights)")
    made.add_argument("--to", metavar="ID", required=True, help="see: minagi snapshots DIR")
    made.add_argument("--json", action="store_true", help="one object: snapshot, undo")
    add_machine(made)
    add_settings(made, ["data.weights"])
    return made


def main(argv: Sequence[str]) -> int:
    """Keep the present, go back."""
    arguments = parser().parse(argv)
    weights = weights_folder(arguments.dir or loaded_settings(arguments).settings.data.weights)
    undo = ""
    with Store.open(weights, write=True, role="revert", repair=True) as store:
        with suppress(WeightsError):  # a damaged present cannot be kept
            undo = store.keep(kind="before-revert").id
        store.revert(arguments.to)
        here = next((info for info in store.snapshots() if arguments.to in (info.id, info.name)), None)
    if arguments.json:
        put_json({"snapshot": arguments.to if here is None else here.id, "undo": undo})
    else:
        say(f"The model is again what it was at:{'' if here is None else told(here)}")
        if undo:
            say(f"To undo this: minagi revert {weights} --to {undo}")
    return EXIT_OK
