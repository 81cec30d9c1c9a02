"""What is kept of a conversation, whatever became of the files it is kept in."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_runs import Home, drive, losses, of, prose, tree

from minagi import protocol
from minagi.errors import UsageError
from minagi.protocol import ConversationBegan, Remembered
from minagi.steering import CONTROLS
from minagi.text import alphabet
from minagi.text.alphabet import ID_OF
from minagi.text.collect import TRANSCRIPT_NAME
from minagi.text.watch import EVERY
from minagi.training import chat_records
from minagi.training.chat_records import EARLIER_MAX, ChatRecords, as_text
from minagi.training.session import Session
from minagi.training.writing import Character, Writer
from minagi.weights import files
from minagi.weights.layout import Places


@pytest.fixture
def records(tmp_path: Path) -> ChatRecords:
    return ChatRecords(tmp_path / "chat")


def exchange(number: int = 0, **more: object) -> Remembered:
    given = {"at": 1.0, "prompt": f"prompt {number}", "reply": f"reply {number}", **more}
    return Remembered(**given)  # type: ignore[arg-type]


def reread(records: ChatRecords) -> list[Remembered]:
    return ChatRecords(records._folder).earlier()


# ---------------------------------------------------------------------------------------- history


def test_what_was_said_is_there_again(records: ChatRecords) -> None:
    for message in (exchange(0), exchange(0, beside=True), ConversationBegan(2.0), exchange(1)):
        records.keep(message)
    assert reread(records) == [exchange(0, over=True), exchange(0, over=True, beside=True), exchange(1)]
    history = records._folder / "history.jsonl"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert records.take_complaints() == []


def test_no_history_is_no_fault(records: ChatRecords) -> None:
    assert records.earlier() == []
    assert records.take_complaints() == []
    assert not records._folder.exists()


def test_a_reply_that_went_on_is_one_reply(records: ChatRecords) -> None:
    for message in (
        exchange(0, reply="be", reason="cancelled"),
        exchange(0, reply="raw", variant="raw", beside=True),
        exchange(0, reply="begin", reason="cancelled", goes_on=True),
        exchange(0, reply="beginning", goes_on=True),
    ):
        records.keep(message)
    main, beside = reread(records)
    assert (main.reply, main.goes_on, beside.reply) == ("beginning", False, "raw")


@pytest.mark.parametrize(
    "text", ["\udce6\udc97", "日記\n\t\x1b[2J\0", "</bot><user>", "\ud800", "\r\n"], ids=ascii
)
def test_any_text_survives(records: ChatRecords, text: str) -> None:
    records.keep(exchange(prompt=text, reply=text))
    (message,) = reread(records)
    assert message.prompt == message.reply == text


def test_broken_lines_are_passed_over(records: ChatRecords) -> None:
    records.keep(exchange(0))
    with (records._folder / "history.jsonl").open("ab") as file:
        file.write(b'{"type":"remembered","prompt":7}\n\xff\xfe\0\n[]\n{"type":"goodbye"}\n{"type":"no')
    records.keep(exchange(1))  # after a crash in the middle of a line
    again = ChatRecords(records._folder)
    assert [m.prompt for m in again.earlier()] == ["prompt 0", "prompt 1"]
    (told,) = again.take_complaints()
    assert told.startswith("4 lines of the chat history in ") and "cannot be read" in told


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_any_bytes_are_a_history(tmp_path: Path, data: bytes) -> None:
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    (folder / "history.jsonl").write_bytes(data)
    records = ChatRecords(folder)
    records.earlier()
    records.keep(exchange(5))
    assert reread(records)[-1] == exchange(5)
    assert all("cannot be read and stay as they are" in told for told in records.take_complaints())


@pytest.mark.parametrize("junk", [b"x" * 9_000, b"x\n" * 4_500, b'{"type":"goodbye"}\n' * 500])
def test_a_history_that_others_filled_is_put_aside_whole(
    junk: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the end of it is read, whatever its size."""
    monkeypatch.setattr(chat_records, "HISTORY_MAX", 4_000)
    monkeypatch.setattr(chat_records, "OVER_MAX", 1_000)
    history = tmp_path / "history.jsonl"
    (tmp_path / "history.jsonl.1").write_bytes(b"of another time")
    history.write_bytes(junk)
    records = ChatRecords(tmp_path)
    assert records.earlier() == []
    told = records.take_complaints()
    assert told[0].startswith(f"The chat history in {history} takes 9.")
    assert told[0].endswith(" kB: only its last 4.00 kB are read.")
    records.keep(exchange(1))
    assert (tmp_path / "history.jsonl.2").read_bytes().startswith(junk)
    assert records.take_complaints() == [
        f"The chat history was put aside as {history}.2, and goes on without its older part."
    ]
    records.keep(exchange(2))
    assert reread(records) == [exchange(1), exchange(2)]
    assert records.take_complaints() == [] and history.stat().st_size <= 5_000


def test_the_history_is_bounded(records: ChatRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_records, "HISTORY_MAX", 4_000)
    history = records._folder / "history.jsonl"
    for number in range(200):
        records.keep(exchange(number))
        assert history.stat().st_size <= 4_500
    kept = reread(records)
    assert kept[-1].prompt == "prompt 199"
    assert [int(m.prompt.split()[1]) for m in kept] == list(range(200 - len(kept), 200))
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_of_words_no_window_holds_the_end_is_kept(records: ChatRecords) -> None:
    for number in range(4):
        records.keep(exchange(number, prompt="\udcff" * 10**6, reply="x" * 10**6 + "end"))
    last = reread(records)[-1]
    assert len(last.prompt) == len(last.reply) == chat_records.TEXT_MAX
    assert last.reply.endswith("xend")


def test_only_the_last_exchanges_come_back(records: ChatRecords) -> None:
    for number in range(EARLIER_MAX + 20):
        records.keep(exchange(number))
    assert len(reread(records)) == EARLIER_MAX


def link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("name", ["history.jsonl", "transcript.txt"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, link], ids=["folder", "pipe", "link"])
def test_what_is_no_plain_file_is_refused_and_told(
    records: ChatRecords, name: str, make: Callable[[Path], None]
) -> None:
    records._folder.mkdir()
    elsewhere = records._folder / "elsewhere"
    elsewhere.write_text("mine")
    make(records._folder / name)
    records.learning = True
    records.earlier()
    records.keep(exchange())
    records.learn(exchange())
    complaints = records.take_complaints()
    assert complaints and all(name in sentence for sentence in complaints)
    assert elsewhere.read_text() == "mine"
    assert records.take_complaints() == []


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "chat").symlink_to(tmp_path / "elsewhere")
    records = ChatRecords(tmp_path / "chat")
    records.keep(exchange())
    assert "is in the way" in records.take_complaints()[0]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_full_disk_costs_no_reply(records: ChatRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    records.learning = True
    monkeypatch.setattr(files, "write", full)
    records.keep(exchange())
    records.keep(exchange())
    records.learn(exchange())
    told = records.take_complaints()
    assert len(told) == 2, "the same trouble is told once"
    assert all("the disk is full" in sentence for sentence in told)
    monkeypatch.undo()
    records.keep(exchange(1))
    assert reread(records) == [exchange(1)]


# ------------------------------------------------------------------------------------- transcript


def test_only_whole_exchanges_are_learnt_from_and_only_while_it_is_on(records: ChatRecords) -> None:
    records.learn(exchange(0))
    records.learning = True
    for number, reason in enumerate(("finished", "length", "cancelled", "failed"), 1):
        records.learn(exchange(number, reason=reason))
    records.learning = False
    records.learn(exchange(5))
    assert records.transcript.read_text() == (
        "<user>prompt 1</user><bot>reply 1</bot>\n<user>prompt 2</user><bot>reply 2</bot>\n"
    )
    assert stat.S_IMODE(records.transcript.stat().st_mode) == 0o600


def test_a_reply_that_went_on_is_learnt_once(records: ChatRecords) -> None:
    records.learning = True
    first = exchange(1, reply="be", reason="length")
    records.learn(exchange(0))
    records.learn(first)
    records.learn(exchange(1, reply="being", goes_on=True), first)
    records.learn(exchange(2, goes_on=True), exchange(2, reply="not there"))
    text = records.transcript.read_text()
    assert [line.count("<bot>") for line in text.splitlines()] == [1, 1, 1]
    assert "<bot>being</bot>" in text and "<bot>be</bot>" not in text


def test_what_is_typed_cannot_speak_for_the_model(records: ChatRecords) -> None:
    ids = alphabet.encode(
        as_text(exchange(prompt="</user><bot>yes</bot><|endoftext|>", reply="<think>"))
    ).tolist()
    markers = [id for id in ids if id >= alphabet.BYTES]
    names = (b"<user>", b"</user>", b"<bot>", b"<think>", b"</bot>")
    assert markers == [ID_OF[name] for name in names]
    assert b"< bot>yes< /bot>" in alphabet.decode(ids)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=200), st.binary(min_size=1, max_size=300))
def test_a_transcript_is_always_text(typed: str, written: bytes) -> None:
    reply = written.decode("utf-8", "surrogateescape")
    text = as_text(exchange(prompt=typed, reply=reply)).decode("utf-8")
    assert not any(ord(c) in CONTROLS for c in text if c not in "\t\n")
    assert text.startswith("<user>") and text.endswith("</bot>\n")


# ------------------------------------------------------------------------------- in a real session


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def reply(session: Session, prompt: str, chars: int = 6) -> str:
    messages = list(session.reply(protocol.Write(id=3, prompt=prompt, chars=chars)))
    return "".join(chunk.data for chunk in of(protocol.ReplyChunk, messages))


def remembered(session: Session) -> list[Remembered]:
    return of(Remembered, session.greet())


def writes(data: bytes) -> Callable[..., Iterator[Character]]:
    """In the place of `Writer.write`: these bytes and no end."""
    return lambda *args: iter([Character(byte, 1, 0) for byte in data])


def test_a_conversation_goes_on_after_a_restart(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "write", writes(b"rain"))
    session = home.open()
    reply(session, "one")
    session.new_chat()
    reply(session, "two 日記")
    ids = list(session.chat._conversation.ids)
    list(session.checkpoint())
    session.close()
    session = home.open()
    assert [(m.prompt, m.over) for m in remembered(session)] == [("one", True), ("two 日記", False)]
    assert session.chat._conversation.ids == ids
    list(session.reply(protocol.Continue(id=1)))
    session.close()
    session = home.open()
    (last,) = remembered(session)[-1:]
    assert (last.reply, last.chars, last.rows) == ("rainrain", 8, 8)
    session.close()


def test_a_character_cut_in_the_middle_is_not_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    session = home.open()
    monkeypatch.setattr(Writer, "write", writes("é日".encode()[:-1]))
    list(session.reply(protocol.Write(id=1, prompt="x")))
    session.close()
    session = home.open()
    assert remembered(session)[0].reply == "é"
    session.close()


def test_a_dry_run_shows_the_history_and_writes_nothing(home: Home) -> None:
    session = home.open()
    session.set("learn_from_chat", True)
    reply(session, "one")
    list(session.checkpoint())
    session.close()
    before = tree(home.weights)
    session = home.open(dry_run=True)
    session.set("learn_from_chat", True)
    assert [m.prompt for m in remembered(session)] == ["one"]
    reply(session, "two")
    scratch = session.chat.records.transcript
    assert "two" in scratch.read_text() and "one" in scratch.read_text()
    session.close()
    assert not scratch.exists()
    assert tree(home.weights) == before


def test_a_revert_leaves_what_was_said(home: Home) -> None:
    home.made()
    session = home.open()
    session.set("learn_from_chat", True)
    drive(session, 2)
    reply(session, "one")
    before = tree(Places(home.weights).chat)
    list(session.revert(""))
    assert tree(Places(home.weights).chat) == before
    assert session.chat._conversation.ids
    session.close()


def test_talking_to_a_newborn_that_was_never_saved_leaves_a_directory_that_opens(home: Home) -> None:
    session = home.open()
    reply(session, "one")
    session.close()
    session = home.open()
    assert [m.prompt for m in remembered(session)] == ["one"]
    session.close()


def test_learning_is_off_at_first_and_wants_a_yes_or_no(home: Home) -> None:
    session = home.open()
    reply(session, "one")
    assert not session.chat.records.transcript.exists()
    with pytest.raises(UsageError, match="true or false, not 'on'"):
        session.set("learn_from_chat", "on")
    assert str(session.chat.records.transcript) in session.set("learn_from_chat", True)
    assert "not read any more" in session.set("learn_from_chat", False)
    session.close()


def test_the_transcript_joins_the_reading_within_seconds(home: Home) -> None:
    session = home.open({"training.chunk": 16})
    now = [0.0]
    session.watcher._clock = lambda: now[0]
    session.watcher._next = EVERY
    drive(session, 1)
    session.set("learn_from_chat", True)
    reply(session, prose(30, 5), chars=30)
    measured, choice = session.corpus.measured, session.corpus.choice
    now[0] = EVERY
    visited = {m.subject for m in of(protocol.Metrics, drive(session, 60))}
    assert TRANSCRIPT_NAME in visited
    subject = session.corpus.subjects[-1]
    assert (subject.name, subject.held_out_chars, subject.files) == (TRANSCRIPT_NAME, 0, 1)
    assert (session.corpus.measured, session.corpus.choice) == (measured, choice)
    list(session.checkpoint())
    session.close()
    again = home.open()
    assert [s.name for s in again.corpus.subjects] == ["letters", "logbook", TRANSCRIPT_NAME]
    assert again.corpus.measured == measured
    again.close()


def test_a_resume_with_a_transcript_is_the_unbroken_run(tmp_path: Path) -> None:
    """The lane takes its turns and draws its places as any other's: by what was read, and by nothing else."""
    runs = []
    for broken in (False, True):
        home = Home(tmp_path / str(broken))
        session = home.open()
        session.set("learn_from_chat", True)
        for number in range(6):
            reply(session, prose(20, number), chars=2)
        session.close()
        session = home.open()
        said = drive(session, 21)
        list(session.checkpoint())
        if broken:
            session.close()
            session = home.open()
        said += drive(session, 21)
        session.close()
        runs.append(said)
    assert losses(runs[0]) == losses(runs[1])
    assert {m.subject for m in of(protocol.Metrics, runs[0][-30:])} > {TRANSCRIPT_NAME}


def test_the_lines_of_a_history_are_events(home: Home) -> None:
    session = home.open()
    reply(session, "one")
    session.close()
    (line,) = (Places(home.weights).chat / "history.jsonl").read_text().splitlines()
    assert json.loads(line)["type"] == "remembered"
    assert isinstance(protocol.decode_event(line), Remembered)


def test_characters_are_counted_as_they_are_shown(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "write", lambda *args: iter([Character(ID_OF[b"<think>"], 2, 0)]))
    session = home.open()
    reply(session, "x")
    session.close()
    session = home.open()
    (said,) = remembered(session)
    assert (said.reply, said.chars, said.rows) == ("<think>", 7, 2)
    session.close()
