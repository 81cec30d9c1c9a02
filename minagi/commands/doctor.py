"""`minagi doctor`: what this machine can do, what is missing, and the remedy."""

from __future__ import annotations

import argparse
import importlib.util
import locale
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from minagi.commands.output import harmless, put, put_json
from minagi.config import LoadedSettings, Settings
from minagi.errors import EXIT_FAILED, EXIT_OK, LockedError, MinagiError
from minagi.options import Parser, add_machine, add_settings, loaded_settings
from minagi.wrapping import width_of, wrapped

EXAMPLE = """examples:
  minagi doctor
  minagi doctor --weights my/model --json | jq '.findings[] | select(.state != "ok")'

exit status: 0 when nothing stands in the way, 1 when something does
"""
GB = 10**9
DISK_LOW, MEMORY_LOW = 2 * GB, GB
COLUMNS_MIN, LINES_MIN = 40, 12  # the smallest screen the app is laid out for
AGAIN = "Install minagi again: pip install --force-reinstall minagi"
ROOMY = 60  # columns of a terminal from which sentences stand beside the names
OK, NOTE, WRONG = "ok", "note", "wrong"  # "note": it works, and could be better


@dataclass
class Finding:
    """One thing looked at: how it stands, in a sentence, and what to do where it could stand better."""

    name: str
    state: str
    text: str
    remedy: str = ""
    figures: dict[str, Any] = field(default_factory=dict)  # bytes, GFLOP/s, counts; by name


def parser() -> Parser:
    made = Parser(
        prog="minagi doctor",
        usage="%(prog)s [--json] [flags]",
        description="Look at this machine the way minagi would use it. Nothing is written or changed.",
        epilog=EXAMPLE,
    )
    made.add_argument("--json", action="store_true", help="one object: ok, and findings")
    add_machine(made)
    add_settings(made, ["data.weights", "training.precision"])
    return made


def main(argv: Sequence[str]) -> int:
    """Look at everything, whatever is broken on the way, and tell."""
    arguments = parser().parse(argv)
    found = examine(arguments)
    well = all(finding.state != WRONG for finding in found)
    if arguments.json:
        put_json({"ok": well, "findings": [asdict(finding) for finding in found]})
    else:
        width = width_of(sys.stdout)
        for finding in found:
            put("\n".join(_told(finding, width)))
    return EXIT_OK if well else EXIT_FAILED


def _told(finding: Finding, width: int | None) -> list[str]:
    """A finding in lines of `width`: its sentences beside its name, or below it where room is scarce."""
    name = f"{finding.state:<6}{finding.name:<10} "
    sentences = [harmless(text) for text in (finding.text, finding.remedy) if text]
    if width is None or width >= ROOMY:
        names = [name, " " * len(name)]
        return [wrapped(a + b, width, len(name)) for a, b in zip(names, sentences, strict=False)]
    return [name.rstrip(), *(wrapped(f"  {text}", width, 2) for text in sentences)]


def examine(arguments: argparse.Namespace) -> list[Finding]:
    """Every finding, in the order they are told. A check that fails is a finding itself."""
    settings, weights = Settings(), None
    try:
        loaded = loaded_settings(arguments)
        settings, weights = loaded.settings, loaded.settings.data.weights
        first = _settings(loaded)
    except MinagiError as error:
        first = Finding("settings", WRONG, str(error))
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("versions", _versions),
        ("compute", lambda: _compute(arguments, settings)),
        ("memory", _memory),
        ("terminal", _terminal),
        ("graphs", _graphs),
    ]
    if weights is not None:
        checks[3:3] = [("weights", lambda: _weights(weights)), ("disk", lambda: _disk(weights))]
    return [first, *(_guarded(name, check) for name, check in checks)]


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except MinagiError as error:
        return Finding(name, WRONG, str(error))
    except ImportError as error:
        return Finding(name, WRONG, f"a library cannot be loaded: {error}", AGAIN)
    except Exception as error:  # whatever is broken here is what the doctor is asked about
        words = " ".join(str(error).split())[:300]
        return Finding(name, WRONG, f"could not be looked at: {type(error).__name__}: {words}.")


# --------------------------------------------------------------------------------------- the checks


def _settings(loaded: LoadedSettings) -> Finding:
    where = str(loaded.base) if loaded.base else "the defaults; there is no settings file"
    profile = f", profile {loaded.profile}" if loaded.profile else ""
    state = NOTE if loaded.notice else OK
    return Finding("settings", state, f"{where}{profile}", loaded.notice)


def _versions() -> Finding:
    names = ("minagi", "torch", "textual", "numpy")
    found = {"python": platform.python_version()}
    missing = []
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            missing.append(name)
    text = ", ".join(f"{name} {number}" for name, number in found.items())
    figures = {**found, "platform": platform.platform()}
    if missing:
        return Finding(
            "versions", WRONG, f"{text}; missing: {', '.join(missing)}",
            AGAIN, figures,
        )  # fmt: skip
    return Finding("versions", OK, f"{text}, on {platform.platform()}", figures=figures)


def _compute(arguments: argparse.Namespace, settings: Settings) -> Finding:
    from minagi import hardware

    if "torch" not in sys.modules:
        hardware.prepare_environment(arguments.threads, settings.hardware)
    import torch

    from minagi.bench.machine import gflops

    used = hardware.detect(arguments.device, settings.training.precision, settings)
    figures: dict[str, Any] = {
        "device": used.device, "name": used.name, "precision": used.precision, "threads": used.threads,
        "cores": hardware.usable_cores(),
    }  # fmt: skip
    if used.device == "cpu":
        probe = hardware.probe_bf16()
        figures |= {
            "gflops_fp32": round(gflops(torch.float32), 1), "gflops_bf16": round(gflops(torch.bfloat16), 1),
            "bf16_gain": round(probe.gain, 2), "bf16_error": round(probe.error, 5),
            "bf16_instructions": hardware.has_bf16_instructions(),
        }  # fmt: skip
    text = f"{used.device} ({used.name}), {used.threads} of {figures['cores']} cores, {used.precision}"
    if "gflops_fp32" in figures:
        fp32, bf16 = figures["gflops_fp32"], figures["gflops_bf16"]
        text += f"; measured just now: fp32 {fp32:.0f}, bf16 {bf16:.0f} GFLOP/s"
    return Finding("compute", NOTE if used.notice else OK, text, used.notice, figures)


def _memory() -> Finding:
    import psutil

    from minagi import cgroup

    memory, limit = psutil.virtual_memory(), cgroup.memory_limit()
    free = min(memory.available, limit) if limit else memory.available
    text = f"{free / GB:.1f} GB free of {memory.total / GB:.1f}"
    if limit and limit < memory.total:
        text += f", {limit / GB:.1f} allowed in this container"
    figures = {"free": free, "total": memory.total, "limit": limit}
    if free < MEMORY_LOW:
        return Finding("memory", NOTE, text, "Close other programs; a small model needs about 1 GB.", figures)
    return Finding("memory", OK, text, figures=figures)


def _weights(weights: Path) -> Finding:
    from minagi.weights import Store

    if not weights.exists():
        return Finding("weights", OK, f"no model in {weights} yet; the first run makes one")
    try:
        with Store.open(weights, write=False) as store:
            if not store.exists:
                return Finding("weights", OK, f"no model in {weights} yet; the first run makes one")
            step, experts = store.manifest.get("step"), len(store.uids)
            text = f"{weights}: a model of {experts} experts at step {step}, sound as far as its headers tell"
            return Finding("weights", OK, text, figures={"step": step, "experts": experts})
    except LockedError as error:
        return Finding("weights", NOTE, str(error))


def _disk(weights: Path) -> Finding:
    there = next((place for place in (weights, *weights.absolute().parents) if place.exists()), weights)
    if not there.is_dir():
        return Finding("disk", WRONG, f"{there} is a file", "Name another directory with --weights.")
    free = shutil.disk_usage(there).free
    figures = {"free": free, "writable": os.access(there, os.W_OK | os.X_OK)}
    text = f"{free / GB:.1f} GB free in {there}"
    if not figures["writable"]:
        return Finding(
            "disk",
            WRONG,
            f"nothing can be written in {there}",
            "Name another directory with --weights.",
            figures,
        )
    if free < DISK_LOW:
        return Finding("disk", NOTE, text, "A model of the default size needs about 2 GB.", figures)
    return Finding("disk", OK, f"{text}, writable", figures=figures)


def _terminal() -> Finding:
    missing = [name for name, stream in (("stdin", sys.stdin), ("stderr", sys.stderr)) if not stream.isatty()]
    size = shutil.get_terminal_size()
    encoding = locale.getpreferredencoding(False)
    colours = _colours()
    figures = {
        "terminal": not missing, "columns": size.columns, "lines": size.lines, "colours": colours,
        "unicode": "utf" in encoding.lower(), "encoding": encoding, "term": os.environ.get("TERM", ""),
        "no_color": bool(os.environ.get("NO_COLOR")), "tmux": bool(os.environ.get("TMUX")),
        "ssh": bool(os.environ.get("SSH_CONNECTION")),
    }  # fmt: skip
    if missing:
        where = " and ".join(missing)
        return Finding(
            "terminal", NOTE, f"none on {where}: minagi-tui reads without a screen here",
            "Start it in a terminal to see it.", figures,
        )  # fmt: skip
    text = f"{size.columns}×{size.lines}, {colours} colours, {encoding}"
    if figures["no_color"]:
        text += ", NO_COLOR is set and kept"
    small = size.columns < COLUMNS_MIN or size.lines < LINES_MIN
    if small:
        remedy = f"Make it {COLUMNS_MIN}×{LINES_MIN} at least; 80×24 shows every pane's sentences."
        return Finding("terminal", NOTE, text, remedy, figures)
    if not figures["unicode"]:
        remedy = "The app writes UTF-8 all the same. Where it looks garbled: export LC_ALL=C.UTF-8"
        return Finding("terminal", NOTE, text, remedy, figures)
    return Finding("terminal", OK, text, figures=figures)


def _colours() -> str:
    """How many colours the terminal says it has."""
    if os.environ.get("NO_COLOR"):
        return "no"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "16.7 million"
    term = os.environ.get("TERM", "")
    return "256" if "256" in term else "no" if term in ("", "dumb") else "16"


def _graphs() -> Finding:
    if importlib.util.find_spec("matplotlib") is None:
        return Finding(
            "graphs", NOTE, "drawn in the terminal; matplotlib, for PNG files, is not installed",
            "To have them: pip install 'minagi[plots]'", {"png": False},
        )  # fmt: skip
    return Finding("graphs", OK, "in the terminal, and as PNG files", figures={"png": True})
