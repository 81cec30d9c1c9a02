"""Messages to lines of JSON and back; whatever is no message is refused in words."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, TypeVar

from minagi.errors import MinagiError
from minagi.finite import finite
from minagi.protocol.commands import COMMANDS, Command
from minagi.protocol.events import EVENTS, Hello
from minagi.protocol.message import VERSION, Message

MAX_LINE = 8 * 1024 * 1024  # bytes; a longer line is refused, not buffered

M = TypeVar("M", bound=Message)


class ProtocolError(MinagiError):
    """A line that is not a message of this protocol."""


def encode(message: Message) -> bytes:
    """One line of UTF-8 JSON, newline included; NaN and infinities become null."""
    body = {"type": message.type, **{f.name: finite(getattr(message, f.name)) for f in fields(message)}}
    line = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return line.encode("utf-8", "backslashreplace") + b"\n"


def decode_event(line: bytes | str) -> Message | None:
    """The event on a line; None for an unknown type. Raises ProtocolError for anything else."""
    event = _decode(line, EVENTS)
    if isinstance(event, Hello) and event.version != VERSION:
        raise ProtocolError(
            f"The worker speaks version {event.version} of the protocol and this program version {VERSION}. "
            "Install the two from the same release."
        )
    return event


def decode_command(line: bytes | str) -> Command | None:
    """The command on a line; None for an unknown type. Raises ProtocolError for anything else."""
    return _decode(line, COMMANDS)


def _decode(line: bytes | str, kinds: dict[str, type[M]]) -> M | None:
    if len(line) > MAX_LINE:
        raise ProtocolError(f"A message of {len(line)} bytes is longer than the {MAX_LINE} allowed.")
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        shown = line[:60] if isinstance(line, str) else line[:60].decode("utf-8", "replace")
        raise ProtocolError(f"Not a message: {shown!r} ({error}).") from None
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise ProtocolError("Not a message: a JSON object with a 'type' was expected.")
    kind = kinds.get(body["type"])
    if kind is None:
        return None
    known = {f.name: f for f in fields(kind)}
    values = {}
    for name, value in body.items():
        if name in known:
            values[name] = _typed(value, str(known[name].type), f"{kind.type}.{name}")
    return kind(**values)


_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (int, float), "str": (str,), "bool": (bool,),
    "list": (list,), "dict": (dict,), "None": (type(None),),
}  # fmt: skip


def _typed(value: Any, annotation: str, where: str) -> Any:
    """`value` if it is of the annotated kind (its outermost level), else ProtocolError."""
    for part in annotation.split("|"):
        name = part.strip().split("[")[0]
        kinds = _KINDS[name]
        if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
            return value
    raise ProtocolError(f"{where} should be {annotation}, not {type(value).__name__}.")
