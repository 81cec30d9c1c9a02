"""One pure function folds what happens into what is known: `reduce(state, event, now)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minagi import protocol
from minagi.protocol import Message
from tui import state as local
from tui.reducers import chat, inspect, log, pool, run, training
from tui.sanitise import scrub
from tui.state import AppState

_HANDLERS: dict[type[Message], Callable[[AppState, Any, float], AppState]] = {
    protocol.Hello: run.hello,
    protocol.Past: training.past,
    protocol.CorpusFound: run.corpus,
    protocol.Phase: run.phase,
    protocol.Saved: run.saved,
    protocol.Snapshots: run.snapshots,
    protocol.Reverted: run.reverted,
    protocol.Ack: run.ack,
    protocol.Failure: run.failure,
    protocol.Goodbye: run.goodbye,
    protocol.Metrics: training.metrics,
    protocol.Memory: training.memory,
    protocol.Window: training.window,
    protocol.HeldOut: training.held_out,
    protocol.Rate: training.rate,
    protocol.Subjects: training.subjects,
    protocol.Pool: pool.pool,
    protocol.Growth: pool.growth,
    protocol.ReplyStarted: chat.started,
    protocol.ReplyChunk: chat.chunk,
    protocol.ReplyEnded: chat.ended,
    protocol.Probed: inspect.probed,
    protocol.Remembered: chat.remembered,
    protocol.ConversationBegan: chat.began,
    protocol.Log: log.logged,
    local.WorkerStarted: run.worker_started,
    local.Rewound: run.rewound,
    local.WorkerEnded: run.worker_ended,
    local.Closing: run.closing,
    local.Asked: run.asked,
    local.NotUnderstood: log.not_understood,
    local.Noted: log.noted,
}


def reduce(state: AppState, event: Message, now: float) -> AppState:
    """The state after `event`, which came at `now` (Unix time). Never raises, whatever a worker sends."""
    handler = _HANDLERS.get(type(event))
    if not event.type.startswith("local."):
        state = replace(state, heard_at=now)
        event = scrub(event)
    return handler(state, event, now) if handler is not None else state
