"""What the inspector shows: a text as the model read it, one entry a character on the screen."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import replace

from rich.cells import cell_len

from minagi.protocol import Probed
from tui.sanitise import LIST_LIMIT, clean_line, number, numbers, wholes
from tui.state import AppState, Inspected, Sign

SPOKEN = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\x1b": "␛", "\0": "␀"}
REPLACED = "\ufffd"


def probed(state: AppState, event: Probed, now: float) -> AppState:
    """The answer to a probe: bytes become characters, each with what is told of its last byte."""
    data = event.data.encode("latin-1", "replace")[:LIST_LIMIT]
    rows, nats = wholes(event.rows), event.nats if isinstance(event.nats, list) else []
    signs = []
    for text, start, end in characters(data):
        surprises = [number(value) for value in nats[start:end]]
        known = [value for value in surprises if value is not None]
        signs.append(
            Sign(
                text=visible(text),
                breaks=text == "\n",
                bytes=end - start,
                rows=max(rows[start:end], default=0),
                nats=sum(known) if known and None not in surprises[-1:] else None,
                experts=_experts(event, end - 1),
                raw=_choice(event.raw, end - 1),
                adapted=_choice(event.adapted, end - 1),
            )
        )
    return replace(state, inspected=Inspected(event.id, tuple(signs), len(data), event.unread))


def characters(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Each character of UTF-8 text with the bytes it spans; bytes that are none stand alone."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    start = 0
    for place in range(len(data)):
        text = decoder.decode(data[place : place + 1])
        decoded = place + 1 - len(decoder.getstate()[0])  # what follows may be the beginning of a character
        for left in range(len(text), 0, -1):  # several: a sequence broke off, then bytes that stand alone
            end = decoded - left + 1
            yield text[-left], start, end
            start = end
    if start < len(data):
        yield REPLACED, start, len(data)


def visible(text: str) -> str:
    """One character as something that takes room on the screen and steers nothing."""
    shown = SPOKEN.get(text) or clean_line(text)
    return shown if cell_len(shown) in (1, 2) else REPLACED


def _experts(event: Probed, place: int) -> tuple[tuple[int, float], ...]:
    uids = wholes(event.experts[place]) if place < len(event.experts) else []
    weights = numbers(event.weights[place]) if place < len(event.weights) else []
    return tuple(zip(uids[:16], weights, strict=False))


def _choice(choices: list[str], place: int) -> str:
    """The symbol that would follow, in words where it has no shape of its own."""
    data = choices[place] if place < len(choices) else None
    if not isinstance(data, str) or not data:
        return ""
    raw = data[:32].encode("latin-1", "replace")
    text = raw.decode("utf-8", "replace")
    if REPLACED in text:
        return "byte " + raw.hex()
    if text == " ":
        return "space"
    return "".join(visible(one) for one in text)
