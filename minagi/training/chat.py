"""Talking with the model while it learns: replies and probes. Neither leaves a mark on what it knows."""

from __future__ import annotations

import time
from collections.abc import Generator

import numpy as np
import torch
import torch.nn.functional as F

from minagi import protocol
from minagi.config import Decoding
from minagi.errors import UsageError
from minagi.model.reading import read
from minagi.model.routing import Forward
from minagi.protocol import Message
from minagi.text import alphabet
from minagi.training.engine import Engine
from minagi.training.writing import REPLY_ENDS, Conversation, Writer

PROBE_MAX = 4_096  # characters


class Chat:
    """The conversation of a run."""

    def __init__(self, engine: Engine, decoding: Decoding) -> None:
        self.engine, self.decoding = engine, decoding
        self._conversation = Conversation()

    def forget(self) -> None:
        """Begin a new conversation."""
        self._conversation = Conversation()

    def reply(self, command: protocol.Write, window: int) -> Generator[Message, None, None]:
        """Answer `command`; closing the generator cancels. What was written stays in the conversation."""
        words = _bytes_of(command.prompt)
        if not words:
            raise UsageError("There is nothing to answer: the message is empty.")
        strength = self.decoding.adapt_strength if command.strength is None else command.strength
        writer = Writer(self.engine, window, 0.0 if command.raw else strength, self.decoding)
        if command.chat:
            prompt = self._conversation.ask(alphabet.encode(words, markers=False))
        else:
            prompt = alphabet.encode(words).tolist()
        began = time.monotonic()
        written: list[int] = []
        try:
            yield protocol.ReplyStarted(command.id, "raw" if command.raw else "adapted")
            for character in writer.write(prompt, command.chars, REPLY_ENDS):
                written.append(character.id)
                if character.id not in REPLY_ENDS:
                    data = alphabet.decode([character.id]).decode("latin-1")
                    yield protocol.ReplyChunk(command.id, data, [character.rows], character.loads)
        finally:
            if command.chat:
                self._conversation.answered(written)
        reason = "finished" if written and written[-1] in REPLY_ENDS else "length"
        yield protocol.ReplyEnded(command.id, reason, len(written), time.monotonic() - began)

    @torch.no_grad()
    def probe(self, command: protocol.Probe, window: int) -> protocol.Probed:
        """Read a text as a new one; rows, surprise and first-row experts of each character."""
        limit = min(PROBE_MAX, window)
        ids = alphabet.encode(_bytes_of(command.text), markers=False)[:limit]
        if not len(ids):
            raise UsageError("There is nothing to inspect: the text is empty.")
        net, pool = self.engine.net, self.engine.pool
        tensor = torch.from_numpy(ids.astype(np.int64)).to(net.tok_emb.weight.device)
        generator = torch.Generator().manual_seed(0)
        forward = Forward(pool, net.new_text(1), self.engine.routing, generator=generator, trace_rows=1)
        reading = read(net, tensor, forward, cached=False)
        nats = F.cross_entropy(reading.logits[:-1], tensor[1:], reduction="none")
        trace = forward.traces[0]
        uids = np.asarray(pool.telemetry.uid)
        return protocol.Probed(
            command.id,
            alphabet.decode(ids).decode("latin-1"),
            reading.rows.tolist(),
            [None, *nats.tolist()],
            uids[trace.experts.cpu().numpy()].tolist(),
            trace.weights.round(decimals=4).tolist(),
        )


def _bytes_of(text: str) -> bytes:
    """What was typed, as bytes. JSON can carry half a surrogate pair, which no text can: that becomes '?'."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
