"""The conversation: what was asked, and the answers filling up as their bytes arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from minagi.protocol import (
    Continue,
    ConversationBegan,
    Remembered,
    ReplyChunk,
    ReplyEnded,
    ReplyStarted,
    Write,
)
from tui.sanitise import clean_line, clean_text, decode_utf8, wholes
from tui.state import (
    CHAT_LIMIT,
    PROMPT_LIMIT,
    PROMPT_TEXT_LIMIT,
    SAID_LIMIT,
    AppState,
    Exchange,
    Reply,
)

_ENDS = ("finished", "length", "cancelled", "failed")
_UNBEGUN = ("cancelled", "failed")  # ends after which a second answer is not begun


def asked(state: AppState, command: Write | Continue) -> AppState:
    """The user's words and the place where the answer will stand; or the last answer, opened again."""
    if isinstance(command, Continue):
        return _reopen(state, command.id)
    strength = command.strength or 0.0
    adapted, raw = Reply("adapted", strength), Reply("raw")
    replies = (adapted, raw) if command.both else (raw,) if command.raw else (adapted,)
    return _add(_recallable(state, command.prompt), command.id, command.prompt, replies)


def started(state: AppState, event: ReplyStarted, now: float) -> AppState:
    """The model begins to write. A reply that was not asked for here, as in a recording, gets its place."""
    variant = _variant(event.variant)
    if not _is_open(state, event.id, variant):
        if event.goes_on:
            state = _reopen(state, event.id)
        elif event.prompt:
            state = _add(state, event.id, event.prompt, (Reply(variant),))
    if state.chat and event.unread and state.chat[-1].id == event.id:
        last = state.chat[-1]
        state = _put(state, replace(last, unread=min(event.unread, last.size)))
    return _change(
        state, event.id, variant, lambda reply: replace(reply, phase="writing", strength=event.strength)
    )


def chunk(state: AppState, event: ReplyChunk, now: float) -> AppState:
    """More of a reply; what lies past the limit is counted but no longer kept."""
    rows = wholes(event.rows)

    def add(reply: Reply) -> Reply:
        text, unfinished = decode_utf8(reply.unfinished, event.data)
        return replace(
            reply, phase="writing", text=(reply.text + text)[:SAID_LIMIT], unfinished=unfinished,
            chars=reply.chars + len(event.data), rows=reply.rows + sum(rows),
            last_rows=rows[-1] if rows else reply.last_rows, loads=reply.loads + event.loads,
        )  # fmt: skip

    return _change(state, event.id, _variant(event.variant), add)


def ended(state: AppState, event: ReplyEnded, now: float) -> AppState:
    """A reply is over, and where it was broken off, so is the one that was to follow it."""
    reason = event.reason if event.reason in _ENDS else "finished"
    variant = _variant(event.variant)
    state = _change(state, event.id, variant, lambda reply: _finish(reply, reason, event.seconds))
    if reason not in _UNBEGUN or not state.chat or state.chat[-1].id != event.id:
        return state
    last = state.chat[-1]
    begun = tuple(reply for reply in last.replies if not reply.open)
    return _put(state, replace(last, replies=begun or last.replies))


def refused(state: AppState, id: int, text: str) -> AppState:
    """The worker would not write: its sentence stands where the answer would.

    A reply that was to go on stays as it was.
    """
    if not state.chat or state.chat[-1].id != id or not state.chat[-1].open:
        return state
    last = state.chat[-1]
    again = [reply for reply in last.replies if reply.was]
    if again:
        replies = tuple(replace(r, phase=r.was, was="") if r.was else r for r in last.replies)
    else:
        replies = (replace(_finish(last.replies[0], "failed"), text=clean_line(text)),)
    return _put(state, replace(last, replies=replies))


def lose(state: AppState) -> AppState:
    """Whatever was being written will not go on: the worker is gone."""
    if state.reply is None:
        return state
    last = state.chat[-1]
    replies = tuple(_finish(reply, "lost") if reply.open else reply for reply in last.replies)
    return _put(state, replace(last, replies=replies))


# ------------------------------------------------------------------------- from earlier sessions


def greeted(state: AppState) -> AppState:
    """What a worker remembers takes the place of what one before it did, but not of what was said here."""
    return state if _talked(state) else replace(state, chat=(), prompts=())


def remembered(state: AppState, event: Remembered, now: float) -> AppState:
    """An exchange of an earlier session; of a conversation that is over only the prompt matters."""
    if _talked(state):
        return state
    reply = Reply(
        _variant(event.variant), event.strength, event.reason if event.reason in _ENDS else "finished",
        text=clean_text(event.reply, SAID_LIMIT), chars=event.chars, rows=event.rows,
        loads=event.loads, seconds=event.seconds,
    )  # fmt: skip
    if event.beside:
        if event.over or not state.chat:
            return state
        last = state.chat[-1]
        return _put(state, replace(last, replies=(last.replies[0], reply)))
    state = _recallable(state, event.prompt)
    return state if event.over else _add(state, 0, event.prompt, (reply,))


def began(state: AppState, event: ConversationBegan, now: float) -> AppState:
    """A new conversation: what was said before leaves the screen, and can still be brought back."""
    return replace(state, chat=())


def _talked(state: AppState) -> bool:
    return any(exchange.id for exchange in state.chat)


# ------------------------------------------------------------------------------------- the parts


def _put(state: AppState, last: Exchange) -> AppState:
    return replace(state, chat=(*state.chat[:-1], last))


def _add(state: AppState, id: int, prompt: str, replies: tuple[Reply, ...]) -> AppState:
    state = lose(state)  # one at a time is answered: whatever is still open was left
    serial = state.chat[-1].serial + 1 if state.chat else 0
    size = len(prompt.encode("utf-8", "surrogatepass"))
    exchange = Exchange(serial, id, clean_text(prompt, SAID_LIMIT), size, replies=replies)
    return replace(state, chat=(*state.chat[1 - CHAT_LIMIT :], exchange))


def _recallable(state: AppState, prompt: str) -> AppState:
    """A prompt joins those that can be brought back; the same one twice running is there once."""
    if len(prompt) > PROMPT_TEXT_LIMIT or state.prompts[-1:] == (prompt,):
        return state
    return replace(state, prompts=(*state.prompts[1 - PROMPT_LIMIT :], prompt))


def _reopen(state: AppState, id: int) -> AppState:
    """The last exchange is answered on, by command `id`: its first reply is that of the conversation."""
    if not state.chat or not state.chat[-1].can_go_on:
        return state
    last = state.chat[-1]
    first = replace(last.replies[0], phase="waiting", was=last.replies[0].phase)
    return _put(state, replace(last, id=id, replies=(first, *last.replies[1:])))


def _finish(reply: Reply, reason: str, seconds: float = 0.0) -> Reply:
    """The reply, over. Only of one that came to its end is a cut character shown: others may go on."""
    text, unfinished = reply.text, reply.unfinished
    if reason == "finished":
        text, unfinished = text + decode_utf8(unfinished, "", final=True)[0], b""
    return replace(
        reply, phase=reason, was="", text=text, unfinished=unfinished, seconds=reply.seconds + seconds
    )


def _variant(name: str) -> str:
    return name if name in ("adapted", "raw") else "adapted"


def _is_open(state: AppState, id: int, variant: str) -> bool:
    last = state.chat[-1] if state.chat else None
    return last is not None and last.id == id and any(r.open and r.variant == variant for r in last.replies)


def _change(state: AppState, id: int, variant: str, change: Callable[[Reply], Reply]) -> AppState:
    """The open reply of command `id` changed; events of replies that are over are ignored."""
    if not _is_open(state, id, variant):
        return state
    last = state.chat[-1]
    replies = tuple(
        change(reply) if reply.open and reply.variant == variant else reply for reply in last.replies
    )
    return _put(state, replace(last, replies=replies))
