"""Writing: a reply, character by character, each a forward of its own through the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from minagi.config import Decoding
from minagi.model.decoding import Suppression
from minagi.model.reading import read
from minagi.model.routing import Forward
from minagi.model.single import SingleReader, serves
from minagi.text.alphabet import ID_OF
from minagi.training.engine import Engine

BOT_END = ID_OF[b"</bot>"]
CONVERSATION_MAX = 1 << 16  # symbols of a conversation that are kept; no window is longer
REPLY_ENDS = (BOT_END, ID_OF[b"<|endoftext|>"])


@dataclass(frozen=True)
class Character:
    """One written symbol: its id, the rows taken to decide on it, experts loaded onto the card for it."""

    id: int
    rows: int
    loads: int


class Writer:
    """One text being written. `window` is how many characters it may hold before it starts over."""

    def __init__(self, engine: Engine, window: int, strength: float, decoding: Decoding) -> None:
        self.engine, self.window = engine, max(window, 2)
        self._suppression = Suppression(strength, decoding.adapt_decay, decoding.rep_penalty)
        self._ids: list[int] = []
        self._generator = torch.Generator().manual_seed(0)  # select_temperature draws alike for every reply
        self._text = engine.net.new_text(min(self.window, 512))
        self._single: SingleReader | None = None  # reads this text on, once its beginning was read

    def write(self, prompt: Sequence[int], chars: int, ends: Sequence[int] = ()) -> Iterator[Character]:
        """Read the prompt (at least one id), then write up to `chars` characters, or one of `ends`."""
        self._suppression.saw(prompt)
        logits, rows, loads = self._read(list(prompt)[-self.window + 1 :])
        for left in reversed(range(chars)):
            chosen = self._suppression.choose(logits)
            yield Character(chosen, rows, loads)
            if chosen in ends or not left:
                return
            self._suppression.saw([chosen])
            logits, rows, loads = self._read([chosen])

    def _read(self, ids: list[int]) -> tuple[np.ndarray, int, int]:
        """Read on: logits of the last id, its rows, and experts loaded. A full window first starts over
        from its last half, at position 0."""
        if len(self._ids) + len(ids) > self.window:
            ids = [*self._ids[-(self.window // 2) :], *ids][-self.window :]
            self._ids = []
            self._text = self.engine.net.new_text(self.window)
            self._single = None
        self._ids += ids
        net, pool, routing = self.engine.net, self.engine.pool, self.engine.routing
        before = pool.loads
        if len(ids) == 1 and self._text.position and serves(net, routing):
            self._single = self._single or SingleReader(net, pool, routing, self._text)
            logits, rows = self._single.read(ids[0])
            return logits, rows, pool.loads - before
        if self._single is not None:
            self._single.give_back()
            self._single = None
        tensor = torch.tensor(ids, device=net.tok_emb.weight.device)
        reading = read(net, tensor, Forward(pool, self._text, routing, generator=self._generator))
        return reading.logits[-1].cpu().numpy(), int(reading.rows[-1]), pool.loads - before


class Conversation:
    """What was said so far, as ids; every reply reads its tail again, with the weights of that moment."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.cut_short = False  # the model had not come to the end of what it said last

    def ask(self, prompt: np.ndarray) -> list[int]:
        """Add the user's words; returns the whole, ready for the model to answer."""
        self.ids = self.ids[-CONVERSATION_MAX:]
        self.ids += [ID_OF[b"<user>"], *prompt.tolist(), ID_OF[b"</user>"], ID_OF[b"<bot>"]]
        return list(self.ids)

    def answered(self, ids: Sequence[int]) -> None:
        """Add the model's words, closed even where it was cut short."""
        last = ids[-1] if ids else None
        self.cut_short = last not in REPLY_ENDS
        self.ids += [*ids, *([] if last == BOT_END else [BOT_END])]

    def go_on(self) -> list[int]:
        """Open what the model said last again; returns the whole, for it to go on. Only if `cut_short`."""
        self.ids.pop()
        return list(self.ids)


def bytes_of(text: str) -> bytes:
    """What was typed, as bytes. JSON can carry half a surrogate pair, which no text can: that becomes '?'."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
