from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from minagi import protocol
from minagi.lines import LineReader
from minagi.protocol import (
    Ack,
    HeldOut,
    Log,
    Metrics,
    Pause,
    ReplyChunk,
    ReplyEnded,
    decode_event,
    encode,
)
from minagi.worker import channel as module
from minagi.worker.channel import Channel


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Ends:
    """Both ends of a channel in one process."""

    def __init__(self) -> None:
        self.clock = Clock()
        read_fd, self.to_worker = os.pipe()
        self.from_worker, write_fd = os.pipe()
        self.fds = [read_fd, self.to_worker, self.from_worker, write_fd]
        self.channel = Channel(read_fd, write_fd, clock=self.clock)
        os.set_blocking(self.from_worker, False)

    def say(self, data: bytes) -> None:
        os.write(self.to_worker, data)

    def heard(self) -> list[protocol.Message | None]:
        data = b""
        while True:
            try:
                data += os.read(self.from_worker, 1 << 20) or b""
            except BlockingIOError:
                break
        return [decode_event(line) for line in data.splitlines()]

    def hang_up(self, fd: int) -> None:
        self.fds.remove(fd)
        os.close(fd)


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    yield both
    for fd in both.fds:
        os.close(fd)


def test_discrete_events_go_at_once_and_in_order(ends: Ends) -> None:
    for step in range(50):
        ends.channel.send(HeldOut(step=step))
    assert [event.step for event in ends.heard() if isinstance(event, HeldOut)] == list(range(50))


@pytest.mark.parametrize(
    ("kind", "interval"),
    [(Metrics, 0.1), (protocol.Memory, 0.5), (protocol.Pool, 0.5), (protocol.Subjects, 1.0)],
)
def test_figures_are_thinned_out_and_the_latest_wins(ends: Ends, kind: type, interval: float) -> None:
    for _ in range(100):
        ends.channel.send(kind())
    last = kind(step=99) if kind is Metrics else kind()
    ends.channel.send(last)
    assert len(ends.heard()) == 1
    ends.channel.poll()
    assert ends.heard() == []
    ends.clock.now += interval + 0.001
    ends.channel.poll()
    assert ends.heard() == [last]


def test_at_most_ten_metrics_a_second(ends: Ends) -> None:
    for _ in range(3000):
        ends.clock.now += 0.001
        ends.channel.send(Metrics())
    assert 29 <= len(ends.heard()) <= 31


def test_the_first_character_goes_at_once_and_others_are_joined(ends: Ends) -> None:
    for character in "abcd":
        ends.channel.send(ReplyChunk(id=3, data=character, rows=[1], loads=2))
    assert ends.heard() == [ReplyChunk(id=3, data="a", rows=[1], loads=2)]
    ends.channel.send(ReplyEnded(id=3))
    assert ends.heard() == [ReplyChunk(id=3, data="bcd", rows=[1, 1, 1], loads=6), ReplyEnded(id=3)]


def test_characters_of_two_replies_are_not_joined(ends: Ends) -> None:
    for number in (1, 2, 2):
        ends.channel.send(ReplyChunk(id=1, data="x", rows=[1]))
        ends.channel.send(ReplyChunk(id=number, data="y", rows=[1]))
    ends.channel.finish()
    chunks = [event for event in ends.heard() if isinstance(event, ReplyChunk)]
    assert "".join(chunk.data for chunk in chunks) == "xyxyxy"
    assert "".join(chunk.data for chunk in chunks if chunk.id == 2) == "yy"


def test_characters_of_two_answers_to_one_prompt_are_not_joined(ends: Ends) -> None:
    for variant in ("adapted", "adapted", "raw"):
        ends.channel.send(ReplyChunk(id=1, data=variant[0], rows=[1], variant=variant))
    ends.channel.finish()
    chunks = [event for event in ends.heard() if isinstance(event, ReplyChunk)]
    assert [(chunk.data, chunk.variant) for chunk in chunks] == [
        ("a", "adapted"), ("a", "adapted"), ("r", "raw")
    ]  # fmt: skip


def test_last_words_are_last(ends: Ends) -> None:
    ends.channel.send(Metrics(step=1))
    ends.channel.send(Metrics(step=2))
    ends.channel.send(protocol.Goodbye())
    ends.channel.finish()
    assert ends.heard() == [Metrics(step=1), Metrics(step=2), protocol.Goodbye()]


@pytest.mark.parametrize("kind", [protocol.Saved, protocol.Reverted])
def test_figures_from_before_a_save_or_a_revert_do_not_come_after_it(ends: Ends, kind: type) -> None:
    ends.channel.send(Metrics(step=1, unsaved_chars=10))
    ends.channel.send(Metrics(step=2, unsaved_chars=20))
    ends.channel.send(kind())
    ends.channel.finish()
    assert ends.heard() == [Metrics(step=1, unsaved_chars=10), Metrics(step=2, unsaved_chars=20), kind()]


def test_finish_sends_what_was_held_back(ends: Ends) -> None:
    ends.channel.send(Metrics(step=1))
    ends.channel.send(Metrics(step=2))
    ends.channel.finish()
    assert ends.heard() == [Metrics(step=1), Metrics(step=2)]


def test_commands_come_whole_however_they_are_cut(ends: Ends) -> None:
    line = encode(protocol.Write(id=4, prompt="dé\n"))
    for byte in line[:-1]:
        ends.say(bytes([byte]))
        assert ends.channel.poll() == []
    ends.say(line[-1:] + encode(Pause(id=5)) + b"\n  \n")
    assert ends.channel.poll() == [protocol.Write(id=4, prompt="dé\n"), Pause(id=5)]


GARBAGE = [
    b"hello\n", b"\x00\xff\n", b"[]\n", b"{}\n", b'{"type": 3}\n', b"[" * 50_000 + b"\n",
    b'{"type": "pause"\n', b"1" * 10_000 + b"\n", b'{"type": "fly"}\n', b'{"type": "metrics", "step": 3}\n',
]  # fmt: skip


@pytest.mark.parametrize("line", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_answered_with_a_sentence(ends: Ends, line: bytes) -> None:
    ends.say(line)
    ends.say(encode(Pause(id=1)))
    assert ends.channel.poll() == [Pause(id=1)]
    ends.channel.poll()
    (answer,) = ends.heard()
    assert isinstance(answer, Log)
    assert answer.level == "warning"
    assert answer.text.endswith((".", ")"))


@pytest.mark.parametrize("body", [{"type": "write", "id": 9, "prompt": 3}, {"type": "fly", "id": 9}])
def test_a_wrong_command_with_an_id_is_refused_by_that_id(ends: Ends, body: dict) -> None:
    ends.say(json.dumps(body).encode() + b"\n")
    assert ends.channel.poll() == []
    ends.channel.poll()
    (answer,) = ends.heard()
    assert isinstance(answer, Ack)
    assert (answer.id, answer.ok) == (9, False)
    assert answer.text


def test_a_flood_of_garbage_gets_one_sentence_a_second(ends: Ends) -> None:
    for _ in range(20):
        ends.say(b"rubbish\n" * 500)
        ends.clock.now += 0.1
        assert ends.channel.poll() == []
    ends.channel.finish()
    logs = ends.heard()
    assert 2 <= len(logs) <= 3
    assert isinstance(logs[1], Log)
    assert "more like it" in logs[1].text


def test_a_flood_of_commands_is_handed_over_in_parts(ends: Ends) -> None:
    os.set_blocking(ends.to_worker, False)
    ends.say(encode(Pause(id=1)) * 2000)
    counts = []
    while got := ends.channel.poll():
        counts.append(len(got))
    assert sum(counts) == 2000
    assert max(counts) == module.COMMANDS_MAX


def test_an_endless_line_is_refused_and_not_kept(ends: Ends) -> None:
    ends.channel._lines = LineReader(10_000)
    for _ in range(10):
        ends.say(b"x" * 50_000)
        assert ends.channel.poll() == []
        assert len(ends.channel._lines._rest) <= 10_000
    ends.say(b"x\n" + encode(Pause(id=1)))
    assert ends.channel.poll() == [Pause(id=1)]
    ends.channel.poll()
    assert "longer than" in ends.heard()[0].text  # type: ignore[union-attr]


def test_end_of_input_is_noticed_after_the_last_command(ends: Ends) -> None:
    ends.say(encode(protocol.Stop(id=1, save=False)))
    ends.hang_up(ends.to_worker)
    assert ends.channel.poll() == [protocol.Stop(id=1, save=False)]
    assert "closed the connection" in ends.channel.closed
    ends.channel.wait(60)
    ends.channel.send(protocol.Goodbye())
    assert ends.heard() == [protocol.Goodbye()], "it may still listen"


def test_a_reader_that_died_is_noticed(ends: Ends) -> None:
    ends.hang_up(ends.from_worker)
    ends.channel.send(HeldOut())
    assert "nobody reads" in ends.channel.closed
    ends.channel.send(HeldOut())
    ends.channel.finish(60)


def test_a_reader_that_stopped_costs_a_bounded_backlog(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOG_MAX", 20_000)
    for step in range(5000):
        ends.channel.send(HeldOut(step=step))
    assert ends.channel._backlog_bytes <= 20_000
    assert not ends.channel.closed
    heard = []
    while more := ends.heard():
        heard += more
        ends.channel.poll()
    steps = [event.step for event in heard if isinstance(event, HeldOut)]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] == 4999
    (told,) = [event for event in heard if isinstance(event, Log)]
    assert told.text.startswith(f"{5000 - len(steps)} events were lost")


def test_finish_gives_up_on_a_reader_that_does_not_read(ends: Ends) -> None:
    ends.channel._clock = lambda: (setattr(ends.clock, "now", ends.clock.now + 0.01), ends.clock.now)[1]
    for _ in range(5000):
        ends.channel.send(HeldOut())
    ends.channel.finish(0.05)
    assert not ends.channel.closed


def test_wait_ends_with_a_command_or_a_signal(ends: Ends) -> None:
    ends.say(encode(Pause(id=1)))
    ends.channel.wait(60)
    assert ends.channel.poll() == [Pause(id=1)]
    wake_read, wake_write = os.pipe()
    os.write(wake_write, b"x")
    woken = Channel(ends.fds[0], ends.fds[-1], wake_fd=wake_read, clock=ends.clock)
    woken.wait(60)
    os.close(wake_read)
    os.close(wake_write)


def test_without_an_input_there_are_no_commands(ends: Ends) -> None:
    assert Channel(None, ends.fds[-1], clock=ends.clock).poll() == []
