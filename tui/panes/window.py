"""The context window: how long it is, how long it may become, and what stands in its way."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from tui import charts, words
from tui.panes.base import Frame, Pane, line, wrapped
from tui.styles import MUTED


class WindowPane(Pane):
    """Length on the way from start to ceiling; gain against its threshold."""

    NAME = "window"

    def part(self, frame: Frame) -> tuple[object, ...]:
        state = frame.state
        speed = state.metrics.chars_per_second
        return (state.window, state.hello, state.metrics.context, state.metrics.chars // 1000, speed is None)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        state, width = frame.state, size.width
        hello, window = state.hello, state.window
        context = (
            state.metrics.context or (window.context if window else 0) or (hello.context if hello else 0)
        )
        if not context:
            return [line(("not told yet", MUTED))]
        ceiling = (window.ceiling if window and window.ceiling else 0) or (hello.context_end if hello else 0)
        start = min(hello.context_start if hello else context, context)
        lines = [
            line(
                (f"{context:,}", "bold"),
                " characters",
                (f" of {ceiling:,}" if ceiling else "", MUTED),
            )
        ]
        if ceiling > start:
            ends = f"{start:,} ", f" {ceiling:,}"
            filled, rest = charts.bar((context - start) / (ceiling - start), width - sum(map(len, ends)))
            lines.append(line((ends[0], MUTED), (filled, "$success"), (rest + ends[1], MUTED)))
        lines.append(_gain(frame))
        after = _after(frame, width, context >= ceiling > 0)
        room = size.height - len(lines) - len(after)
        curve = state.gauges.context.buckets
        if room >= 1 and len({bucket.last for bucket in curve}) > 1:
            lines += [line((bar, "$primary")) for bar in charts.spark(curve, width, min(room, 3))]
        return (lines + after)[: size.height]


def _gain(frame: Frame) -> Content:
    window, hello = frame.state.window, frame.state.hello
    least = (window.gain_min if window else 0.0) or (hello.gain_min if hello else 0.0)
    if window is None or window.gain is None:
        return line("gain ", ("not known yet", MUTED), f" · needs {least:.3f}")
    enough = window.gain > least
    glyph, style = ("▲ above", "$text-success") if enough else ("▽ below", "$text-warning")
    return line("gain ", (f"{window.gain:+.3f}", "bold"), (f" {glyph} ", style), f"{least:.3f}")


def _after(frame: Frame, width: int, full: bool) -> list[Content]:
    """When it may grow next, and the reason it last gave."""
    window, metrics = frame.state.window, frame.state.metrics
    lines = []
    if full:
        lines.append(line(("at its ceiling", MUTED)))
    elif window is not None and window.next_at_chars > metrics.chars:
        left = window.next_at_chars - metrics.chars
        when = f"next look in {words.count(left)}"
        if metrics.chars_per_second:
            when += f", {words.duration(left / metrics.chars_per_second)}"
        lines.append(line((when, MUTED)))
    if window is not None and window.sentence:
        lines += wrapped(window.sentence, width, MUTED, most=2)
    return lines
