"""Losses over characters read: single steps, their smoothed course, and the held-out text."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from tui import charts, words
from tui.charts import Chart, Curve, Point
from tui.panes.base import Frame, Pane, flowed, line, wrapped
from tui.state import BITS, WORSE_READINGS
from tui.styles import MUTED

RAW, SMOOTH, HELD = "$primary", "bold $text-success", "bold $text-warning"
_TWO_LINES, _ROOMY = 14, 20  # lines from which the legend may take two, and losses are explained
_MEANT = (
    "How surprised it is by each next character, in bits: 8 is knowing nothing, lower is better. Held-out "
    "text is never learned from, so it tells what was understood and what only learned by heart."
)
_MARKS = {
    "started": ("▸", "bold $text-accent"),
    "saved": ("▴", MUTED),
    "reverted": ("↶", "bold $text-error"),
    "born": ("✶", "$text-accent"),
    "pruned": ("×", MUTED),
}


class LossPane(Pane):
    """The chart that tells whether it learns."""

    NAME = "loss"
    hertz = "charts"

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state.curves, frame.state.diverged, frame.state.worse, frame.view)

    def subtitle(self, frame: Frame, size: Size) -> str:
        view = frame.view
        kind = {"plain": "", "log": " · log", "log-log": " · log-log"}[view.axes]
        told = f"{words.unit(view.bits)}{kind}{' · recent' if view.recent else ''}"
        drawn = "before ▸ drawn from a point a checkpoint · " if frame.state.curves.sparse else ""
        return drawn + told if len(drawn + told) <= size.width else told

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        state = frame.state
        legend = flowed(_legend(frame), size.width, 2 if size.height >= _TWO_LINES else 1)
        below = wrapped(_MEANT, size.width, MUTED) if size.height >= _ROOMY else []
        lines = charts.chart(_chart(frame), size.width, size.height - len(legend) - len(below))
        if lines and not frame.view.charts:
            return flowed(_legend(frame), size.width, size.height)
        if lines:
            return [*legend, *lines, *below]
        if state.curves.raw or state.curves.smooth or state.curves.held:  # too little room for a chart
            return flowed(_legend(frame), size.width, size.height)
        waiting = "waiting for the first step…" if state.link in ("starting", "live") else "no losses yet"
        return [line((waiting, MUTED))]


def _chart(frame: Frame) -> Chart:
    curves, view = frame.state.curves, frame.view
    life = curves.raw.end - curves.raw.start
    recent = view.recent and life > curves.recent_raw.span > 0  # a shorter life is on a finer grid as a whole
    raw, smooth, held = (
        (curves.recent_raw, curves.recent_smooth, curves.recent_held)
        if recent
        else (curves.raw, curves.smooth, curves.held)
    )
    points = [Point(m.x, None, *_MARKS.get(m.kind, ("·", MUTED))) for m in curves.marks]
    if curves.best is not None and curves.best[0] >= held.start:
        points.append(Point(*curves.best, "★", HELD))
    return Chart(
        curves=(
            Curve(raw.buckets, "cloud", RAW),
            Curve(held.buckets, "readings", HELD),
            Curve(smooth.buckets, "line", SMOOTH),
        ),
        points=tuple(points),
        log_x=view.axes == "log-log",
        log_y=view.axes != "plain",
        unit=BITS if view.bits else 1.0,
    )


def _legend(frame: Frame) -> list[tuple[int, Content]]:
    state, bits = frame.state, frame.view.bits
    curves = state.curves
    held = state.held_out.nats if state.held_out else curves.held.last
    items = [
        (0, line(("━ ", SMOOTH), "train ", (words.loss(curves.smooth.last, bits), "bold"))),
        (3, line(("⠢ ", RAW), "last step ", words.loss(curves.raw.last, bits))),
        (1, line(("◆ ", HELD), "held-out ", (words.loss(held, bits), "bold"))),
    ]
    if curves.best is not None:
        items.append(
            (
                2,
                line(
                    ("★ ", HELD),
                    "best " if curves.best_ever else "best since the start ",
                    words.loss(curves.best[1], bits),
                ),
            )
        )
    kinds = {mark.kind for mark in curves.marks}
    names = (
        ("started", "this start"),
        ("saved", "saved"),
        ("reverted", "reverted"),
        ("born", "born"),
        ("pruned", "pruned"),
    )
    items += [
        (4 + rank, line(_MARKS[kind], f" {name}")) for rank, (kind, name) in enumerate(names) if kind in kinds
    ]
    if state.worse >= WORSE_READINGS:
        items.insert(3, (1, line((f"▲ worse for {state.worse} readings", "$text-warning"))))
    if state.diverged:
        items.insert(0, (-1, line(("✖ diverged", "bold $text-error"))))
    return items
