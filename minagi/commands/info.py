"""`minagi info`: what a weights directory holds, without loading torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minagi.commands.directory import add_directory, directory_of
from minagi.commands.output import harmless, put, put_json
from minagi.commands.snapshots import as_json, lines
from minagi.errors import EXIT_OK
from minagi.options import Parser
from minagi.units import LN2
from minagi.weights import SnapshotInfo, Store, layout, snapshots

EXAMPLE = """example:
  minagi info my/model
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi info",
        usage="%(prog)s [DIR] [--json]",
        description="Say what a weights directory holds. It may be in training meanwhile.",
        epilog=EXAMPLE,
    )
    made.add_argument("--json", action="store_true", help="one object")
    add_directory(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Look and tell."""
    arguments = parser().parse(argv)
    weights = directory_of(arguments)
    with Store.open(weights, write=False) as store:
        kept = store.snapshots() if store.exists else []
        found = _found(store, weights, kept)
    if arguments.json:
        put_json(found)
    else:
        _tell(found, kept)
    return EXIT_OK


def _found(store: Store, weights: Path, kept: Sequence[SnapshotInfo]) -> dict[str, Any]:
    """Everything worth telling, as plain JSON. Sizes in bytes, `at` in Unix time."""
    manifest = store.manifest
    found: dict[str, Any] = {"path": str(weights), "made": store.exists, "shape": store.shape}
    if not store.exists:
        return found
    held_out = snapshots.held_out_of(manifest)
    return {
        **found,
        "step": manifest.get("step"),
        "chars": manifest.get("read_chars"),
        "context": manifest.get("context_now"),
        "held_out": held_out,
        "bits_per_byte": None if held_out is None else held_out / LN2,
        "experts": len(store.uids),
        "parameters": layout.parameters(store.shape),
        "bytes": store.disk_bytes(),
        "snapshots": [as_json(info) for info in kept],
    }


def _tell(found: dict[str, Any], kept: Sequence[SnapshotInfo]) -> None:
    put(harmless(f"{found['path']}"))
    if not found["made"]:
        put("no model has been made here yet")
        return
    shape = found["shape"]
    heads, blocks, rows = shape["n_head"], shape["n_prelude"], shape["max_steps"]
    prelude = f"{blocks} prelude block" + ("" if blocks == 1 else "s")
    put(f"shape        {shape['d_model']} wide, {heads} heads, {prelude}, at most {rows} rows a character")
    put(f"experts      {found['experts']} of width {shape['pool_d_ff']}, {shape['pool_top_k']} a character")
    if layout.ngram_shapes(shape):
        put(f"n-grams      of 2 to {shape['ngram']} characters, {shape['ngram_rows']:,} rows each")
        if words := shape.get("word_rows"):
            put(f"words        {words:,} rows each for the word so far, and for it with the word before")
    put(f"parameters   {found['parameters']:,}")
    put(f"step         {_number(found['step'])}")
    put(f"characters   {_number(found['chars'])}")
    put(f"window       {_number(found['context'])}")
    bits = found["bits_per_byte"]
    put(
        "held-out     not measured"
        if bits is None
        else f"held-out     {bits:.4f} bits a character, when last read"
    )
    put(f"on disk      {found['bytes'] / 2**20:,.1f} MiB")
    put(f"snapshots    {len(found['snapshots'])}")
    for line in lines(kept):
        put(line)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else "unknown"
