"""The order of reading: one lane a subject, lanes taking turns, visit after visit, window by window.

A VISIT opens a file of the lane at some place and reads `passage` characters of it, the cursor going
on by `chunk` a step. A STEP's window is what ends at the cursor. A TOUR of a lane visits all of its text
once, in strides that soon have been everywhere: drawn anew, visits would leave a third of it unread for
as long. Where a tour begins and how it strides is drawn from (seed, lane, characters read so far), so a
run that resumes goes on into text it would have come to, and does not replay the tape from its beginning.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from minagi.errors import MinagiError
from minagi.text import alphabet
from minagi.text.corpus import Corpus, TextGoneError, TextSpan, read_span
from minagi.text.rounds import Rounds, Tours

GOLDEN = (5**0.5 - 1) / 2
MANY = 8  # visits to a span from which its cuts move from tour to tour


@dataclass(frozen=True)
class WindowOfText:
    """One step's text. `ids[:-1]` are the inputs and `ids[1:]` what follows each of them."""

    subject: str
    path: Path
    ids: alphabet.Ids  # (2 .. window + 1,), a view of the visit
    new_chars: int  # of it, those that this visit had not read yet
    times: int = 0  # how often the whole lane was read before
    again: int = 0  # how often in this round through all lanes
    begins_round: bool = False


@dataclass
class _Lane:
    """A subject's text, cut into visits of `unit` characters."""

    name: str
    spans: list[TextSpan]
    unit: int = 0
    upto: list[int] = field(default_factory=list)  # running sum of the spans' visits

    def cut(self, unit: int) -> None:
        """Cut into visits of `unit`."""
        if unit != self.unit:
            self.unit = unit
            self.upto = list(itertools.accumulate(_visits(span.chars, unit) for span in self.spans))

    @property
    def visits(self) -> int:
        """How many visits read all of it."""
        return self.upto[-1]

    def at(self, visit: int, aside: float) -> tuple[TextSpan, int]:
        """The span that a visit reads, and where in it to begin. `aside`, a share of a visit, moves the cuts
        of a long span; a short one's lie evenly, so that its ends are read as often as its middle."""
        place = bisect.bisect_right(self.upto, visit)
        span, number = self.spans[place], visit - (self.upto[place - 1] if place else 0)
        count, room = _visits(span.chars, self.unit), max(0, span.chars - self.unit)
        if count >= MANY:
            return span, min(max(0, int((number - aside) * self.unit)), room)
        return span, room * number // max(1, count - 1)


def _visits(chars: int, unit: int) -> int:
    """Visits that read all of a span; one more where its cuts may move."""
    whole = -(-chars // unit)
    return whole + 1 if whole >= MANY else max(1, whole)


@dataclass
class _Tour:
    """A lane being read through once: its n-th visit is number start + n · stride in the text's own order."""

    begun: int  # characters read in the model's life when it began
    unit: int  # characters of a visit then
    visits: int
    done: int = 0
    before: int = 0  # whole tours of the lane before it

    @property
    def over(self) -> bool:
        return self.done >= self.visits

    def goes_on(self, visits: int) -> bool:
        """Whether it is not over, and the lane not quite another one by now."""
        return not self.over and 0.9 < visits / self.visits < 1.1


def _stride(visits: int) -> int:
    """A step width that comes by all of `visits` places: near the golden section, so that any number of
    steps in a row lies spread over all of them."""
    stride = max(1, round(visits * GOLDEN))
    while math.gcd(stride, visits) != 1:
        stride += 1
    return stride


@dataclass
class _Visit:
    """The text open now, read and encoded once. `cursor` counts inputs read, so it ends at len(ids) - 1."""

    lane: str
    span: TextSpan  # just what the visit reads
    ids: alphabet.Ids
    cursor: int = 0
    times: int = 0
    again: int = 0


class LaneReader:
    """Gives windows for ever. Reads the corpus's training text and never its held-out text.

    `passage` is the length of a visit in characters, `seed` the shuffle seed.
    """

    def __init__(self, corpus: Corpus, passage: int, seed: int) -> None:
        self._passage = passage
        self._seed = seed
        self._lanes: list[_Lane] = []
        self._turn = 0  # index of the lane whose visit is next
        self._visit: _Visit | None = None
        self._tours: dict[str, _Tour] = {}  # by lane
        self._rounds = Rounds()
        self._first: deque[Path] = deque()  # changed files, to be visited before all else
        self._dropped: list[str] = []
        self.replace_corpus(corpus)

    def next_window(self, window: int, chunk: int, chars_read: int) -> WindowOfText:
        """The next step's text, of at most `window` inputs, the cursor going on by `chunk` at most.

        The first window of a visit is a full one, unless the text is shorter. A chunk larger than the
        window counts as the window: nothing is read past unseen. `chars_read` are the characters
        read in the model's life. Raises MinagiError when nothing is left to read.
        """
        rounds = self._rounds.number
        visit = self._visit or self._open(window, chars_read)
        begins = self._rounds.number > rounds
        last = len(visit.ids) - 1
        step = min(window, last) if visit.cursor == 0 else min(chunk, window, last - visit.cursor)
        visit.cursor += step
        ids = visit.ids[max(0, visit.cursor - window) : visit.cursor + 1]
        self._visit = visit if visit.cursor < last else None
        return WindowOfText(visit.lane, visit.span.path, ids, step, visit.times, visit.again, begins)

    def replace_corpus(self, corpus: Corpus, first: Iterable[Path] = ()) -> None:
        """Read `corpus` from the next visit on, beginning with the files in `first`; lanes keep turns."""
        turn = self._lanes[self._turn].name if self._lanes else ""
        self._lanes = [
            _Lane(subject.name, list(subject.train)) for subject in corpus.subjects if subject.train
        ]
        names = [lane.name for lane in self._lanes]
        self._turn = names.index(turn) if turn in names else 0
        known = {span.path for lane in self._lanes for span in lane.spans}
        wanted = [*self._first, *first]
        self._first = deque(path for path in dict.fromkeys(wanted) if path in known)

    def take_dropped(self) -> list[str]:
        """Sentences on the files that left their lane since this was last asked."""
        dropped, self._dropped = self._dropped, []
        return dropped

    # ------------------------------------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Where reading stands, as JSON. A reader restored from it gives exactly what this one would."""
        visit = self._visit
        return {
            "turn": self._lanes[self._turn].name if self._lanes else "",
            "first": [str(path) for path in self._first],
            "tours": {lane: list(astuple(tour)) for lane, tour in self._tours.items()},
            "round": self._rounds.state(),
            "visit": None
            if visit is None
            else {
                "lane": visit.lane,
                "path": str(visit.span.path),
                "start": visit.span.start,
                "stop": visit.span.stop,
                "cursor": visit.cursor,
                "times": visit.times,
                "again": visit.again,
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken. What is not there any more, or makes no sense, is left out."""
        names = [lane.name for lane in self._lanes]
        self._turn = names.index(state["turn"]) if state.get("turn") in names else 0
        known = {str(span.path): span.path for lane in self._lanes for span in lane.spans}
        first = state.get("first")
        saved = [path for path in first if isinstance(path, str)] if isinstance(first, list) else []
        self._first = deque(known[path] for path in saved if path in known)
        tours = state.get("tours")
        self._tours = {
            lane: _Tour(*numbers)
            for lane, numbers in (tours.items() if isinstance(tours, dict) else ())
            if lane in names and _is_tour(numbers)
        }
        self._rounds.restore(state.get("round"), self._all_toured())
        try:
            self._visit = self._reopen(**state["visit"])
        except (KeyError, TypeError, ValueError, OverflowError, TextGoneError):
            self._visit = None

    def _reopen(
        self, lane: str, path: str, start: int, stop: int, cursor: int, times: int = 0, again: int = 0
    ) -> _Visit:
        """The saved visit. Raises ValueError when its text is not to be read any more, or else."""
        span = TextSpan(Path(path), int(start), int(stop))
        spans = next((known.spans for known in self._lanes if known.name == lane), [])
        if not any(_within(span, whole) for whole in spans):
            raise ValueError("held out now, or no longer among the paths")
        ids = alphabet.encode(read_span(span))
        if not 0 < int(cursor) < len(ids) - 1:
            raise ValueError("another text than it was")
        return _Visit(lane, span, ids, int(cursor), max(0, int(times)), max(0, int(again)))

    # ----------------------------------------------------------------------------------------- visits

    def _open(self, window: int, chars_read: int) -> _Visit:
        """Begin a visit: of a changed file if there is one, else of the lane whose turn it is."""
        while self._lanes:
            lane, span, wanted, times = self._choose(window, chars_read)
            length = min(span.chars, max(self._passage, window) + 1)
            offset = min(max(0, wanted), span.chars - length)
            part = TextSpan(span.path, span.start + offset, span.start + offset + length)
            try:
                ids = alphabet.encode(read_span(part))
            except TextGoneError as error:
                self._drop({span.path}, str(error))
                continue
            if len(ids) < 2:
                self._drop({span.path}, f"{span.path.name} holds a single marker and no text.")
                continue
            return _Visit(lane.name, part, ids, times=times, again=self._rounds.again(lane.name, times))
        raise MinagiError(
            "Nothing is left to read: every file vanished or can no longer be read. "
            "Bring the files back, or name another folder, and start again."
        )

    def _choose(self, window: int, chars_read: int) -> tuple[_Lane, TextSpan, int, int]:
        """A lane, a span of it, where in it to begin if there is room, and how often it was read before.
        Passes the turn on."""
        while self._first:
            path = self._first.popleft()
            for lane in self._lanes:
                spans = [span for span in lane.spans if span.path == path]
                if spans:
                    # A changed file is read to its end, where notes and transcripts grow.
                    return lane, spans[-1], spans[-1].chars, 0
        lane = self._lanes[self._turn % len(self._lanes)]
        self._turn = (self._turn + 1) % len(self._lanes)
        return lane, *self._next_of_tour(lane, window, chars_read)

    def _next_of_tour(self, lane: _Lane, window: int, chars_read: int) -> tuple[TextSpan, int, int]:
        """The next visit of the lane's tour, or of a new one: its span, where in it to begin, and how often
        the lane was read before."""
        tour = self._tours.get(lane.name)
        if tour is not None:
            lane.cut(tour.unit)
        if tour is None or not tour.goes_on(lane.visits):
            lane.cut(max(self._passage, window))
            before = 0 if tour is None else tour.before + tour.over
            tour = self._tours[lane.name] = _Tour(chars_read, lane.unit, lane.visits, before=before)
            self._rounds.toured(self._all_toured())
        rng = random.Random(f"{self._seed}/{lane.name}/{tour.begun}")
        start, aside = rng.randrange(tour.visits), rng.random()
        place = (start + tour.done * _stride(tour.visits)) % tour.visits
        tour.done += 1
        return *lane.at(min(place, lane.visits - 1), aside), tour.before  # the lane may have shrunk

    def _all_toured(self) -> dict[str, Tours]:
        """Of every lane, how often it was toured."""
        tours = {lane.name: self._tours.get(lane.name, _Tour(0, 1, 1)) for lane in self._lanes}
        return {
            name: Tours(tour.before + tour.over, tour.before + (tour.done > 0))
            for name, tour in tours.items()
        }

    def _drop(self, paths: Collection[Path], why: str) -> None:
        self._dropped.append(why)
        turn = self._lanes[self._turn].name
        kept = [
            _Lane(lane.name, [span for span in lane.spans if span.path not in paths]) for lane in self._lanes
        ]
        self._lanes = [lane for lane in kept if lane.spans]
        names = [lane.name for lane in self._lanes]
        self._turn = names.index(turn) if turn in names else 0


def _within(span: TextSpan, whole: TextSpan) -> bool:
    return span.path == whole.path and whole.start <= span.start <= span.stop <= whole.stop


def _is_tour(numbers: Any) -> bool:
    """Whether this can be a tour's numbers: begun, unit, visits, done, tours before."""
    return (
        isinstance(numbers, list)
        and len(numbers) == 5
        and all(type(number) is int and number >= 0 for number in numbers)
        and min(numbers[1:3]) > 0
    )
