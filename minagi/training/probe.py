"""How a text is read, character by character. Looking leaves no mark on what the model knows."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from minagi.config import Decoding
from minagi.errors import UsageError
from minagi.model.decoding import Suppression
from minagi.model.reading import read
from minagi.model.routing import Forward
from minagi.protocol import Probe, Probed
from minagi.text import alphabet
from minagi.training.engine import Engine
from minagi.training.writing import bytes_of

PROBE_MAX = 4_096  # characters that are read of a text


@torch.no_grad()
def probe(engine: Engine, decoding: Decoding, command: Probe, window: int) -> Probed:
    """Read a text as a new one: rows, surprise, first-row experts, and how each character would go on.

    At most `window` characters are read, from its beginning; what is left is counted. Raises UsageError for
    an empty text.
    """
    whole = alphabet.encode(bytes_of(command.text), markers=False)
    ids = whole[: min(PROBE_MAX, window)]
    if not len(ids):
        raise UsageError("There is nothing to inspect: the text is empty.")
    net, pool = engine.net, engine.pool
    tensor = torch.from_numpy(ids.astype(np.int64)).to(net.tok_emb.weight.device)
    generator = torch.Generator().manual_seed(0)
    forward = Forward(pool, net.new_text(1), engine.routing, generator=generator, trace_rows=1)
    reading = read(net, tensor, forward, cached=False)
    nats = F.cross_entropy(reading.logits[:-1], tensor[1:], reduction="none")
    trace = forward.traces[0]
    uids = np.asarray(pool.telemetry.uid)
    strength = decoding.adapt_strength if command.strength is None else command.strength
    logits = reading.logits.cpu().numpy()
    return Probed(
        id=command.id,
        data=alphabet.decode(ids).decode("latin-1"),
        rows=reading.rows.tolist(),
        nats=[None, *nats.tolist()],
        experts=uids[trace.experts.cpu().numpy()].tolist(),
        weights=trace.weights.round(decimals=4).tolist(),
        raw=_choices(logits, ids, Suppression(0.0, decoding.adapt_decay, decoding.rep_penalty)),
        adapted=_choices(logits, ids, Suppression(strength, decoding.adapt_decay, decoding.rep_penalty)),
        unread=len(whole) - len(ids),
    )


def _choices(logits: np.ndarray, ids: np.ndarray, suppression: Suppression) -> list[str]:
    """What would be written after each of `ids`, given logits [T, V]: bytes as code points."""
    chosen = []
    for id, scores in zip(ids.tolist(), logits, strict=True):
        suppression.saw([id])
        chosen.append(suppression.choose(scores))
    return [alphabet.decode([id]).decode("latin-1") for id in chosen]
