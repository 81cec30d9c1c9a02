"""`minagi history`: a run as a table, one line a row of its history."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from minagi.commands.output import aligned, harmless, put, put_json, say
from minagi.commands.records import add_history, chosen
from minagi.errors import EXIT_OK
from minagi.options import Parser, natural
from minagi.plots.run import bits, figure

SHOWN = 40  # rows
EXAMPLE = """examples:
  minagi history                                  the last run of data.history
  minagi history --weights my/model --last 0      every row of this model
  minagi history --history runs/history.jsonl --json | jq '.rows[-1].val'
"""
COLUMNS = ("time", "step", "characters", "train", "held-out", "experts", "window", "rate", "memory", "")


def parser() -> Parser:
    made = Parser(
        prog="minagi history",
        usage="%(prog)s [--weights DIR] [--history FILE] [--last N] [--json]",
        description="Show a run as a table: of minagi read, one line a checkpoint; of minagi stream, one\n"
        "line an event. Losses are in bits a character. A history may hold several models; shown is the\n"
        "one written last, or that of --weights.",
        epilog=EXAMPLE,
    )
    made.add_argument(
        "--last", type=natural, default=SHOWN, metavar="N",
        help=f"the last N rows; 0 for all of them (default: {SHOWN})",
    )  # fmt: skip
    made.add_argument("--json", action="store_true", help="one object; losses are in nats a byte there")
    add_history(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Read and tell."""
    arguments = parser().parse(argv)
    meant = chosen(arguments)
    model, count, rows = _of_one_model(meant.history.rows(), meant.model, arguments.last)
    path = meant.history.path
    if arguments.json:
        put_json(
            {"history": str(path), "model": model, "count": count, "rows": [_plain(row) for row in rows]}
        )
        return EXIT_OK
    if not rows:
        say(f"{path} holds no rows{f' of {model}' if model else ''} yet.")
        return EXIT_OK
    say(f"{model or 'A model'}, from {path}")
    if count > len(rows):
        say(f"{count - len(rows):,} earlier rows are not shown; --last 0 shows all.")
    for line in aligned([COLUMNS, *_lines(rows)]):
        put(harmless(line))
    return EXIT_OK


def _of_one_model(
    rows: Iterator[dict[str, Any]], model: str, last: int
) -> tuple[str, int, list[dict[str, Any]]]:
    """The model meant, how many rows it has, and the last of them. Without a name, the one written last."""
    kept: dict[str, deque[dict[str, Any]]] = {}
    counts: dict[str, int] = {}
    name = model
    for row in rows:
        of = row.get("model") if isinstance(row.get("model"), str) else ""
        if model and of != model:
            continue
        name = model or str(of)
        kept.setdefault(name, deque(maxlen=last or None)).append(row)
        counts[name] = counts.get(name, 0) + 1
    return name, counts.get(name, 0), list(kept.get(name, ()))


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    before: Mapping[str, Any] = {}
    for row in rows:
        factor = figure(row.get("rate")) if row.get("kind") is None else None
        yield (
            _when(row.get("time")),
            _number(row.get("step"), ",.0f"),
            _number(row.get("chars"), ",.0f"),
            _number(bits(row.get("loss")), ".3f"),
            _number(bits(row.get("val")), ".3f"),
            _number(row.get("experts"), ",.0f"),
            _number(row.get("context"), ",.0f"),
            _number(factor, ".3f") if factor is not None else _number(row.get("lr"), ".2e"),
            _number(figure(row.get("memory")), ",.0f", 2**20, " MiB"),
            _happened(row, before),
        )
        before = row


def _happened(row: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """What a stream's row is about; of other rows, which experts came and went since the one before."""
    kind, why = row.get("kind"), row.get("why")
    if isinstance(kind, str):
        return f"{kind}: {why}" if isinstance(why, str) else kind
    now, then = row.get("uid"), before.get("uid")
    if not isinstance(now, list) or not isinstance(then, list):
        return ""
    born = sum(uid not in then for uid in now)
    gone = sum(uid not in now for uid in then)
    return ", ".join(f"{count} {word}" for count, word in ((born, "born"), (gone, "deleted")) if count)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what it says of every expert: the file has that."""
    return {name: value for name, value in row.items() if not isinstance(value, list)}


def _when(value: Any) -> str:
    at = figure(value)
    try:
        return datetime.fromtimestamp(at or 0.0).strftime("%Y-%m-%d %H:%M:%S") if at else ""
    except (OverflowError, OSError, ValueError):
        return ""


def _number(value: Any, form: str, unit: float = 1.0, name: str = "") -> str:
    number = figure(value)
    return "" if number is None else format(number / unit, form) + name
