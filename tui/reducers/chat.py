"""The conversation: two turns an exchange, the model's filling up as its bytes arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from minagi.protocol import ReplyChunk, ReplyEnded, ReplyStarted, Write
from tui.sanitise import clean_line, clean_text, decode_utf8, wholes
from tui.state import TURN_LIMIT, TURN_TEXT_LIMIT, AppState, Turn

_ENDS = ("finished", "length", "cancelled", "failed")


def said(state: AppState, command: Write) -> AppState:
    """The user's words, and the place where the answer will stand."""
    variant = "raw" if command.raw else "adapted"
    text = clean_text(command.prompt, TURN_TEXT_LIMIT)
    turns = (
        Turn("you", command.id, text),
        Turn("model", command.id, phase="waiting", variant=variant),
    )
    return replace(state, chat=(*state.chat[2 - TURN_LIMIT :], *turns))


def started(state: AppState, event: ReplyStarted, now: float) -> AppState:
    """The model begins to write."""
    variant = event.variant if event.variant in ("adapted", "raw") else "adapted"
    return _change(state, event.id, lambda turn: replace(turn, phase="writing", variant=variant))


def chunk(state: AppState, event: ReplyChunk, now: float) -> AppState:
    """More of a reply; what lies past the limit is counted but no longer kept."""
    rows = wholes(event.rows)

    def add(turn: Turn) -> Turn:
        text, unfinished = decode_utf8(turn.unfinished, event.data)
        return replace(
            turn, phase="writing", text=(turn.text + text)[:TURN_TEXT_LIMIT], unfinished=unfinished,
            chars=turn.chars + len(event.data), rows=turn.rows + sum(rows),
            last_rows=rows[-1] if rows else turn.last_rows, loads=turn.loads + event.loads,
        )  # fmt: skip

    return _change(state, event.id, add)


def ended(state: AppState, event: ReplyEnded, now: float) -> AppState:
    """A reply is over."""
    reason = event.reason if event.reason in _ENDS else "finished"
    return _change(state, event.id, lambda turn: _finish(turn, reason, event.seconds))


def refused(state: AppState, id: int, text: str) -> AppState:
    """The worker would not write: its sentence stands where the answer would."""
    return _change(state, id, lambda turn: replace(_finish(turn, "failed"), text=clean_line(text)))


def lose(state: AppState) -> AppState:
    """The worker is gone, and with it whatever it was writing."""
    if state.reply is None:
        return state
    return replace(state, chat=tuple(_finish(t, "lost") if t.open else t for t in state.chat))


def _finish(turn: Turn, reason: str, seconds: float = 0.0) -> Turn:
    rest, _ = decode_utf8(turn.unfinished, "", final=True)
    return replace(turn, phase=reason, text=turn.text + rest, unfinished=b"", seconds=seconds)


def _change(state: AppState, id: int, change: Callable[[Turn], Turn]) -> AppState:
    """The open reply of command `id` changed; events of replies that are over are ignored."""
    for place in range(len(state.chat) - 1, -1, -1):
        turn = state.chat[place]
        if turn.role == "model" and turn.id == id and turn.open:
            turns = (*state.chat[:place], change(turn), *state.chat[place + 1 :])
            return replace(state, chat=turns)
    return state
