"""Where the bytes are: the card (or the process) against its budget, RAM, disk."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Size

from tui import charts, words
from tui.panes.base import Frame, Pane, fitted, line
from tui.series import Bucket
from tui.styles import MUTED

_NAMES = {"card": "on the card", "process": "this process"}


class MemoryPane(Pane):
    """A bar for now, a curve for the past."""

    NAME = "memory"
    hertz = "charts"

    def part(self, frame: Frame) -> tuple[object, ...]:
        return (frame.state.memory, frame.state.gauges.memory)

    def draw(self, frame: Frame, size: Size) -> list[Content]:
        memory, series = frame.state.memory, frame.state.gauges.memory
        if memory is None:
            return [line(("not known yet", MUTED))]
        used = line((words.size(memory.used), "bold"), f" {_NAMES.get(memory.kind, 'used')}")
        items = [(0, used)]
        if memory.budget:
            items.append((1, line(("of a budget of " + words.size(memory.budget), MUTED))))
        items.append((2, line(("peak " + words.size(memory.peak), MUTED))))
        lines = [fitted(items, size.width)]
        if memory.budget and size.height > 2:
            share = memory.used / memory.budget
            style = "$text-error" if share > 0.95 else "$text-warning" if share > 0.8 else "$text-success"
            filled, rest = charts.bar(share, size.width - 5)
            lines.append(line((filled, style), (rest, MUTED), f"{words.share(share):>5}"))
        below = _tiers(memory.ram_experts, memory.ram_bytes, memory.disk_bytes, size.width)
        room = size.height - len(lines) - 1
        lines += _past(series.buckets, size.width, min(room, 4))
        if len(lines) < size.height:
            lines.append(below)
        return lines


def _tiers(experts: int, ram: int, disk: int, width: int) -> Content:
    items = []
    if experts or ram:
        items.append(
            (0, line(("◐ ", "$primary"), f"{words.plural(experts, 'expert')} in RAM, {words.size(ram)}"))
        )
    if disk:
        items.append((1, line(("○ ", MUTED), f"{words.size(disk)} on disk")))
    return fitted(items, width)


def _past(buckets: Sequence[Bucket], width: int, height: int) -> list[Content]:
    """The course of it, between the least and the most there was."""
    if len(buckets) < 2 or height < 1:
        return []
    low, high = min(b.low for b in buckets), max(b.high for b in buckets)
    ends = f" {words.size(low)}–{words.size(high)}"
    bars = charts.spark(buckets, width - len(ends), height)
    return [
        line((bar, "$primary"), (ends if row == height - 1 else "", MUTED)) for row, bar in enumerate(bars)
    ]
