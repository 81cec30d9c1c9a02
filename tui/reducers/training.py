"""How training goes: losses, rows, rate, window, memory, subjects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from minagi.protocol import HeldOut, Hello, Memory, Metrics, Past, Rate, Reverted, Subjects, Window
from tui import words
from tui.reducers.log import alert, say
from tui.sanitise import clean_line, number, whole
from tui.state import MARK_LIMIT, SUBJECT_LIMIT, WORSE_READINGS, AppState, Curves, Gauges, Mark, Subject

PAST_LIMIT = 1_000  # points of the life before this start
PAST_FEW, PAST_MANY = 8, 100  # of them, a checkpoint and in all: below both it is told what is drawn
PASS_SECONDS = 60.0  # between two passes that are told: a small folder is read through every second


def metrics(state: AppState, event: Metrics, now: float) -> AppState:
    """The pulse of training."""
    before = state.metrics
    diverged = state.diverged
    if event.session_chars > 0:
        diverged = event.loss is None
    state = replace(
        state, metrics=event, diverged=diverged, curves=_with_losses(state.curves, event),
        gauges=_with_gauges(state.gauges, event),
    )  # fmt: skip
    if diverged and not (before.session_chars > 0 and before.loss is None):
        state = alert(state, "warning", "Diverged: the loss is no longer a number", bell=True)
    passed = _passes(event) > _passes(before) and before.session_chars > 0
    if passed and not 0 <= now - state.passed_at < PASS_SECONDS:
        state = replace(state, passed_at=now)
        text = f"Pass {_passes(event)} over the corpus is finished"
        state = alert(say(state, now, "files", text), "information", text, bell=True)
    return state


def _passes(event: Metrics) -> int:
    return int(event.corpus_share or 0.0)


def _with_losses(curves: Curves, event: Metrics) -> Curves:
    if event.loss is None and event.loss_smooth is None:
        return curves
    changed = {}
    for name, value in (("raw", event.loss), ("smooth", event.loss_smooth)):
        if value is not None:
            changed[name] = getattr(curves, name).add(float(event.chars), value)
            recent = getattr(curves, f"recent_{name}")
            if recent.span:
                changed[f"recent_{name}"] = recent.add(float(event.chars), value)
    return replace(curves, **changed)


def _with_gauges(gauges: Gauges, event: Metrics) -> Gauges:
    x = float(event.chars)
    rows = gauges.rows.add(x, event.rows) if event.rows is not None else gauges.rows
    context = gauges.context.add(x, float(event.context)) if event.context else gauges.context
    return replace(gauges, rows=rows, context=context)


def cut(curves: Curves, chars: float) -> Curves:
    """Without what lies after `chars`: the model is again what it was there."""
    best = curves.best if curves.best is None or curves.best[0] <= chars else None
    if best is None and curves.held:
        kept = [(b.low, b.x) for b in curves.held.cut(chars).buckets]
        best = (min(kept)[1], min(kept)[0]) if kept else None
    names = ("raw", "smooth", "held", "recent_raw", "recent_smooth", "recent_held")
    shorter = {name: getattr(curves, name).cut(chars) for name in names}
    ever = curves.best_ever and best == curves.best
    return replace(
        curves, best=best, best_ever=ever, marks=tuple(m for m in curves.marks if m.x <= chars), **shorter
    )


def past(state: AppState, event: Past, now: float) -> AppState:
    """The model's life before this start; where the app saw it itself, its own curves are the better ones."""
    curves = state.curves
    subjects = {subject.name: replace(subject, first=None) for subject in state.subjects}
    for name, figures in event.subjects.items():
        nats = number(figures.get("nats")) if isinstance(figures, dict) else None
        if nats is not None and len(subjects) < SUBJECT_LIMIT:
            known = subjects.get(name := clean_line(name, 80), Subject(name))
            subjects[name] = replace(known, first=(nats, number(figures.get("stderr")) or 0.0))
    state = replace(state, subjects=tuple(subjects.values()))
    if curves.raw or curves.smooth or curves.held:
        return state
    for point in event.points[-PAST_LIMIT:]:
        if not isinstance(point, list) or len(point) != 4:
            continue
        chars, loss, held, at = map(number, point)
        if chars is not None and loss is not None:
            curves = replace(curves, smooth=curves.smooth.add(chars, loss))
        if at is not None and held is not None and at != curves.held.end:
            curves = replace(curves, held=curves.held.add(at, held))
    if not curves.smooth and not curves.held:
        return state
    few = min(PAST_MANY, PAST_FEW * max(1, whole(event.checkpoints)))
    curves = replace(curves, sparse=len(curves.smooth.buckets) < few)
    return replace(state, curves=marked(curves, Mark(float(state.metrics.chars), "started")))


def best_known(curves: Curves, event: Hello | Reverted) -> Curves:
    """With the model's best reading, where the worker tells it."""
    nats = number(event.best)
    return curves if nats is None else replace(curves, best=(float(event.best_chars), nats), best_ever=True)


def cut_gauges(gauges: Gauges, chars: float) -> Gauges:
    """The same for the small curves over characters."""
    return replace(gauges, context=gauges.context.cut(chars), rows=gauges.rows.cut(chars))


def marked(curves: Curves, mark: Mark) -> Curves:
    """With one more tick."""
    return replace(curves, marks=(*curves.marks[1 - MARK_LIMIT :], mark))


def memory(state: AppState, event: Memory, now: float) -> AppState:
    """Where the bytes are."""
    series = state.gauges.memory.add(event.at or now, float(event.used))
    return replace(state, memory=event, gauges=replace(state.gauges, memory=series))


def window(state: AppState, event: Window, now: float) -> AppState:
    """The context window and its evidence."""
    return replace(state, window=event)


def rate(state: AppState, event: Rate, now: float) -> AppState:
    """What the learning-rate control made of the last reading."""
    return replace(state, rate=event)


def held_out(state: AppState, event: HeldOut, now: float) -> AppState:
    """One measurement of the held-out text."""
    if event.nats is None:
        state = replace(state, diverged=True)
        return say(state, now, "held-out", "The held-out text could not be measured: not a number", "warning")
    x = float(event.chars)
    curves = state.curves
    recent = curves.recent_held
    curves = replace(
        curves, held=curves.held.add(x, event.nats),
        recent_held=recent.add(x, event.nats) if recent.span else recent,
    )  # fmt: skip
    if event.best or curves.best is None or event.nats < curves.best[1]:
        curves = replace(curves, best=(x, event.nats), best_ever=event.best)
    subjects = _measured(state.subjects, {**event.elsewhere, **event.subjects})
    state = replace(state, held_out=event, curves=curves, subjects=subjects)
    text = f"Held-out {words.loss(event.nats, True)} bits a character"
    if event.stderr:
        text += f" ± {words.loss(event.stderr, True)}"
    if event.best:
        text += ", the best so far"
        state = alert(state, "quiet", text, bell=True)
    return _judged(say(state, now, "held-out", text), event.nats, event.stderr or 0.0, now)


def _judged(state: AppState, nats: float, error: float, now: float) -> AppState:
    """Count the readings worse than the best, and warn: at the fourth in a row, and at every doubling."""
    best = state.curves.best
    worse = state.worse + 1 if best is not None and nats > best[1] + error else 0
    state = replace(state, worse=worse)
    times = worse // WORSE_READINGS
    if worse % WORSE_READINGS or times < 1 or times & (times - 1) or best is None:
        return state
    share = state.metrics.corpus_share
    read = f": the text has been read {share:.1f} times" if share is not None and share >= 1 else ""
    text = (
        f"Held-out got worse: the last {worse} readings lie above the best of {words.loss(best[1], True)} "
        f"bits a character{read}; give it more text, or go back to the best checkpoint"
    )
    return alert(say(state, now, "held-out", text, "warning"), "warning", text)


def _measured(subjects: tuple[Subject, ...], scores: Mapping[str, object]) -> tuple[Subject, ...]:
    known = {subject.name: subject for subject in subjects}
    for name, figures in scores.items():
        if not isinstance(figures, dict):
            continue
        name = clean_line(name, 80)
        subject = known.get(name, Subject(name))
        held = number(figures.get("nats"))
        before = number(figures.get("before"))
        if before is None:
            before = subject.before if subject.before is not None else held
        noise = number(figures.get("change_stderr", figures.get("stderr")))
        if subject.first is not None:
            before, error = subject.first
            noise = math.hypot(error, number(figures.get("stderr")) or 0.0)
        known[name] = replace(subject, held=held, before=before, noise=noise)
    return tuple(known.values())[:SUBJECT_LIMIT]


def unmeasured(state: AppState, chars: float) -> tuple[Subject, ...]:
    """The subjects of a model that is again what it was at `chars`: without figures measured after that."""
    if state.held_out is not None and state.held_out.chars <= chars:
        return state.subjects
    return tuple(replace(subject, held=None, noise=None) for subject in state.subjects)


def subjects(state: AppState, event: Subjects, now: float) -> AppState:
    """What was read of each subject, and how it went."""
    known = {subject.name: subject for subject in state.subjects}
    for name, figures in event.subjects.items():
        if not isinstance(figures, dict):
            continue
        name = clean_line(name, 80)
        subject = known.get(name, Subject(name))
        known[name] = replace(subject, read=whole(figures.get("chars")), train=number(figures.get("loss")))
    return replace(state, subjects=tuple(known.values())[:SUBJECT_LIMIT])
