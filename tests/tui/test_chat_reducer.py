"""The conversation in the state: whatever comes in whatever order, it is bounded, safe and true."""

from __future__ import annotations

import dataclasses

import fake_run as fr
from hypothesis import given, settings
from hypothesis import strategies as st

from minagi import protocol as p
from tui.reducers import reduce
from tui.sanitise import clean_text
from tui.state import (
    CHAT_LIMIT,
    PROMPT_LIMIT,
    PROMPT_TEXT_LIMIT,
    SAID_LIMIT,
    AppState,
    Asked,
    Exchange,
    Reply,
    WorkerEnded,
    WorkerStarted,
    initial,
)

NOW = fr.START


def fold(events: list[p.Message], state: AppState | None = None) -> AppState:
    state = state or initial(NOW)
    for event in events:
        state = reduce(state, event, NOW)
    return state


def asked(id: int = 1, prompt: str = "hello", **more: object) -> list[p.Message]:
    return [fr.hello(), Asked(p.Write(id=id, prompt=prompt, **more))]  # type: ignore[arg-type]


def only(state: AppState) -> Reply:
    ((reply,),) = (exchange.replies for exchange in state.chat)
    return reply


# ---------------------------------------------------------------------------------- one reply


def test_a_reply_fills_up_and_ends() -> None:
    text = "naïve 日記, and a rest"
    state = fold([*asked(), *fr.reply(1, text)])
    reply = only(state)
    assert state.chat[0].prompt == "hello"
    assert (reply.text, reply.phase, reply.chars) == (text, "finished", len(text.encode()))
    assert reply.rows == 3 * reply.chars
    assert reply.strength == 2.5
    assert state.reply is None


def test_what_is_said_cannot_drive_the_terminal() -> None:
    evil = "\x1b]0;gotcha\x07\x1b[2J\u202eabc[/red]\x00"
    state = fold([*asked(prompt="a\x1bb"), *fr.reply(1, evil)])
    assert state.chat[0].prompt == "ab"
    assert only(state).text == "]0;gotcha[2Jabc[/red]"


def test_a_reply_is_refused_in_its_own_place() -> None:
    state = fold([*asked(), p.Ack(1, "write", False, "The message is empty.")])
    assert only(state).phase == "failed"
    assert only(state).text == "The message is empty."


def test_chunks_of_replies_that_are_over_are_ignored() -> None:
    state = fold([*asked(), *fr.reply(1, "done")])
    assert reduce(state, p.ReplyChunk(1, "more", [1] * 4), NOW).chat is state.chat
    assert reduce(state, p.ReplyChunk(77, "other", [1] * 5), NOW).chat is state.chat
    assert reduce(state, p.ReplyEnded(77, "cancelled"), NOW).chat is state.chat


def test_a_worker_that_dies_takes_its_reply_with_it() -> None:
    state = fold([*asked(both=True), p.ReplyStarted(1), p.ReplyChunk(1, "hal", [1, 1, 1])])
    state = reduce(state, WorkerEnded(-9, (), False), NOW)
    assert [reply.phase for reply in state.chat[0].replies] == ["lost", "lost"]
    assert state.reply is None
    assert not state.chat[0].can_go_on


def test_an_endless_reply_is_bounded() -> None:
    state = fold([*asked(), *(p.ReplyChunk(1, "x" * 4096, []) for _ in range(20))])
    assert len(only(state).text) == SAID_LIMIT
    assert only(state).chars == 20 * 4096


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.data())
def test_text_cut_anywhere_is_the_same_text(text: str, data: st.DataObject) -> None:
    """Characters arrive byte by byte, in pieces of any size."""
    encoded = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(encoded)), max_size=6)))
    pieces = [encoded[a:b] for a, b in zip([0, *cuts], [*cuts, len(encoded)], strict=True)]
    chunks = [p.ReplyChunk(1, piece.decode("latin-1"), [1] * len(piece)) for piece in pieces]
    state = fold([*asked(), p.ReplyStarted(1), *chunks, p.ReplyEnded(1)])
    assert only(state).text == clean_text(text)


def test_how_much_of_a_long_prompt_was_read_is_known() -> None:
    state = fold([*asked(prompt="日" * 30_000), p.ReplyStarted(1, unread=89_747)])
    assert (state.chat[0].size, state.chat[0].unread) == (90_000, 89_747)
    assert len(state.chat[0].prompt) == SAID_LIMIT
    assert fold([*asked(), p.ReplyStarted(1, unread=10**9)]).chat[0].unread == 5


# -------------------------------------------------------------------------------- going on


def interrupted(text: bytes = "é日".encode()[:4]) -> AppState:
    chunk = p.ReplyChunk(1, text.decode("latin-1"), [1] * len(text))
    return fold([*asked(), p.ReplyStarted(1), chunk, p.ReplyEnded(1, "cancelled", 4, 1.0)])


def test_a_reply_goes_on_in_the_middle_of_a_character() -> None:
    state = interrupted()
    assert (only(state).text, only(state).phase) == ("é", "cancelled")
    state = fold([Asked(p.Continue(id=2))], state)
    assert state.reply is not None and state.reply.phase == "waiting" and state.reply.text == "é"
    rest = "日".encode()[2:].decode("latin-1")
    more = [
        p.ReplyStarted(2, goes_on=True),
        p.ReplyChunk(2, rest + "!", [1, 1]),
        p.ReplyEnded(2, "length", 2, 2.0),
    ]
    state = fold(more, state)
    assert (only(state).text, only(state).phase) == ("é日!", "length")
    assert (only(state).chars, only(state).seconds) == (6, 3.0)
    assert state.chat[0].can_go_on


def test_a_refusal_to_go_on_leaves_the_reply_as_it_was() -> None:
    before = interrupted()
    state = fold([Asked(p.Continue(id=2)), p.Ack(2, "continue", False, "It ended.")], before)
    assert only(state) == only(before)
    assert state.alerts[-1].text == "It ended."


def test_only_what_was_cut_short_goes_on() -> None:
    for state in (
        fold([fr.hello()]),
        fold([*asked(), *fr.reply(1, "whole")]),
        fold(asked()),
        fold([*asked(), p.Ack(1, "write", False, "No.")]),
    ):
        assert fold([Asked(p.Continue(id=2))], state).chat == state.chat


# ------------------------------------------------------------------------------ side by side


def variants(state: AppState) -> list[tuple[str, str, str]]:
    return [(reply.variant, reply.phase, reply.text) for reply in state.chat[-1].replies]


def test_two_answers_fill_up_side_by_side() -> None:
    adapted, raw = list(fr.reply(1, "one")), list(fr.reply(1, "two"))
    raw = [dataclasses.replace(event, variant="raw") for event in raw]  # type: ignore[type-var]
    state = fold([*asked(both=True), *adapted])
    assert variants(state) == [("adapted", "finished", "one"), ("raw", "waiting", "")]
    assert state.reply is not None
    state = fold(raw, state)
    assert variants(state) == [("adapted", "finished", "one"), ("raw", "finished", "two")]


def test_breaking_off_the_first_answer_leaves_no_second() -> None:
    state = fold(
        [*asked(both=True), p.ReplyStarted(1), p.ReplyChunk(1, "o", [1]), p.ReplyEnded(1, "cancelled")]
    )
    assert variants(state) == [("adapted", "cancelled", "o")]
    assert state.chat[0].can_go_on


def test_breaking_off_the_second_answer_leaves_the_first_whole() -> None:
    state = fold([*asked(both=True), *fr.reply(1, "one"), p.ReplyStarted(1, "raw")])
    state = fold([p.ReplyEnded(1, "cancelled", variant="raw")], state)
    assert variants(state) == [("adapted", "finished", "one"), ("raw", "cancelled", "")]
    assert not state.chat[0].can_go_on


def test_a_refused_pair_is_one_refusal() -> None:
    state = fold([*asked(both=True), p.Ack(1, "write", False, "No.")])
    assert variants(state) == [("adapted", "failed", "No.")]


# -------------------------------------------------------------------------- earlier sessions


REMEMBERED = [
    p.Remembered(1.0, "old", "times", over=True),
    p.Remembered(2.0, "what now", "this", "adapted", 2.5, "length", 4, 8, 1, 0.5),
    p.Remembered(2.0, "what now", "that", "raw", beside=True),
]


def test_what_was_said_in_earlier_sessions_is_shown_and_can_be_said_again() -> None:
    state = fold([fr.hello(), *REMEMBERED])
    assert [exchange.prompt for exchange in state.chat] == ["what now"]
    assert variants(state) == [("adapted", "length", "this"), ("raw", "finished", "that")]
    assert state.prompts == ("old", "what now")
    assert state.chat[0].can_go_on


def test_a_worker_that_starts_again_says_nothing_twice() -> None:
    greeting = [WorkerStarted(), fr.hello(), *REMEMBERED]
    once = fold(greeting)
    assert fold(greeting, once).chat == once.chat
    assert fold(greeting, once).prompts == once.prompts
    talked = fold([*greeting, Asked(p.Write(id=1, prompt="new")), *fr.reply(1, "yes")])
    again = fold(greeting, talked)
    assert again.chat == talked.chat
    assert again.prompts == ("old", "what now", "new")


def test_a_new_conversation_keeps_what_can_be_brought_back() -> None:
    state = fold([*asked(), *fr.reply(1, "x"), p.ConversationBegan(NOW)])
    assert state.chat == () and state.prompts == ("hello",)


def test_prompts_are_bounded_and_not_kept_twice() -> None:
    state = fold(
        [event for n in range(PROMPT_LIMIT + 9) for event in (*asked(n, f"p{n // 2}"), *fr.reply(n, "."))]
    )
    assert len(state.prompts) <= PROMPT_LIMIT
    assert len(set(state.prompts)) == len(state.prompts)
    assert len(state.chat) == CHAT_LIMIT
    assert fold(asked(prompt="x" * (PROMPT_TEXT_LIMIT + 1))).prompts == ()


def test_a_recording_shows_who_was_answered() -> None:
    events = list(fr.reply(7, "yes"))
    events[0] = dataclasses.replace(events[0], prompt="really?")  # type: ignore[call-arg]
    state = fold([fr.hello(), *events])
    assert [(e.prompt, e.replies[0].text) for e in state.chat] == [("really?", "yes")]
    more = [p.ReplyStarted(8, goes_on=True), p.ReplyChunk(8, "!", [1]), p.ReplyEnded(8)]
    state = fold([*events[:-1], p.ReplyEnded(7, "length"), *more], fold([fr.hello()]))
    assert [e.replies[0].text for e in state.chat] == ["yes!"]


# ---------------------------------------------------------------------------------- learning


def test_learning_is_what_the_worker_agreed_to() -> None:
    state = fold([fr.hello(), Asked(p.Set(1, "learn_from_chat", True))])
    assert not state.learning
    state = fold([p.Ack(1, "set", True, "Read from now on: /x.")], state)
    assert state.learning
    assert state.alerts[-1].text == "Read from now on: /x."
    refused = fold([Asked(p.Set(2, "learn_from_chat", False)), p.Ack(2, "set", False, "No.")], state)
    assert refused.learning
    assert not fold([Asked(p.Set(2, "learn_from_chat", False)), p.Ack(2, "set")], state).learning
    assert not fold([WorkerStarted()], state).learning


# ------------------------------------------------------------------------- anything at all

IDS = st.integers(0, 3)
NAMES = st.sampled_from(["adapted", "raw", "\x1b[31m", ""])
DATA = st.text(st.characters(max_codepoint=255), max_size=8)
REASONS = st.sampled_from(["finished", "length", "cancelled", "failed", "?"])
EVENTS = st.one_of(
    st.builds(Asked, st.builds(p.Write, IDS, st.text(max_size=5), both=st.booleans(), raw=st.booleans())),
    st.builds(Asked, st.builds(p.Continue, IDS)),
    st.builds(p.ReplyStarted, IDS, NAMES, st.text(max_size=5), goes_on=st.booleans(), unread=st.integers()),
    st.builds(p.ReplyChunk, IDS, DATA, st.lists(st.integers(-5, 9), max_size=4), variant=NAMES),
    st.builds(p.ReplyEnded, IDS, REASONS, seconds=st.floats(), variant=NAMES),
    st.builds(p.Remembered, prompt=st.text(max_size=5), reply=st.text(max_size=5), variant=NAMES,
              reason=REASONS, beside=st.booleans(), over=st.booleans(), goes_on=st.booleans()),
    st.builds(p.ConversationBegan),
    st.builds(p.Ack, IDS, st.just("write"), st.booleans(), st.text(max_size=5)),
    st.sampled_from([fr.hello(), WorkerStarted(), WorkerEnded(-9, (), False)]),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=30))
def test_any_talk_in_any_order_leaves_a_sound_conversation(events: list[p.Message]) -> None:
    state = initial(NOW)
    for event in events:
        state = reduce(state, event, NOW)
        serials = [exchange.serial for exchange in state.chat]
        assert serials == sorted(set(serials))
        assert not any(exchange.open for exchange in state.chat[:-1])
        for exchange in state.chat:
            assert 1 <= len(exchange.replies) <= 2
            assert 0 <= exchange.unread <= exchange.size
            for reply in exchange.replies:
                assert clean_text(reply.text) == reply.text
                assert len(reply.unfinished) < 4
    assert isinstance(state.chat, tuple) and all(isinstance(e, Exchange) for e in state.chat)
