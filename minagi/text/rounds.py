"""Rounds: through all of the lanes, as tours are through one.

A round is over when every lane was toured whole since it began. What learns a text by heart can begin anew
with each, and asks how often the text before it was read in this round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Tours(NamedTuple):
    """How often a lane was toured."""

    whole: int
    begun: int  # with the one under way


class Rounds:
    """Counts them; `number` is how many ended since this was made."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[str, int] = {}  # lane -> tours of it begun before this round

    def again(self, lane: str, tours: int) -> int:
        """How often in this round text was read that lies in a tour of `lane` after `tours` whole ones. The
        tour that a round begins in counts to the one before: its other part was read then."""
        return max(0, tours - self._before.get(lane, 0))

    def toured(self, lanes: Mapping[str, Tours]) -> None:
        """A tour ended: begin a new round if it was the last that this one waited for."""
        if all(tours.whole > self._before.get(lane, 0) for lane, tours in lanes.items()):
            self._before = {lane: tours.begun for lane, tours in lanes.items()}
            self.number += 1

    def state(self) -> dict[str, int]:
        """As JSON."""
        return dict(self._before)

    def restore(self, state: Any, lanes: Mapping[str, Tours]) -> None:
        """Go on where `state` was taken, with the tours of `lanes` that are known of; what makes no sense is
        left out. A lane whose tours were forgotten is counted from its first again, and so is its round."""
        state = state if isinstance(state, dict) else {}
        self._before = {
            lane: min(state[lane], tours.begun)
            for lane, tours in lanes.items()
            if type(state.get(lane)) is int and state[lane] >= 0
        }
