"""The context window: how long it is, how long it may become, and what stands in its way."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size

from tui import charts, words
from tui.panes.base import Frame, Pane, fitted, line, wrapped
from tui.state import BITS
from tui.styles import MUTED

_MEANT = (
    "The window is how many characters it sees at once. The gain is how much better it guesses deep in the "
    "window than early in it; while that pays, the window grows."
)


class WindowPane(Pane):
    """Length on the way from start to ceiling; gain against its threshold."""

    NAME = "window"

    def part(self, frame: Frame) -> tuple[object, ...]:
        state = frame.state
        speed = state.metrics.chars_per_second
        chars = state.metrics.chars // 1000
        return (state.window, state.hello, state.metrics.context, chars, speed is None, frame.view.bits)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        state, width = frame.state, size.width
        hello, window = state.hello, state.window
        context = (
            state.metrics.context or (window.context if window else 0) or (hello.context if hello else 0)
        )
        if not context:
            return [line(("not known yet", MUTED))]
        ceiling = (window.ceiling if window and window.ceiling else 0) or (hello.context_end if hello else 0)
        start = min(hello.context_start if hello else context, context)
        lines = [_length(frame, context, ceiling, width)]
        if ceiling > start:
            ends = f"{start:,} ", f" {ceiling:,}"
            filled, rest = charts.bar((context - start) / (ceiling - start), width - sum(map(len, ends)))
            lines.append(line((ends[0], MUTED), (filled, "$text-success"), (rest + ends[1], MUTED)))
        lines.append(_gain(frame, width))
        after = _after(frame, width, context >= ceiling > 0, size.height - len(lines))
        room = size.height - len(lines) - len(after)
        curve = state.gauges.context.buckets
        if room >= 1 and len({bucket.last for bucket in curve}) > 1:
            lines += [line((bar, "$primary")) for bar in charts.spark(curve, width, min(room, 3))]
        lines = (lines + after)[: size.height]
        told = [Content(), *wrapped(_MEANT, width, MUTED)]
        return lines + told if len(lines) + len(told) <= size.height else lines


def _length(frame: Frame, context: int, ceiling: int, width: int) -> Content:
    """How long it is, and by how much it grew: the bar alone hides small steps."""
    curve = frame.state.gauges.context.buckets
    grown = context - int(curve[0].low) if curve else 0
    items = [(0, line((f"{context:,}", "bold"), " characters"))]
    if ceiling:
        items.append((1, line((f"of {ceiling:,}", MUTED))))
    if grown > 0:
        items.append((2, line((f"+{grown:,} this session", "$text-success"))))
    return fitted(items, width, " ")


def _gain(frame: Frame, width: int) -> Content:
    """What looking further back gains, against what it must."""
    window, hello = frame.state.window, frame.state.hello
    least = (window.gain_min if window else 0.0) or (hello.gain_min if hello else 0.0)
    unit, name = (BITS, "bits") if frame.view.bits else (1.0, "nats")
    if window is None or window.gain is None:
        wanted = line((f"needs {least * unit:.3g} {name}", MUTED))
        return fitted([(0, line("gain ", wanted)), (1, line(("not known yet", MUTED)))], width, " · ")
    enough = window.gain > least
    digits = 3 if abs(window.gain - least) >= 0.001 else 5  # else the two would look the same
    needs = f"{least * unit:.{'3g' if digits == 3 else '5f'}}"
    glyph, style = ("▲ above", "$text-success") if enough else ("▽ below", "$text-warning")
    gain = line("gain ", (f"{window.gain * unit:+.{digits}f}", "bold"), (f" {glyph} ", style))
    return line(gain, needs, *([f" {name}"] if width >= gain.cell_length + 12 else []))


def _after(frame: Frame, width: int, full: bool, room: int) -> list[Content]:
    """When it may grow next, and the reason it last gave."""
    window, metrics = frame.state.window, frame.state.metrics
    lines = []
    if full:
        lines.append(line(("at its ceiling", MUTED)))
    elif window is not None and window.next_at_chars > metrics.chars:
        left = window.next_at_chars - metrics.chars
        items = [(0, line((f"next look in {words.count(left)} characters", MUTED)))]
        if metrics.chars_per_second:
            items.append((1, line((words.duration(left / metrics.chars_per_second), MUTED))))
        lines.append(fitted(items, width, ", "))
    if window is not None and window.sentence:
        lines += wrapped(window.sentence, width, MUTED, most=max(0, room - len(lines)))
    return lines
