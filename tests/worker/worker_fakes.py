"""A trainer without a model and a channel without a process, for the worker's tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from minagi import protocol
from minagi.errors import UsageError, WeightsError
from minagi.protocol import Command, Message


class FakeTrainer:
    """Counts steps of `chunk` characters. `faults` maps a method's name to what it raises, once."""

    def __init__(self, dry_run: bool = False, chunk: int = 100, step_seconds: float = 0.0) -> None:
        self.dry_run, self.chunk, self.step_seconds = dry_run, chunk, step_seconds
        self.steps, self.chars, self.unsaved_chars = 7, 700, 0
        self.calls: list[Any] = []
        self.faults: dict[str, BaseException] = {}
        self.on_step: Callable[[int], None] = lambda steps: None
        self.reply_text = "hello"
        self.closed = False
        self.meanwhile: list[Message] = []
        self.guarded: Callable[[], AbstractContextManager[None]] = nullcontext
        self.phase = "running"
        self.slices = 0
        self.last_words: list[Message] = []

    def _called(self, name: str, *details: Any) -> None:
        self.calls.append((name, *details) if details else name)
        if name in self.faults:
            raise self.faults.pop(name)

    def greet(self) -> list[Message]:
        self._called("greet")
        return [protocol.Hello(model="fake", step=self.steps), protocol.CorpusFound(files=1, chars=1000)]

    def step(self) -> Iterator[Message]:
        self._called("step")
        time.sleep(self.step_seconds)
        self.steps += 1
        self.chars += self.chunk
        self.unsaved_chars += self.chunk
        self.on_step(self.steps)
        yield protocol.Metrics(step=self.steps, chars=self.chars, unsaved_chars=self.unsaved_chars)

    def checkpoint(self, name: str = "", kind: str = "asked") -> list[Message]:
        self._called("checkpoint", name, kind)
        if "save" in self.faults:
            raise self.faults["save"]
        self.unsaved_chars = 0
        return [protocol.Saved(name=name, kind=kind, step=self.steps, chars=self.chars)]

    def news(self) -> list[Message]:
        return [self.meanwhile.pop(0)] if self.meanwhile else []

    def revert(self, to: str = "") -> list[Message]:
        self._called("revert", to)
        if to == "nowhere":
            raise WeightsError("There is no snapshot nowhere.")
        return [protocol.Reverted(snapshot=to or "last")]

    def delete(self, snapshot: str) -> list[Message]:
        self._called("delete", snapshot)
        return [self.snapshots()]

    def evaluate(self) -> Generator[Message, None, None]:
        self._called("evaluate")
        try:
            for _ in range(self.slices):
                self.calls.append("slice")
                yield protocol.Phase(phase="evaluating")
            yield protocol.HeldOut(nats=2.0)
        finally:
            self.calls.append("evaluate closed")

    def snapshots(self) -> protocol.Snapshots:
        self._called("snapshots")
        return protocol.Snapshots(items=[{"id": "a"}])

    def reply(self, command: protocol.Write | protocol.Continue) -> Generator[Message, None, None]:
        prompt = command.prompt if isinstance(command, protocol.Write) else "the last one"
        self._called("reply", prompt)
        if not prompt:
            raise UsageError("There is nothing to answer.")
        yield protocol.ReplyStarted(id=command.id)
        try:
            for character in self.reply_text[: command.chars]:
                self._called("character")
                yield protocol.ReplyChunk(id=command.id, data=character, rows=[2])
            yield protocol.ReplyEnded(id=command.id, chars=len(self.reply_text))
        finally:
            self.calls.append("reply closed")

    def new_chat(self) -> Message:
        self._called("new_chat")
        return protocol.ConversationBegan()

    def probe(self, command: protocol.Probe) -> protocol.Probed:
        self._called("probe")
        return protocol.Probed(id=command.id, data=command.text)

    def set(self, key: str, value: float | bool | str | None) -> str:
        self._called("set", key, value)
        if key == "nonsense":
            raise UsageError("There is no value nonsense to set.")
        return f"{key} is now {value}."

    def conclude(self) -> list[Message]:
        return self.last_words

    def close(self) -> None:
        self._called("close")
        self.closed = True


class FakeChannel:
    """Hands over `script[i]` at the i-th poll; keeps what was sent. Closes when the script is over."""

    def __init__(self, *script: list[Command], closes: bool = True) -> None:
        self.script = list(script)
        self.closes = closes
        self.closed = ""
        self.sent: list[Message] = []
        self.finished = False

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def poll(self) -> list[Command]:
        if self.script:
            return self.script.pop(0)
        if self.closes:
            self.closed = "the script is over"
        return []

    def wait(self, seconds: float) -> None:
        return

    def finish(self) -> None:
        self.finished = True

    def of(self, *kinds: type[Message]) -> list[Any]:
        return [message for message in self.sent if isinstance(message, kinds)]
