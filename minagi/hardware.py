"""The machine: threads, device, precision and memory, decided once and told in words.

`prepare_environment` must run before torch is imported, so this module imports torch only inside
the functions that need it.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Container, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from minagi import cgroup, config
from minagi.errors import UsageError

if TYPE_CHECKING:
    import torch

GB = 10**9  # as wherever a person reads GB
NICENESS = 10  # of a worker: the terminal and everything else go first
_UNIFIED_ARCHES = ("gfx1150", "gfx1151", "gfx1152")  # AMD APUs
# The processor's matrix library keeps a compiled kernel for each shape it meets, torch a second list of them,
# both up to 1,024: a gigabyte after an hour. A quarter of that holds what a training step uses.
_KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
KERNELS_KEPT = 256
_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_PROBE_SIZE = 384  # rows and columns of the probe's matrices: large enough to be about arithmetic
_PROBE_SECONDS = 0.05
_PROBE_GAIN = 1.2  # times faster than fp32 that bf16 must be
_PROBE_ERROR = 0.01  # largest relative error; rounding to bf16 costs 0.002


@dataclass(frozen=True)
class Hardware:
    """What a run computes on. Sizes in bytes."""

    device: str  # "cpu", "cuda:0", "mps"
    name: str
    precision: str  # "fp32" | "bf16" | "fp16": the one used
    threads: int
    memory_budget: int  # what growth measures against
    unified: bool  # processor and card share their memory
    ram_tier_on_gpu: bool
    notice: str  # one sentence for each thing decided for the user, or ""

    @property
    def memory_kind(self) -> str:
        """ "card" or "process": what `memory_used` counts."""
        return "card" if self.device.startswith("cuda") else "process"

    def memory_used(self) -> int:
        """Bytes in use now: of the whole card, or of this process."""
        if self.memory_kind == "card":
            import torch

            free, total = torch.cuda.mem_get_info(self.device)
            return total - free
        return int(psutil.Process().memory_info().rss)

    def memory_peak(self) -> int:
        """The most this process has held since it started."""
        if self.memory_kind == "card":
            import torch

            return int(torch.cuda.max_memory_reserved(self.device))
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


# ------------------------------------------------------------------------------------- before torch


def prepare_environment(
    threads: int | None,
    hardware: config.Hardware,
    environ: MutableMapping[str, str] = os.environ,
    modules: Container[str] = sys.modules,
    *,
    shares: bool = True,
) -> int:
    """Set what torch reads when it is loaded; returns the number of threads.

    `threads` None takes OMP_NUM_THREADS, or else every core but one. Where the machine is shared with other
    programs waiting threads must sleep: on a busy two-core machine spinning ones were measured to bring
    training to a halt. A benchmark that has it to itself (`shares` False) leaves them as they are.
    Raises RuntimeError when torch is loaded already, UsageError for a count below one.
    """
    if "torch" in modules:
        raise RuntimeError("prepare_environment must come before the first import of torch")
    if threads is not None and threads < 1:
        raise UsageError(f"--threads is {threads}: at least one thread is needed.")
    given = environ.get("OMP_NUM_THREADS", "")
    count = threads or (int(given) if given.isdigit() and int(given) > 0 else default_threads())
    environ["OMP_NUM_THREADS"] = str(count)
    environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # numpy multiplies single characters: nothing to share out
    if shares:
        environ.update(OMP_WAIT_POLICY="PASSIVE", KMP_BLOCKTIME="0", GOMP_SPINCOUNT="0")
    for name in _KERNEL_CACHES:
        environ.setdefault(name, str(KERNELS_KEPT))
    if hardware.expandable_segments and sys.platform == "linux":
        # torch reads the first name from 2.9 on, the oldest allowed; users may have set any of them.
        if not any(name in environ for name in _ALLOCATOR_VARIABLES):
            environ[_ALLOCATOR_VARIABLES[0]] = "expandable_segments:True"
    if hardware.rocm_aotriton:
        environ["TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"] = "1"
    if hardware.tunableop:
        environ["PYTORCH_TUNABLEOP_ENABLED"] = "1"
    return count


def default_threads() -> int:
    """Every core this process may use but one, which stays free for the terminal; at least one."""
    return max(1, usable_cores() - 1)


def usable_cores() -> int:
    """Cores this process may use, its container's limit included; at least one."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = cgroup.cpu_limit()
    return max(1, int(min(cores, quota or cores)))


def lower_priority() -> None:
    """Let everything else on the machine go first. Does nothing where that cannot be done."""
    try:
        os.nice(max(0, NICENESS - os.nice(0)))
    except (AttributeError, OSError):  # not a POSIX system; not allowed
        return


# ------------------------------------------------------------------------------------------- device


def detect(device: str, precision: str, settings: config.Settings) -> Hardware:
    """Choose device and precision, and measure the memory there is. Loads torch.

    `device` is auto, cpu, cuda, cuda:N or mps; `precision` is auto, bf16, fp16 or fp32. A precision
    that would be slow or inexact gives way to fp32 with a notice. Raises UsageError in words for a
    device that is not there.
    """
    import torch

    chosen = choose_device(device)
    if chosen.startswith("cuda"):
        properties = torch.cuda.get_device_properties(chosen)
        arch = getattr(properties, "gcnArchName", "").partition(":")[0]
        shared = bool(getattr(properties, "is_integrated", False)) or arch in _UNIFIED_ARCHES
        name, budget = properties.name, int(torch.cuda.mem_get_info(chosen)[1])
    elif chosen == "mps":
        name, shared, budget = platform.processor() or "Apple GPU", True, _process_budget()
    else:
        name, shared, budget = processor_name(), False, _process_budget()
    used, notice = _choose_precision(chosen, precision)
    unified = shared if settings.hardware.unified is None else settings.hardware.unified
    on_gpu = settings.hardware.ram_tier_on_gpu
    given = settings.hardware.gpu_mem_gb
    return Hardware(
        device=chosen,
        name=name,
        precision=used,
        threads=torch.get_num_threads(),
        memory_budget=budget if given is None else int(given * GB),
        unified=unified,
        ram_tier_on_gpu=chosen != "cpu" and (unified if on_gpu is None else on_gpu),
        notice=notice,
    )


def processor_name() -> str:
    """The processor's name as it gives it itself, or the kind of machine."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "processor"


def choose_device(asked: str) -> str:
    """The device meant by --device. Raises UsageError for one that is not there."""
    import torch

    wanted = asked.strip().lower()
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":  # mps only when asked for: models small enough for it are faster without
        return "cuda:0" if cards and _works("cuda:0") else "cpu"
    if wanted == "cpu":
        return wanted
    if wanted == "mps":
        if not torch.backends.mps.is_available():
            raise UsageError(
                "There is no Apple GPU that this PyTorch can use. Leave --device out, or use cpu."
            )
        return wanted
    match = re.fullmatch(r"cuda(?::(\d{1,4}))?", wanted, re.ASCII)
    if not match:
        raise UsageError(f"There is no device {asked!r}. Use auto, cpu, cuda, cuda:N or mps.")
    if not cards:
        built = torch.version.cuda or torch.version.hip
        why = "PyTorch finds no card or no driver" if built else "this PyTorch was built without CUDA"
        raise UsageError(f"{asked} cannot be used: {why}. Leave --device out, or use cpu.")
    number = int(match[1] or 0)
    if number >= cards:
        known = "one card, cuda:0" if cards == 1 else f"{cards} cards, cuda:0 to cuda:{cards - 1}"
        raise UsageError(f"There is no {wanted}: this machine has {known}.")
    if not _works(f"cuda:{number}"):
        raise UsageError(
            f"cuda:{number} is there but PyTorch cannot compute on it: its driver or this build does not fit "
            "the card, or its memory is full. Leave --device out, or use cpu."
        )
    return f"cuda:{number}"


def _works(card: str) -> bool:
    import torch

    try:
        return float(torch.ones(1, device=card) + 1) == 2.0
    except RuntimeError:  # what torch raises for a card it has no kernels for, and for full memory
        return False


def free_memory() -> int:
    """Bytes of the machine's memory that this process may take beside what it holds."""
    return max(0, _process_budget() - psutil.Process().memory_info().rss)


def _process_budget() -> int:
    """Bytes this process can hold: what it has and what is free, within its container's limit."""
    reachable = psutil.Process().memory_info().rss + psutil.virtual_memory().available
    return int(min(reachable, cgroup.memory_limit() or reachable))


# ---------------------------------------------------------------------------------------- precision


class Probe(NamedTuple):
    """bf16 against fp32 products on this processor."""

    gain: float  # times faster
    error: float  # relative, against fp64


def _choose_precision(device: str, asked: str) -> tuple[str, str]:
    """The precision used and a notice, "" when it is simply what was asked for."""
    import torch

    if asked not in ("auto", "bf16", "fp16", "fp32"):
        raise UsageError(f"There is no precision {asked!r}. Use bf16, fp16, fp32 or auto.")
    if device.startswith("cuda"):
        if asked in ("auto", "bf16") and not torch.cuda.is_bf16_supported(including_emulation=False):
            return "fp32", "This card has no bf16 arithmetic, so fp32 is used."
        return ("bf16", "") if asked == "auto" else (asked, "")
    if asked == "fp32":
        return "fp32", ""
    if asked == "fp16":
        return "fp32", f"fp16 needs a CUDA card, so fp32 is used on {device}."
    if device == "mps":
        return "fp32", "" if asked == "auto" else "bf16 is not used on Apple GPUs; fp32 is."
    if not has_bf16_instructions():
        why = "this processor has no bf16 instructions"
        return "fp32", "" if asked == "auto" else f"bf16 would be slow: {why}, so fp32 is used."
    probe = probe_bf16()
    if probe.gain >= _PROBE_GAIN and probe.error <= _PROBE_ERROR:
        return "bf16", ""
    if probe.gain >= _PROBE_GAIN:
        return "fp32", "bf16 products came out inexact when measured just now, so fp32 is used."
    slow = f"bf16 ran at {probe.gain:.2g} times the speed of fp32 when measured just now, so fp32 is used."
    return "fp32", "" if asked == "auto" else slow


def has_bf16_instructions() -> bool:
    """Whether the processor multiplies bf16 by itself. Without, it is tens of times slower than fp32."""
    import torch

    able = torch.cpu.get_capabilities()
    if any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")):
        return True
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return False
    flags = set(re.findall(r"\w+", " ".join(re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE))))
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16", "svebf16"})


@functools.lru_cache(maxsize=1)
def probe_bf16(clock: Callable[[], float] = time.perf_counter) -> Probe:
    """Time bf16 against fp32 products for about 50 ms and check the result against fp64."""
    import torch

    generator = torch.Generator().manual_seed(0)
    a32, b32 = (torch.randn(_PROBE_SIZE, _PROBE_SIZE, generator=generator) for _ in range(2))
    a16, b16 = a32.bfloat16(), b32.bfloat16()
    exact = a16.double() @ b16.double()
    error = float(torch.linalg.norm((a16 @ b16).double() - exact) / torch.linalg.norm(exact))
    _timed(a32, b32, clock)  # the first product of a kind also prepares the library; it is not counted
    best16 = best32 = float("inf")
    end = clock() + _PROBE_SECONDS
    while best32 == float("inf") or clock() < end:  # taking turns, so that a busy moment hits both
        best16 = min(best16, _timed(a16, b16, clock))
        best32 = min(best32, _timed(a32, b32, clock))
    return Probe(gain=best32 / max(best16, 1e-9), error=error)


def _timed(a: torch.Tensor, b: torch.Tensor, clock: Callable[[], float]) -> float:
    start = clock()
    a @ b
    return clock() - start
