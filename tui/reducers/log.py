"""The log: discrete events in plain sentences, newest last, bounded.

What the worker says in a `Log` event is not said again here; the reducers add what it leaves to figures.
"""

from __future__ import annotations

from dataclasses import replace

from minagi.protocol import Log
from tui.sanitise import clean_line
from tui.state import ALERT_LIMIT, LOG_LIMIT, Alert, AppState, LogLine, Noted, NotUnderstood
from tui.words import plural, sentence

_LEVELS = ("info", "warning", "error")


def say(state: AppState, now: float, topic: str, text: str, level: str = "info") -> AppState:
    """One more line; a repetition of the line before only raises its count."""
    text = sentence(clean_line(text))
    if not text:
        return state
    level = level if level in _LEVELS else "info"
    serial = state.serial + 1
    if state.log and state.log[-1].text == text:
        last = state.log[-1]
        line = last._replace(serial=serial, at=now, times=last.times + 1)
        return replace(state, log=(*state.log[:-1], line), serial=serial)
    line = LogLine(serial, now, level, clean_line(topic, 16), text)
    return replace(state, log=(*state.log[1 - LOG_LIMIT :], line), serial=serial)


def alert(state: AppState, level: str, text: str, bell: bool = False) -> AppState:
    """Something to show at once, and to ring for when `bell` is set."""
    serial = state.serial + 1
    one = Alert(serial, level, sentence(clean_line(text)), bell)
    return replace(state, alerts=(*state.alerts[1 - ALERT_LIMIT :], one), serial=serial)


def logged(state: AppState, event: Log, now: float) -> AppState:
    """A sentence of the worker's."""
    return say(state, event.at or now, event.topic, event.text, event.level)


def noted(state: AppState, event: Noted, now: float) -> AppState:
    """A sentence of the app's own."""
    return say(state, now, event.topic, event.text, event.level)


def not_understood(state: AppState, event: NotUnderstood, now: float) -> AppState:
    """Lines that were no messages: a flood of them stays one line of the log."""
    last = state.log[-1] if state.log else None
    lines = event.lines + (last.times if last and last.topic == "garbage" else 0)
    sample = repr(clean_line(event.sample, 80))
    text = f"{plural(lines, 'line')} of the worker made no sense; the last began {sample}"
    line = LogLine(state.serial + 1, now, "warning", "garbage", sentence(text), lines)
    kept = state.log[:-1] if last and last.topic == "garbage" else state.log[1 - LOG_LIMIT :]
    return replace(state, log=(*kept, line), serial=state.serial + 1)
