"""Talking with the model while it learns. Replies leave no mark on what it knows."""

from __future__ import annotations

import codecs
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from minagi import protocol
from minagi.config import Decoding
from minagi.errors import UsageError
from minagi.protocol import Message, Remembered
from minagi.text import alphabet
from minagi.training.chat_records import ChatRecords
from minagi.training.engine import Engine
from minagi.training.writing import BOT_END, REPLY_ENDS, Character, Conversation, Writer, bytes_of

_MARKERS = 2  # after a prompt, that the window must hold too


@dataclass
class Reply:
    """One answer, as far as it is written."""

    prompt: str
    variant: str  # adapted | raw
    strength: float  # of the suppression
    kept: bool = True  # by history and conversation
    beside: bool = False  # a second answer, which the conversation does not hold
    ids: list[int] = field(default_factory=list)
    rows: int = 0
    loads: int = 0
    seconds: float = 0.0

    def take(self, character: Character) -> None:
        """One more character of it."""
        self.ids.append(character.id)
        self.rows += character.rows
        self.loads += character.loads

    @property
    def ended(self) -> bool:
        """The model came to its own end."""
        return bool(self.ids) and self.ids[-1] in REPLY_ENDS

    def remembered(self, reason: str, goes_on: bool) -> Remembered:
        """What is kept of it. Of a character that was cut in the middle, nothing is."""
        data = alphabet.decode([id for id in self.ids if id not in REPLY_ENDS])
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        text = decoder.decode(data, final=self.ended)
        return Remembered(
            time.time(), self.prompt, text, self.variant, self.strength, reason, len(data), self.rows,
            self.loads, self.seconds, goes_on, self.beside,
        )  # fmt: skip


class Chat:
    """The conversation of a run, going on from what `records` remember."""

    def __init__(self, engine: Engine, decoding: Decoding, records: ChatRecords) -> None:
        self.engine, self.decoding, self.records = engine, decoding, records
        self._earlier = records.earlier()
        self._conversation = Conversation()
        self._last: Reply | None = None  # that of the conversation
        self._last_kept: Remembered | None = None
        for message in self._earlier:
            self._resume(message)

    def _resume(self, message: Remembered) -> None:
        """Take up an exchange of an earlier session."""
        if message.over or message.beside:
            return
        ids = alphabet.encode(bytes_of(message.reply)).tolist()
        self._conversation.ask(alphabet.encode(bytes_of(message.prompt), markers=False))
        self._conversation.answered([*ids, BOT_END] if message.reason == "finished" else ids)
        self._last = Reply(
            message.prompt, message.variant, max(0.0, message.strength), ids=ids, rows=message.rows,
            loads=message.loads, seconds=message.seconds,
        )  # fmt: skip
        self._last_kept = message

    def forget(self) -> Message:
        """Begin a new conversation."""
        self._conversation, self._last = Conversation(), None
        began = protocol.ConversationBegan(time.time())
        self.records.keep(began)
        return began

    def learn(self, on: bool) -> str:
        """Read finished exchanges from now on, or no more; what that means, as a sentence."""
        self.records.learning = on
        if on:
            return (
                f"Finished exchanges are kept in {self.records.transcript} and read like a file from now on."
            )
        return "New exchanges are not read any more. Earlier ones stay in the transcript."

    def greet(self) -> Iterator[Message]:
        """What was said in earlier sessions."""
        yield from self._earlier
        yield from self._complaints()

    # ------------------------------------------------------------------------------------ replies

    def reply(
        self, command: protocol.Write | protocol.Continue, window: int
    ) -> Generator[Message, None, None]:
        """Answer `command`; closing the generator cancels. What was written stays in the conversation."""
        if isinstance(command, protocol.Continue):
            yield from self._go_on(command, window)
            return
        words = bytes_of(command.prompt)
        if not words:
            raise UsageError("There is nothing to answer: the message is empty.")
        strength = self.decoding.adapt_strength if command.strength is None else command.strength
        raw = Reply(command.prompt, "raw", 0.0, kept=command.chat, beside=command.both)
        adapted = Reply(command.prompt, "adapted", strength, kept=command.chat)
        reply = raw if command.raw and not command.both else adapted
        if command.chat:
            prompt = self._conversation.ask(alphabet.encode(words, markers=False))
            self._last = reply
        else:
            prompt = alphabet.encode(words).tolist()
        yield from self._write(command, reply, prompt, window)
        if command.both:
            yield from self._write(command, raw, prompt, window)

    def _go_on(self, command: protocol.Continue, window: int) -> Generator[Message, None, None]:
        if self._last is None:
            raise UsageError("There is no reply to go on with yet.")
        if not self._conversation.cut_short:
            raise UsageError("The last reply came to its own end: there is nothing to go on with.")
        yield from self._write(command, self._last, self._conversation.go_on(), window)

    def _write(
        self, command: protocol.Write | protocol.Continue, reply: Reply, prompt: list[int], window: int
    ) -> Generator[Message, None, None]:
        """Write at most `command.chars` characters more of `reply` after `prompt`."""
        writer = Writer(self.engine, window, reply.strength, self.decoding)
        before, began = len(reply.ids), time.monotonic()
        goes_on = isinstance(command, protocol.Continue)
        unread = 0 if goes_on else max(0, len(bytes_of(reply.prompt)) + _MARKERS + 1 - window)
        reason = "failed"
        try:
            yield protocol.ReplyStarted(
                command.id, reply.variant, reply.prompt, reply.strength, unread, goes_on
            )
            for character in writer.write(prompt, command.chars, REPLY_ENDS):
                reply.take(character)
                if character.id not in REPLY_ENDS:
                    data = alphabet.decode([character.id]).decode("latin-1")
                    rows = [character.rows]
                    yield protocol.ReplyChunk(command.id, data, rows, character.loads, reply.variant)
            reason = "finished" if reply.ended else "length"
        except GeneratorExit:
            reason = "cancelled"
            raise
        finally:
            seconds = time.monotonic() - began
            reply.seconds += seconds
            self._keep(reply, reply.ids[before:], reason, goes_on)
        yield from self._complaints()
        yield protocol.ReplyEnded(command.id, reason, len(reply.ids) - before, seconds, reply.variant)

    def _keep(self, reply: Reply, written: list[int], reason: str, goes_on: bool) -> None:
        """A reply is over, for now: conversation, history and transcript take it in."""
        if not reply.kept:
            return
        exchange = reply.remembered(reason, goes_on)
        self.records.keep(exchange)
        if reply.beside:
            return
        self._conversation.answered(written)
        self.records.learn(exchange, self._last_kept if goes_on else None)
        self._last_kept = exchange

    def _complaints(self) -> Iterator[Message]:
        for sentence in self.records.take_complaints():
            yield protocol.Log(time.time(), "warning", "chat", sentence)
