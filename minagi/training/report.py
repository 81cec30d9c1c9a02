"""Events made from the state of a run: what a pane needs and no more."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from minagi import protocol
from minagi.config import Data, Settings
from minagi.model.loss import Loss
from minagi.text.corpus import Corpus, shown_path
from minagi.text.watch import CorpusChange
from minagi.training.engine import Engine
from minagi.training.progress import Progress
from minagi.training.selection import Selection
from minagi.training.start import Start
from minagi.training.window import WindowGrowth, WindowMove
from minagi.units import LN2

UNNAMED = Data().weights.name  # of a directory that nobody chose
_TIER_LETTERS = {"card": "R", "ram": "M", "disk": "D"}


class WindowLike(Protocol):
    """What there is to say first of a run's window, in characters."""

    @property
    def context(self) -> int: ...

    @property
    def start(self) -> int: ...

    @property
    def ceiling(self) -> int: ...

    @property
    def gain_min(self) -> float: ...


def hello(
    engine: Engine,
    settings: Settings,
    progress: Progress,
    start: Start,
    window: WindowLike,
    text: Sequence[Path] = (),
    best: float | None = None,
) -> protocol.Hello:
    """First words of a run that reads the paths of `text`; `best` is the lowest held-out reading, in nats."""
    hardware, shape = engine.hardware, engine.shape
    return protocol.Hello(
        at=time.time(),
        pid=os.getpid(),
        model=name_of(engine.store.path, text),
        weights=str(engine.store.path),
        log=start.log,
        profile=start.profile,
        notice=start.notice,
        fresh=start.fresh,
        dry_run=start.dry_run,
        device=hardware.device,
        device_name=hardware.name,
        precision=hardware.precision,
        threads=hardware.threads,
        parameters=engine.parameters,
        d_model=shape.d_model,
        experts=engine.pool.experts,
        resident=engine.routing.resident,
        max_rows=shape.max_steps,
        step=progress.step,
        chars=progress.chars,
        context=window.context,
        context_start=window.start,
        context_end=window.ceiling,
        clip=settings.training.clip,
        gain_min=window.gain_min,
        memory_budget=hardware.memory_budget,
        **best_of(progress, best),
    )


def best_of(progress: Progress, nats: float | None) -> dict[str, Any]:
    """The lowest held-out reading, `nats`, and when it was made, as events tell it."""
    if nats is None:
        return {}
    return {"best": nats, "best_step": progress.best_step, "best_chars": progress.best_chars}


def name_of(weights: Path, text: Sequence[Path]) -> str:
    """What to call a model: its directory's name, or what it reads where nobody gave the directory one."""
    read = [name for path in text if (name := Path(os.path.normpath(path)).name)]
    if weights.name != UNNAMED or not read:
        return weights.name
    return read[0] if len(read) == 1 else f"{read[0]} + {len(read) - 1}"


def found(corpus: Corpus) -> Iterator[protocol.Message]:
    """What there is to read, and for every reason to pass files over how many, with an example."""
    yield protocol.CorpusFound(**corpus.summary())
    for reason, paths in corpus.skipped_examples.items():
        count = corpus.skipped.get(reason, len(paths))
        path = shown_path(paths[0])
        one = f"1 file was passed over ({reason}): {path}."
        text = one if count == 1 else f"{count:,} files were passed over ({reason}), for example {path}."
        yield protocol.Log(at=time.time(), topic="files", text=text)


def change_sentence(change: CorpusChange) -> str:
    """What watching found."""
    parts = []
    if change.changed:
        parts.append(f"{len(change.changed)} new or changed, {shown_path(change.changed[0].name)} first")
    if change.removed:
        parts.append(f"{len(change.removed)} gone")
    return f"The files changed: {'; '.join(parts)}. {change.corpus.chars:,} characters are there to read."


def pool(engine: Engine, selection: Selection, progress: Progress, admitted: list[int]) -> protocol.Pool:
    """The whole pool as it is now; `admitted` are the uids the last step was admitted."""
    expert_pool = engine.pool
    telemetry = expert_pool.telemetry
    lifetime = selection.lifetime(progress.step)
    trial, dying = lifetime.in_trial, lifetime.dying(selection.limits.dying_at)
    chars_per_text = progress.chars / telemetry.segments if telemetry.segments else 0.0
    asked = expert_pool.ram.hits + expert_pool.ram.misses
    uids = telemetry.uid
    return protocol.Pool(
        at=time.time(),
        uids=list(uids),
        tier="".join(_TIER_LETTERS[expert_pool.tier(uid)] for uid in uids),
        life="".join("n" if t else "d" if d else "." for t, d in zip(trial, dying, strict=True)),
        use=np.round(telemetry.share(), 5).tolist(),
        gate=[round(gate, 4) for gate in engine.net.pool.gate.tolist()],
        age_chars=[int(age * chars_per_text) for age in lifetime.age],
        unseen_texts=[int(texts) for texts in lifetime.unseen],
        admitted=[uid for uid in admitted if uid in uids],
        arrived=list(expert_pool.arrived),
        loads_per_step=progress.loads,
        ram_hit_rate=expert_pool.ram.hits / asked if asked else None,
        dropped_share=progress.dropped_share,
        parents={str(uid): parents for uid, parents in selection.parents.items() if uid in uids},
    )


def memory(engine: Engine, disk_bytes: int) -> protocol.Memory:
    """Where the bytes are."""
    hardware = engine.hardware
    return protocol.Memory(
        at=time.time(),
        kind=hardware.memory_kind,
        used=hardware.memory_used(),
        peak=hardware.memory_peak(),
        budget=hardware.memory_budget,
        ram_experts=len(engine.pool.ram),
        ram_bytes=engine.pool.ram.bytes,
        disk_bytes=disk_bytes,
    )


def subjects(progress: Progress) -> protocol.Subjects:
    """What was read of each subject, and how it goes."""
    return protocol.Subjects(
        subjects={
            name: {"chars": subject.chars, "loss": subject.loss.value}
            for name, subject in progress.subjects.items()
        }
    )


def window(progress: Progress, growth: WindowGrowth, moved: WindowMove | None = None) -> protocol.Window:
    """The window as it is, and the move that was just made."""
    return protocol.Window(
        step=progress.step,
        chars=progress.chars,
        context=growth.context,
        ceiling=growth.ceiling,
        gain=growth.gain,
        gain_min=growth.gain_min,
        next_at_chars=growth.next_at_chars,
        sentence=moved.sentence if moved else "",
    )


def row(progress: Progress, context: int, factor: float, held_out: protocol.HeldOut | None) -> dict[str, Any]:
    """What a row of the history says beside counters and telemetry; losses in nats a byte."""
    measured = {**held_out.subjects, **held_out.elsewhere} if held_out is not None else {}
    subjects = {}
    for name in sorted({*measured, *progress.subjects}):
        known, score = progress.subject(name), measured.get(name, {})
        subjects[name] = {
            "chars": known.chars, "loss": known.loss.value,
            "val": score.get("nats"), "stderr": score.get("stderr"),
        }  # fmt: skip
    return {
        "val_chars": None if held_out is None else held_out.chars,  # when `val` was measured; null: long ago
        "loss": progress.loss.value,
        "context": context,
        "rate": factor,
        "subjects": subjects,
    }


def life(
    progress: Progress, context: int, factor: float, held_out: protocol.HeldOut | None
) -> dict[str, Any]:
    """The same with the course of the losses since the last checkpoint."""
    return {**row(progress, context, factor, held_out), **progress.course.since(progress.saved_chars)}


def reckoning(held_out: protocol.HeldOut) -> Iterator[protocol.Log]:
    """What a session gained and cost, subject by subject: every change beyond its standard error."""
    gained = cost = 0
    everywhere = {**held_out.subjects, **held_out.elsewhere}
    for name, score in everywhere.items():
        now, before, error = score.get("nats"), score.get("before"), score.get("change_stderr") or 0.0
        if now is None or before is None or not abs(now - before) > error:
            continue
        gained += now < before
        if now > before:
            cost += 1
            change = f"{(now - before) / LN2:+.3f} ± {error / LN2:.3f}"
            text = (
                f"Reading cost ground in {name}: its held-out text went from {before / LN2:.3f} to "
                f"{now / LN2:.3f} bits a character ({change})."
            )
            yield protocol.Log(at=time.time(), level="warning", topic="held-out", text=text)
    if gained and not cost:
        text = f"Held-out text got better in {gained} of {_subjects(len(everywhere))} and worse in none."
        yield protocol.Log(at=time.time(), topic="held-out", text=text)


def _subjects(count: int) -> str:
    return f"{count:,} subject" + ("" if count == 1 else "s")


def metrics(
    progress: Progress,
    loss: Loss,
    *,
    subject: str,
    norm: float,
    signal: float | None,
    factor: float,
    lr: float,
    again: float = 1.0,
    context: int,
    skipped: int,
    corpus: Corpus,
) -> protocol.Metrics:
    """The pulse after a step. `lr` is the rate without `again`, what is left of it for text read before."""
    return protocol.Metrics(
        at=time.time(),
        step=progress.step,
        chars=progress.chars,
        session_chars=progress.session_chars,
        loss=float(loss.ce),
        loss_smooth=progress.loss.value,
        chars_per_second=progress.speed,
        subject=subject,
        rows=float(loss.rows),
        rows_run=loss.rows_run,
        grad_norm=norm,
        signal=signal,
        rate_factor=factor,
        lr=lr * again,
        again=again,
        context=context,
        skipped_steps=skipped,
        unsaved_chars=progress.unsaved_chars,
        corpus_share=sum(progress.subject(s.name).chars for s in corpus.subjects) / max(corpus.chars, 1),
    )
