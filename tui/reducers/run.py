"""The run as a whole: who is there, what it is doing, what is saved, what was asked of it."""

from __future__ import annotations

from dataclasses import replace

from minagi.protocol import (
    Ack,
    Continue,
    CorpusFound,
    Failure,
    Goodbye,
    HeldOut,
    Hello,
    Metrics,
    Phase,
    Reverted,
    Saved,
    Set,
    Snapshots,
    Write,
)
from tui import words
from tui.reducers import chat, training
from tui.reducers.log import alert, say
from tui.sanitise import clean_line, number, whole
from tui.state import (
    PENDING_LIMIT,
    SNAPSHOT_LIMIT,
    SUBJECT_LIMIT,
    WAYS_LIMIT,
    AppState,
    Asked,
    Closing,
    Ending,
    Kept,
    Mark,
    Pending,
    Rewound,
    Snapshot,
    Subject,
    WorkerEnded,
    WorkerStarted,
    initial,
)

_SAVED_WORDS = {
    "auto": "Saved",
    "asked": "Saved",
    "named": "Saved",
    "best": "Saved as the best so far",
    "final": "Saved at the end",
}


def worker_started(state: AppState, _event: WorkerStarted, now: float) -> AppState:
    """A process begins: what the last one was doing no longer holds, what it taught does."""
    again = state.hello is not None
    state = replace(
        state, link="starting", heard_at=now, phase=Phase(), pending=(), ending=None, failure="", rung="",
        failure_saved=False, diverged=False, learning=False, parting="",
    )  # fmt: skip
    return say(state, now, "app", "Starting again from the last checkpoint") if again else state


def rewound(state: AppState, _event: Rewound, now: float) -> AppState:
    """Nothing is known yet of what is told once more."""
    return initial(now, state.curves.recent_raw.span)


def worker_ended(state: AppState, event: WorkerEnded, now: float) -> AppState:
    """The process is gone; unless it was asked to go, that is a death, and shown as one."""
    tail = tuple(clean_line(line) for line in event.tail)[-40:]
    ending = Ending(event.status, tail, event.asked)
    calm = event.asked or (event.status in (0, None) and not state.failure)
    state = chat.lose(replace(state, link="ended" if calm else "died", ending=ending, pending=()))
    if calm:
        return state
    text = f"The worker ended unexpectedly ({how_it_ended(event.status)})"
    return alert(say(state, now, "worker", text, "error"), "error", text, bell=True)


def how_it_ended(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "no exit status"
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def closing(state: AppState, event: Closing, now: float) -> AppState:
    """The quit ladder moves on."""
    return replace(state, rung=event.rung)


def hello(state: AppState, event: Hello, now: float) -> AppState:
    """The worker introduces itself, and says from where it goes on."""
    event = replace(event, model=clean_line(event.model, 60))
    held = state.held_out
    state = replace(
        chat.greeted(state), link="live", hello=event, metrics=Metrics(step=event.step, chars=event.chars),
        diverged=False, held_out=held if held is not None and held.chars <= event.chars else None,
        curves=training.best_known(training.cut(state.curves, event.chars), event),
        gauges=training.cut_gauges(state.gauges, event.chars),
        kept=None if event.fresh else Kept(event.step, event.chars),
        subjects=training.unmeasured(state, event.chars), worse=0,
    )  # fmt: skip
    what = "A new model" if event.fresh else f"Goes on at step {event.step:,}"
    where = f"{event.device_name or event.device}, {event.precision}"
    experts = words.plural(event.experts, "expert")
    text = f"{what}: {words.count(event.parameters)} parameters, {experts}, on {where}"
    state = say(state, now, "run", text)
    if event.dry_run:
        state = say(state, now, "run", "A dry run: nothing will be kept", "warning")
    return state


def corpus(state: AppState, event: CorpusFound, now: float) -> AppState:
    """What there is to read. What was measured of a subject stays with its name."""
    known = {subject.name: subject for subject in state.subjects}
    subjects = []
    for entry in event.subjects[:SUBJECT_LIMIT]:
        if not isinstance(entry, dict):
            continue
        name = clean_line(str(entry.get("name") or "unnamed"), 80)
        subject = known.get(name, Subject(name))
        subjects.append(replace(subject, chars=whole(entry.get("chars")), here=True))
    first = state.corpus is None
    state = replace(state, corpus=event, subjects=tuple(subjects))
    text = (
        f"Found {words.plural(event.files, 'file')} with {words.count(event.chars)} characters to read "
        f"and {words.count(event.held_out_chars)} held out"
    )
    return say(state, now, "files", text) if first else state  # of changes the worker tells itself


def phase(state: AppState, event: Phase, now: float) -> AppState:
    """What the worker is doing now."""
    if event == state.phase:
        return state
    changed = event.phase != state.phase.phase
    state = replace(state, phase=event)
    return say(state, now, "run", event.reason) if changed and event.reason else state


def saved(state: AppState, event: Saved, now: float) -> AppState:
    """A checkpoint was completed."""
    marks = training.marked(state.curves, Mark(event.chars, "saved", event.name))
    since = max(0, state.metrics.chars - event.chars)  # it may have been written while training went on
    metrics = replace(state.metrics, unsaved_chars=since)
    state = replace(state, saved=event, saved_at=now, curves=marks, metrics=metrics, snapshots=None)
    state = replace(state, kept=Kept(event.step, event.chars))
    text = _SAVED_WORDS.get(event.kind, "Saved")
    if event.name:
        text += f" as “{clean_line(event.name, 60)}”"
    text += f" at step {event.step:,}"
    if event.seconds or event.bytes_written:
        text += f": {words.size(event.bytes_written)} in {event.seconds:.1f} s"
    return say(state, now, "checkpoint", text)


def snapshots(state: AppState, event: Snapshots, now: float) -> AppState:
    """Every snapshot there is, newest first."""
    found = []
    for item in event.items[:SNAPSHOT_LIMIT]:
        if not isinstance(item, dict) or not isinstance(item.get("id"), str):
            continue
        found.append(
            Snapshot(
                clean_line(item["id"], 200), clean_line(str(item.get("name") or ""), 60),
                clean_line(str(item.get("kind") or ""), 20), number(item.get("at")) or 0.0,
                whole(item.get("step")), whole(item.get("chars")), number(item.get("held_out")),
                whole(item.get("experts")), whole(item.get("bytes_freed")),
                whole(item["held_out_step"]) if number(item.get("held_out_step")) is not None else None,
                _ways(item.get("ways")),
            )
        )  # fmt: skip
    return replace(state, snapshots=tuple(found), present=clean_line(event.present, 200))


def _ways(held: object) -> tuple[tuple[int, int, int], ...]:
    """How a snapshot came about; () where that is not told, or makes no sense."""
    if not isinstance(held, list) or not all(isinstance(way, list) and len(way) == 3 for way in held):
        return ()
    return tuple((whole(way), whole(step), whole(chars)) for way, step, chars in held[-WAYS_LIMIT:])


def reverted(state: AppState, event: Reverted, now: float) -> AppState:
    """The model is again what it was: the curves end there, and say so."""
    curves = training.best_known(training.cut(state.curves, event.chars), event)
    curves = training.marked(curves, Mark(event.chars, "reverted"))
    metrics = replace(state.metrics, step=event.step, chars=event.chars, loss=None, unsaved_chars=0)
    held = HeldOut(step=event.step, chars=event.chars, nats=event.held_out) if event.held_out else None
    births = tuple(birth for birth in state.births if birth.chars <= event.chars)
    state = replace(
        state, reverted=event, reverts=(*state.reverts[1 - PENDING_LIMIT :], event.step),
        births=births, growth=births[-1] if births else None, curves=curves,
        gauges=training.cut_gauges(state.gauges, event.chars),
        subjects=training.unmeasured(state, event.chars), worse=0,
        metrics=metrics, held_out=held, diverged=False, snapshots=None, kept=Kept(event.step, event.chars),
    )  # fmt: skip
    text = f"Reverted to step {event.step:,}, {words.count(event.chars)} characters"
    asked_for = event.reason in ("", "asked")
    if not asked_for:
        text += f": {event.reason}"
    state = say(state, now, "checkpoint", text, "info" if asked_for else "warning")
    return alert(state, "information" if asked_for else "warning", text, bell=not asked_for)


def asked(state: AppState, event: Asked, now: float) -> AppState:
    """The app sent a command: it is pending until its acknowledgement."""
    command = event.command
    state = replace(state, pending=(*state.pending[1 - PENDING_LIMIT :], Pending(command, now)))
    return chat.asked(state, command) if isinstance(command, (Write, Continue)) else state


def ack(state: AppState, event: Ack, now: float) -> AppState:
    """A command was carried out, or refused in words."""
    found = next((p.command for p in state.pending if p.command.id == event.id), None)
    state = replace(state, pending=tuple(p for p in state.pending if p.command.id != event.id))
    if not event.ok:
        text = event.text or f"The worker refused: {event.command}"
        state = alert(say(state, now, "run", text, "warning"), "warning", text)
        return chat.refused(state, event.id, text) if isinstance(found, (Write, Continue)) else state
    if isinstance(found, Set) and found.key == "learn_from_chat":
        state = replace(state, learning=found.value is True)
        return alert(say(state, now, "chat", event.text), "information", event.text)
    return state


def failure(state: AppState, event: Failure, now: float) -> AppState:
    """The run cannot go on."""
    state = replace(state, failure=event.text or "The run cannot go on.", failure_saved=event.saved)
    return alert(say(state, now, "run", event.text, "error"), "error", event.text, bell=True)


def goodbye(state: AppState, event: Goodbye, now: float) -> AppState:
    """Last words."""
    kept = "everything is saved" if event.saved else _dropped(state, event)
    reason = event.reason.rstrip(".") or "Finished"
    where = f" in {state.hello.weights}" if event.saved and state.hello else ""
    state = replace(state, parting=clean_line(f"Left at step {event.step:,}; {kept}{where}."))
    return say(state, now, "run", f"{reason} at step {event.step:,}; {kept}")


def _dropped(state: AppState, event: Goodbye) -> str:
    """What is left of the model where the end was not saved."""
    if state.hello is not None and state.hello.dry_run:
        return "this was a dry run, and nothing was kept"
    if state.kept is None:
        return f"nothing was ever saved, so all {words.plural(event.step, 'step')} went with it"
    steps = event.step - state.kept.step
    if steps <= 0:
        return "it was saved there before"
    return f"not saved: the model is back at its last checkpoint, step {state.kept.step:,}, and " + (
        f"{words.plural(steps, 'step')} {'was' if steps == 1 else 'were'} dropped"
    )
