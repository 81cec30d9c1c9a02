"""What is kept of a conversation: a history to go on from, and a transcript to learn from.

Both lie in a folder of the weights directory that neither checkpoints nor reverts touch. The history is
lines of the protocol, one exchange each; only its end is read, and one that others damaged is put aside and
never thrown away. The transcript is plain text with the alphabet's markers, and
is read like any other file; only exchanges that ended while learning was on are in it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from minagi.errors import WeightsError
from minagi.protocol import ConversationBegan, ProtocolError, Remembered, decode_event, encode
from minagi.steering import CONTROLS, REPLACEMENT
from minagi.text import alphabet
from minagi.units import size
from minagi.weights import files
from minagi.weights.faults import Missing, spoken

HISTORY_MAX = 2 << 20  # bytes; a longer history loses its older half
OVER_MAX = (
    1 << 20
)  # bytes beyond that which an exchange may add; whatever is longer still, others have written
EARLIER_MAX = 100  # exchanges that are brought back
TEXT_MAX = 1 << 16  # characters kept of one side's words: what no window holds is of no use
HISTORY, TRANSCRIPT = "history.jsonl", "transcript.txt"
_MINE = 0o600  # what is said is nobody else's business
_LEARNT_FROM = ("finished", "length")  # ways a reply ends that make an exchange whole
_PLAIN: dict[int, str | None] = {
    **dict.fromkeys(code for code in CONTROLS if chr(code) not in "\t\n"),
    **dict.fromkeys(range(0xD800, 0xE000), REPLACEMENT),  # bytes that are no UTF-8
}


class ChatRecords:
    """The history of a model's conversations and their transcript, in `folder`.

    With `scratch`, the folder of a dry run, `folder` is only read: the transcript is then a copy. What
    cannot be written costs no reply; `take_complaints` tells it, once.
    """

    def __init__(self, folder: Path, scratch: Path | None = None) -> None:
        self.learning = False
        self.transcript = (folder if scratch is None else scratch) / TRANSCRIPT
        self._folder, self._dry = folder, scratch is not None
        self._complaints: list[str] = []
        self._damaged = False  # the history holds what is not ours
        if self._dry:
            with self._complaining("read the transcript"):
                self._copy(folder / TRANSCRIPT)

    # ------------------------------------------------------------------------------------- history

    def earlier(self) -> list[Remembered]:
        """What was said in earlier sessions, oldest first, as far as it can be read."""
        said: list[Remembered] = []
        began = unread = 0  # the place where the present conversation begins; lines that are none
        with self._complaining("read the chat history"):
            for line in self._lines():
                try:
                    message = decode_event(line)
                except ProtocolError:
                    unread += bool(line.strip())
                    continue
                if isinstance(message, Remembered):
                    _add(said, message, began)
                elif isinstance(message, ConversationBegan):
                    began = len(said)
            self._tell_damage(unread)
        told = [replace(one, goes_on=False, over=place < began) for place, one in enumerate(said)]
        return told[-EARLIER_MAX:]

    def _tell_damage(self, unread: int) -> None:
        path = self._folder / HISTORY
        with suppress(FileNotFoundError):
            large, read = path.stat().st_size, size(HISTORY_MAX)
            if large > HISTORY_MAX + OVER_MAX:
                self._complaints.append(
                    f"The chat history in {path} takes {size(large)}: only its last {read} are read."
                )
        if unread:
            lines = "A line" if unread == 1 else f"{unread:,} lines"
            self._complaints.append(
                f"{lines} of the chat history in {path} cannot be read and stay as they are."
            )
            self._damaged = True

    def keep(self, message: Remembered | ConversationBegan) -> None:
        """Add to the history, unless this is a dry run."""
        if self._dry:
            return
        if isinstance(message, Remembered):
            message = replace(message, prompt=message.prompt[-TEXT_MAX:], reply=message.reply[-TEXT_MAX:])
        with self._complaining("keep the chat history"):
            _make_folder(self._folder)
            path = self._folder / HISTORY
            long = _append(path, encode(message))
            if long > HISTORY_MAX:
                self._shorten(path, self._damaged or long > HISTORY_MAX + OVER_MAX)

    def _lines(self) -> list[bytes]:
        """The end of the history, whole lines."""
        try:
            fd = files.open_regular(self._folder / HISTORY)
        except Missing:
            return []
        with os.fdopen(fd, "rb") as file:
            start = max(0, os.fstat(fd).st_size - HISTORY_MAX)
            file.seek(start)
            lines = file.read(HISTORY_MAX).splitlines()
        return lines[1:] if start else lines

    def _shorten(self, path: Path, aside: bool) -> None:
        """Leave the newer half; with `aside` the whole of it stays under another name."""
        data = b"\n".join(self._lines()) + b"\n"
        cut = data.find(b"\n", len(data) // 2) + 1
        newer = data[cut:] or data[data.rfind(b"\n", 0, -1) + 1 :]  # at least the last
        draft = path.with_suffix(".draft")
        files.remove_tree(draft)
        files.write_file(draft, [newer])
        draft.chmod(_MINE)
        if aside:
            number = next(n for n in count(1) if not path.with_name(f"{HISTORY}.{n}").exists())
            kept = path.with_name(f"{HISTORY}.{number}")
            files.rename(path, kept)
            self._damaged = False
            self._complaints.append(
                f"The chat history was put aside as {kept}, and goes on without its older part."
            )
        files.rename(draft, path)

    # ---------------------------------------------------------------------------------- transcript

    def learn(self, exchange: Remembered, before: Remembered | None = None) -> None:
        """Add a whole exchange to the transcript, if learning is on.

        `before` is the same exchange as it stood when it was cut short; where it is the last thing in the
        transcript, the whole takes its place.
        """
        if not self.learning or exchange.reason not in _LEARNT_FROM:
            return
        with self._complaining("keep the transcript"):
            _make_folder(self.transcript.parent)
            _append(self.transcript, as_text(exchange), b"" if before is None else as_text(before))

    def _copy(self, source: Path) -> None:
        try:
            fd = files.open_regular(source)
        except Missing:
            return
        with os.fdopen(fd, "rb") as file:
            self.transcript.parent.mkdir(parents=True, exist_ok=True)
            with self.transcript.open("wb") as target:
                shutil.copyfileobj(file, target)

    # ---------------------------------------------------------------------------------- complaints

    def take_complaints(self) -> list[str]:
        """Sentences on what could not be read or written since this was last asked."""
        complaints, self._complaints = self._complaints, []
        return complaints

    @contextmanager
    def _complaining(self, action: str) -> Iterator[None]:
        try:
            with spoken(action, self._folder):
                yield
        except WeightsError as error:
            if str(error) not in self._complaints:
                self._complaints.append(str(error))


def as_text(exchange: Remembered) -> bytes:
    """An exchange as the model is to read it: UTF-8, no control characters, the sides marked.

    What a person typed cannot hold markers: one that was typed is broken open. What the model wrote may.
    """
    prompt = alphabet.broken(_plain(exchange.prompt))
    return b"<user>%b</user><bot>%b</bot>\n" % (prompt, _plain(exchange.reply))


def _plain(text: str) -> bytes:
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_PLAIN).encode()


def _add(said: list[Remembered], message: Remembered, began: int) -> None:
    """A reply that went on stands in the place of its beginning, in the same conversation."""
    if message.goes_on:
        for place in range(len(said) - 1, began - 1, -1):
            if not said[place].beside:
                said[place] = message
                return
    said.append(message)


def _make_folder(path: Path) -> None:
    files.make_folders(path.parent)
    files.make_folder(path)


def _append(path: Path, data: bytes, instead_of: bytes = b"") -> int:
    """Write `data` at a file's end, in the place of `instead_of` if it ends so; the file's new size.

    A line that an earlier crash left unfinished is ended first. The file is made if there is none; links
    and whatever else is no plain file are refused.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MINE))
    os.close(files.open_regular(path))
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        end = os.fstat(fd).st_size
        if instead_of and os.pread(fd, len(instead_of), max(0, end - len(instead_of))) == instead_of:
            end -= len(instead_of)
        elif end and os.pread(fd, 1, end - 1) != b"\n":
            data = b"\n" + data
        os.lseek(fd, end, os.SEEK_SET)
        files.write_all(fd, data)
        os.ftruncate(fd, end + len(data))
        return end + len(data)
    finally:
        os.close(fd)
