"""The same charts as pictures, by matplotlib, which is an optional package."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minagi.errors import MinagiError, UsageError
from minagi.plots.run import Curve, Run
from minagi.plots.scale import marks, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

PROGRESS, DASHBOARD = "training_progress.png", "dashboard.png"
DPI = 110
SUBJECTS_DRAWN = 10
BARS_MAX = 64  # experts
REMEDY = "PNG pictures need matplotlib. Install it: pip install 'minagi[plots]', or pip install matplotlib."
MILLION = 1e6


def draw(run: Run, folder: Path, last: float) -> list[Path]:
    """Make both pictures in `folder`; their paths. `last` is how many million characters count as recent.

    A picture is replaced whole. Raises UsageError without matplotlib, MinagiError where it cannot be written.
    """
    figures: dict[str, Callable[[Figure, Run, float], None]] = {PROGRESS: _progress, DASHBOARD: _dashboard}
    return [_made(folder / name, fill, run, last) for name, fill in figures.items()]


def _made(path: Path, fill: Callable[[Figure, Run, float], None], run: Run, last: float) -> Path:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(REMEDY) from None
    figure = Figure(figsize=(12, 7), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    one = ", one reading: a point in each chart" if run.is_one_reading else ""
    figure.suptitle(_plain(f"{Path(run.model).name or 'minagi'}: {run.chars:,.0f} characters read{one}"))
    fill(figure, run, last)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        figure.savefig(part, format="png")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise MinagiError(f"The picture {path} could not be written: {error.strerror or error}.") from None
    return path


def _progress(figure: Figure, run: Run, last: float) -> None:
    """The loss: all of it on log axes, and the last `last` million characters on plain ones."""
    whole, recent = figure.subplots(1, 2)
    for axes, since, log in ((whole, 0.0, True), (recent, run.chars - last * MILLION, False)):
        _line(axes, run.train.since(since), "train", log, color="tab:blue", alpha=0.8)
        _line(axes, run.held_out.since(since), "held-out", log, color="tab:orange", marker=".")
        _labelled(axes, "loss, bits a character", log)
    whole.set_title("All of it")
    recent.set_title(f"The last {last:g} million characters")
    _best(whole, run.held_out)


def _dashboard(figure: Figure, run: Run, last: float) -> None:
    """Held-out by subject, the pool, the window, the rate and the memory."""
    grid = figure.subplots(2, 3)
    (subjects, experts, use), (window, rate, memory) = grid
    changed = sorted(run.subjects.items(), key=lambda item: -abs(item[1].y[-1] - item[1].y[0]))
    for name, curve in sorted(changed[:SUBJECTS_DRAWN]):
        _line(subjects, curve, _plain(name), band=True, marker=".")
    left = len(changed) - SUBJECTS_DRAWN
    subjects.set_title("Held-out by subject" + (f" ({left} more not drawn)" if left > 0 else ""))
    _labelled(subjects, "bits a character")
    for axes, curve, title, unit in (
        (experts, run.experts, "Experts", ""),
        (window, run.window, "Window", "characters"),
        (rate, run.rate, "Learning rate", "" if run.stream else "factor"),
    ):
        _line(axes, curve, "", drawstyle="steps-post")
        if axes is not rate:
            axes.yaxis.set_major_locator(_whole())
        axes.set_title(title)
        _labelled(axes, unit)
    scaled = Curve()
    for x, y in zip(run.memory.x, run.memory.y, strict=True):
        scaled.add(x, y / 2**30)
    _line(memory, scaled, "")
    memory.set_title("Memory")
    memory.set_ylim(0, max(scaled.y, default=0.0) * 1.15 or 1.0)
    _labelled(memory, "GiB")
    _pool(use, run.pool)


def _pool(axes: Axes, pool: dict[str, list[float]]) -> None:
    """Each expert's share of recent use and its gate, the most used first."""
    axes.set_title("Experts at the last checkpoint")
    rows = sorted(zip(pool.get("use", []), pool.get("gate", []), strict=True), reverse=True)
    if not rows:
        _nothing(axes)
        return
    shown = rows[:BARS_MAX]
    axes.bar(range(len(shown)), [share for share, _ in shown], color="tab:blue")
    axes.set_xlabel(
        "expert, by use" + (f", the first {BARS_MAX} of {len(rows)}" if len(rows) > BARS_MAX else "")
    )
    axes.set_ylabel("share of recent use (bars)", color="tab:blue")
    axes.xaxis.set_major_locator(_whole())
    gates = axes.twinx()
    gates.plot(range(len(shown)), [gate for _, gate in shown], ".", color="tab:orange")
    gates.set_ylabel("gate (dots)", color="tab:orange")
    gates.set_ylim(bottom=min(0.0, *(gate for _, gate in shown)))


def _line(axes: Axes, curve: Curve, label: str, log: bool = False, band: bool = False, **style: Any) -> None:
    points = [
        point for point in zip(curve.x, curve.y, curve.error, strict=True) if not log or min(point[:2]) > 0
    ]
    if not points:
        return
    x, y, error = (list(values) for values in zip(*points, strict=True))
    if len(x) == 1:
        style["marker"] = "o"  # a line of one point is not seen
    (line,) = axes.plot(x, y, label=label or None, linewidth=1.3, **style)
    if band and any(error):
        low, high = ([v + sign * e for v, e in zip(y, error, strict=True)] for sign in (-1, 1))
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)


def _labelled(axes: Axes, unit: str, log: bool = False) -> None:
    """Labels, ticks a person can read, and a legend where there is something to tell apart."""
    if not axes.lines:
        _nothing(axes)
        return
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    for axis in (axes.xaxis, *([axes.yaxis] if log else [])):
        axis.set_major_formatter(lambda value, place: short(value))
    if log:
        _log_ticks(axes)
    axes.set_xlabel("characters read")
    axes.set_ylabel(unit)
    axes.grid(alpha=0.25, which="both" if log else "major")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)


def _log_ticks(axes: Axes) -> None:
    """A loss spans less than a decade, and a short run does: label round numbers between, and no others."""
    from matplotlib.ticker import FixedLocator, NullFormatter

    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_major_locator(FixedLocator(marks(low, high, 7, log=True)))
        axis.set_minor_formatter(NullFormatter())


def _whole() -> Locator:
    """Marks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator("auto", integer=True, min_n_ticks=1)


def _best(axes: Axes, held_out: Curve) -> None:
    if len(held_out):
        best = min(held_out.y)
        axes.axhline(best, color="tab:green", linewidth=0.8, linestyle="--")
        axes.annotate(
            f"best held-out {best:.3f}",
            (0.01, best),
            xycoords=("axes fraction", "data"),
            va="bottom",
            color="tab:green",
            fontsize="small",
        )


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center", color="gray")
    axes.set_xticks([])
    axes.set_yticks([])


def _plain(text: str) -> str:
    """Text for matplotlib, to which a dollar sign begins a formula and an underscore hides a label."""
    return "".join(c for c in text if c.isprintable()).replace("$", r"\$").lstrip("_")
