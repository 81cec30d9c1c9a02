"""The two lines at the top: what runs, how far it is, and what would be lost now."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from tui import words
from tui.panes.base import Drawn, Frame, fitted, line, spread
from tui.recording import Playing
from tui.status import PAUSED, status, time_left
from tui.styles import MUTED


class Header(Drawn):
    """Model, state, progress, pace, what is unsaved, and where it runs."""

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state, frame.view.bits, int(frame.now), frame.playing)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        width = size.width - 2
        lines = [_first(frame, width), _second(frame, width)]
        return [line(" ", one) for one in lines[: size.height]]


def _first(frame: Frame, width: int) -> Content:
    state, metrics = frame.state, frame.state.metrics
    now = PAUSED if frame.playing and frame.paused else status(state, frame.now)
    name = state.hello.model if state.hello else "minagi"
    items = [
        (0, line((f"{now.glyph} {now.word}", f"bold {now.style}"))),
        (1, line((name, "bold"))),
    ]
    if state.hello is not None:
        items += [
            (3, line("step ", (f"{metrics.step:,}", "bold"))),
            (2, line((words.count(metrics.chars), "bold"), " read")),
        ]
    if metrics.corpus_share is not None:
        items.append((5, line(_progress(metrics.corpus_share))))
    left = time_left(state)
    if left is not None and state.phase.phase != "paused":
        items.append((6, line(words.duration(left), " left")))
    if metrics.chars_per_second is not None:
        items.append((4, line((words.count(metrics.chars_per_second), "bold"), "/s")))
    held = state.held_out.nats if state.held_out else None
    right = Content("")
    if held is not None:
        right = line(
            "held-out ", (words.loss(held, frame.view.bits), "bold $text-warning"), _short(frame.view.bits)
        )
    return spread(fitted(items, width - (right.cell_length + 2 if width >= 72 else 0)), right, width)


def _short(bits: bool) -> str:
    return " bits" if bits else " nats"


def _progress(share: float) -> str:
    """Where in which pass over the corpus it is."""
    passes = int(share)
    part = words.share(share - passes)
    return f"{part} of pass {passes + 1}" if passes else f"{part} of a pass"


def _second(frame: Frame, width: int) -> Content:
    state, hello = frame.state, frame.state.hello
    if state.link == "died":
        reason = (
            state.failure
            or f"The worker is gone; the last checkpoint is safe. {frame.key('restart')} starts it again."
        )
        return line((reason, "$text-error")).truncate(width, ellipsis=True)
    if hello is None:
        return line(("opening the model and the folder…", MUTED))
    items = [(-1, _playing(frame.playing))] if frame.playing else []
    if hello.dry_run:
        items.append((0, line(("dry run: nothing is kept", "bold $text-warning"))))
    else:
        unsaved = state.metrics.unsaved_chars
        kept = f"saved {words.ago(frame.now - state.saved_at)}" if state.saved_at is not None else ""
        if unsaved:
            items.append((0, line((words.count(unsaved), "bold"), " unsaved")))
        if kept:
            items.append((2, line((kept, MUTED))))
        elif not unsaved:
            items.append((2, line(("all saved", MUTED))))
    shape = f"{words.count(hello.parameters)} parameters"
    where = f"{_device(hello.device_name or hello.device)}, {hello.precision}"
    items.append((4, line((where, MUTED))))
    items.append((5, line((f"{shape}, {words.plural(_experts(frame), 'expert')}", MUTED))))
    if hello.profile:
        items.append((6, line((f"profile {hello.profile}", MUTED))))
    return fitted(items, width, gap=" · ")


def _playing(playing: Playing) -> Content:
    total = f" of {words.clock(playing.total)}" if playing.total is not None else ""
    pace = f"{playing.speed:g}×" if playing.speed else "at once"
    return line(("recording ", "bold $text-accent"), f"{words.clock(playing.seconds)}{total}, {pace}")


def _experts(frame: Frame) -> int:
    known = len(frame.state.pool.experts)
    return known or (frame.state.hello.experts if frame.state.hello else 0)


def _device(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"
