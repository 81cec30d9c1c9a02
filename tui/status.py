"""What the run is doing, in one word: from the state and the time alone."""

from __future__ import annotations

from typing import NamedTuple

from tui import words
from tui.state import QUIET_WORDS, AppState
from tui.styles import MUTED

QUIET_LIMIT = 15.0  # seconds without a word while training before it counts as stalled
BUSY_LIMIT = 120.0  # the same while starting, saving, measuring: those may be silent for long


class Status(NamedTuple):
    """A glyph, a word and a style: the same meaning three times over."""

    glyph: str
    word: str
    style: str


PAUSED = Status("‖", "paused", "$text-warning")
_PHASES = {
    "starting": Status("…", "starting", MUTED),
    "running": Status("►", "running", "$text-success"),
    "paused": PAUSED,
    "saving": Status("▼", "saving", "$text-accent"),
    "evaluating": Status("◆", "measuring", "$text-accent"),
    "sampling": Status("✎", "sampling", "$text-accent"),
    "writing": Status("✎", "writing", "$text-primary"),
    "reverting": Status("↶", "reverting", "$text-warning"),
    "stopping": Status("▪", "stopping", "$text-warning"),
}
_RUNGS = {"stop": "stopping…", "terminate": "still there: terminating…", "kill": "still there: killing…"}


def silent_for(state: AppState, now: float) -> float:
    """Seconds since the worker last spoke."""
    return max(0.0, now - state.heard_at)


def stalled(state: AppState, now: float) -> bool:
    """A live worker that has been silent for longer than what it is doing explains."""
    if state.link not in ("live", "starting") or state.phase.phase == "paused":
        return False
    limit = QUIET_LIMIT if state.phase.phase in ("running", "writing") else BUSY_LIMIT
    return silent_for(state, now) > limit


def status(state: AppState, now: float) -> Status:
    """The word for the header."""
    if state.link == "died":
        return Status("✖", "failed" if state.failure else "worker died", "$text-error")
    if state.link == "ended":
        return Status("■", "ended", MUTED)
    if state.rung:
        return Status("▪", _RUNGS.get(state.rung, "stopping…"), "$text-warning")
    if stalled(state, now):
        return Status("!", f"stalled {words.duration(silent_for(state, now))}", "$text-error")
    for pending in reversed(state.pending):
        if pending.command.type in QUIET_WORDS:
            return Status("…", QUIET_WORDS[pending.command.type], "$text-accent")
    if state.diverged and state.phase.phase == "running":
        return Status("✖", "diverged", "$text-error")
    return _PHASES.get(state.phase.phase, Status("►", state.phase.phase[:16], MUTED))


def time_left(state: AppState) -> float | None:
    """Seconds until this pass over the corpus is finished, at the present pace; None when nothing is read."""
    metrics, corpus = state.metrics, state.corpus
    if state.link in ("ended", "died"):
        return None
    if not metrics.chars_per_second or corpus is None or not corpus.chars or metrics.corpus_share is None:
        return None
    left = (1.0 - metrics.corpus_share % 1.0) * corpus.chars
    return left / metrics.chars_per_second
