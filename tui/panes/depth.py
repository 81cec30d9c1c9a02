"""Depth and rate: how many rows a character takes, and what moves the learning rate."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from minagi.protocol import Metrics
from tui import charts, words
from tui.panes.base import Frame, Pane, line, wrapped
from tui.styles import FAINT, MUTED

_MEANT = (
    "rows: how often it thinks a character over before guessing the next",
    "rate: how fast it learns, as a share of what was set; eased when held-out no longer falls",
    "lr: what the last step took of it, less on text read before, so that it is not learned by heart",
    "grad: how strongly a text pulls at it; above the limit it is clipped",
    "signal: how much the steps agree; near 0% they are mostly noise",
)


class DepthPane(Pane):
    """Rows, learning rate, gradient and signal, a bar each."""

    NAME = "depth"

    def __init__(self, key: str, seconds: float = 0.0) -> None:
        super().__init__(key, seconds)
        self.border_title = Content(f"{key} depth & rate")

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state.metrics, frame.state.rate, frame.state.hello)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        state, width = frame.state, size.width
        metrics, hello = state.metrics, state.hello
        most = hello.max_rows if hello else 0
        clip = hello.clip if hello else 0.0
        rows, norm, signal = metrics.rows, metrics.grad_norm, metrics.signal
        clipped = norm is not None and clip > 0 and norm > clip
        lines = [
            _bar("rows", rows and most and rows / most, _figure(rows, f" of {most}" if most else ""), width),
            _rate(metrics, width),
            _bar(
                "grad", norm and clip and norm / clip,
                _figure(norm, f" of {clip:g}") + (" clipped" if clipped else ""), width,
                "$text-warning" if clipped else "$primary",
            ),
            _bar("signal", signal, words.share(signal), width),
        ]  # fmt: skip
        lines = [one.truncate(width) for one in lines]
        sentence = state.rate.sentence if state.rate else ""
        lines += wrapped(sentence, width, MUTED, most=max(0, size.height - len(lines)))
        meant = [row for told in _MEANT for row in wrapped(told, width, MUTED)]
        if size.height - len(lines) > len(meant):
            lines += [Content(), *meant]
        room = size.height - len(lines)
        if room >= 2 and state.gauges.rows:
            bars = charts.spark(state.gauges.rows.buckets, width, room - 1, float(most) or None)
            lines.append(line(("rows of thought a character so far", MUTED)))
            lines += [line((bar, "$primary")) for bar in bars]
        return lines[: size.height]


def _figure(value: float | None, after: str) -> str:
    return "–" if value is None else f"{min(value, 9999):.2f}{after}"


def _bar(name: str, share: float | None, figure: str, width: int, style: str = "$primary") -> Content:
    room = width - 7 - max(len(figure) + 1, 11)
    if share is None or room < 4:
        return line((f"{name:<7}", MUTED), figure)
    filled, rest = charts.bar(share, room)
    return line((f"{name:<7}", MUTED), (filled, style), (rest, FAINT), f" {figure}")


def _rate(metrics: Metrics, width: int) -> Content:
    """The factor, and what the last step took of it, in as many words as there is room for."""
    factor, lr, again = metrics.rate_factor, metrics.lr, metrics.again
    text = line(("rate   ", MUTED), (f"×{factor:.3f}", "bold"), "" if factor >= 0.9995 else " eased")
    told = [f"lr {lr:.2e}"] if lr else []
    if told and again < 1.0:
        told = [f"×{again:.2g} as text read before: {told[0]}", f"read before: {told[0]}", *told]
    for after in told:
        gap = width - text.cell_length - len(after)
        if gap > 1:
            return line(text, " " * gap, (after, MUTED))
    return text
