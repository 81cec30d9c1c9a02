from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from minagi import cgroup, config, hardware
from minagi.errors import UsageError
from minagi.hardware import GB, Probe, detect, prepare_environment

SETTINGS = config.Settings()


def with_hardware(**values) -> config.Settings:
    return dataclasses.replace(SETTINGS, hardware=config.Hardware(**values))


# ------------------------------------------------------------------------------------- before torch


def test_importing_the_module_does_not_load_torch():
    code = "import minagi.hardware, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_prepare_environment_makes_waiting_threads_sleep():
    environ: dict[str, str] = {}
    assert prepare_environment(3, config.Hardware(), environ, modules=()) == 3
    assert environ["OMP_NUM_THREADS"] == "3"
    assert environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert environ["KMP_BLOCKTIME"] == environ["GOMP_SPINCOUNT"] == "0"
    assert "PYTORCH_TUNABLEOP_ENABLED" not in environ


def test_prepare_environment_bounds_the_kernels_kept_unless_the_user_has():
    environ = {"LRU_CACHE_CAPACITY": "7"}
    prepare_environment(1, config.Hardware(), environ, modules=())
    assert environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "256"
    assert environ["LRU_CACHE_CAPACITY"] == "7"


def test_prepare_environment_comes_before_torch():
    with pytest.raises(RuntimeError, match="before"):
        prepare_environment(1, config.Hardware(), {}, modules=("torch",))


@pytest.mark.parametrize("threads", [0, -2])
def test_a_count_of_threads_below_one_is_refused(threads):
    with pytest.raises(UsageError, match="at least one"):
        prepare_environment(threads, config.Hardware(), {}, modules=())


@pytest.mark.parametrize(("given", "count"), [("5", 5), ("", 7), ("0", 7), ("many", 7), ("4,2", 7)])
def test_omp_num_threads_counts_when_it_is_a_number(monkeypatch, given, count):
    monkeypatch.setattr(hardware, "default_threads", lambda: 7)
    assert prepare_environment(None, config.Hardware(), {"OMP_NUM_THREADS": given}, modules=()) == count


@pytest.mark.skipif(sys.platform != "linux", reason="expandable segments exist on Linux alone")
def test_the_allocator_setting_leaves_the_users_own_alone():
    environ: dict[str, str] = {}
    prepare_environment(1, config.Hardware(), environ, modules=())
    assert environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    theirs = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
    prepare_environment(1, config.Hardware(), theirs, modules=())
    assert "PYTORCH_ALLOC_CONF" not in theirs
    off: dict[str, str] = {}
    prepare_environment(1, config.Hardware(expandable_segments=False), off, modules=())
    assert "PYTORCH_ALLOC_CONF" not in off


def test_amd_switches():
    environ: dict[str, str] = {}
    prepare_environment(1, config.Hardware(rocm_aotriton=True, tunableop=True), environ, modules=())
    assert environ["PYTORCH_TUNABLEOP_ENABLED"] == "1"
    assert environ["TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"] == "1"


@pytest.mark.parametrize(
    ("cores", "quota", "threads"),
    [(8, None, 7), (2, None, 1), (1, None, 1), (8, 2.5, 1), (64, 4.0, 3), (8, 0.5, 1)],
)
def test_default_threads_leave_a_core_free(monkeypatch, cores, quota, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(cores), raising=False)
    monkeypatch.setattr(cgroup, "cpu_limit", lambda: quota)
    assert hardware.default_threads() == threads


def test_lower_priority_never_raises_it_nor_fails(monkeypatch):
    steps = []
    monkeypatch.setattr(os, "nice", lambda by: steps.append(by) or 0, raising=False)
    hardware.lower_priority()
    assert steps == [0, hardware.NICENESS]
    monkeypatch.setattr(os, "nice", lambda by: steps.append(by) or 15, raising=False)
    hardware.lower_priority()
    assert steps[-1] == 0

    def refuse(by):
        raise PermissionError

    monkeypatch.setattr(os, "nice", refuse, raising=False)
    hardware.lower_priority()


# ------------------------------------------------------------------------------------------- cgroups


@pytest.fixture
def groups(tmp_path):
    """Make a tree of control groups: files by path, and the lines of /proc/self/cgroup."""

    def make(lines: str, **files: str):
        for name, text in files.items():
            path = tmp_path / "root" / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "mine").write_text(lines)
        return tmp_path / "root", tmp_path / "mine"

    return make


def test_the_tightest_limit_of_a_group_and_its_parents_counts(groups):
    root, mine = groups(
        "0::/a/b\n",
        a__b__cpu_DOT_max="400000 100000\n",
        a__cpu_DOT_max="150000 100000\n",
        a__b__memory_DOT_max="max\n",
        memory_DOT_max="1000000\n",
    )
    assert cgroup.cpu_limit(root, mine) == 1.5
    assert cgroup.memory_limit(root, mine) == 1_000_000


def test_version_one_is_read_too(groups):
    root, mine = groups(
        "3:cpu,cpuacct:/job\n4:memory:/job\n0::/\n",
        cpu__job__cpu_DOT_cfs_quota_us="250000",
        cpu__job__cpu_DOT_cfs_period_us="100000",
        memory__job__memory_DOT_limit_in_bytes="2000000",
        memory__memory_DOT_limit_in_bytes=str(2**63 - 4096),
    )
    assert cgroup.cpu_limit(root, mine) == 2.5
    assert cgroup.memory_limit(root, mine) == 2_000_000


@pytest.mark.parametrize("text", ["max 100000", "-1", "", "nonsense", "0 100000", "100000 0", "\x00"])
def test_no_limit_and_nonsense_are_none(groups, text):
    root, mine = groups("0::/\n", cpu_DOT_max=text, memory_DOT_max=text)
    assert cgroup.cpu_limit(root, mine) is None
    assert cgroup.memory_limit(root, mine) is None or text[0].isdigit()


def test_no_control_groups_at_all(tmp_path):
    assert cgroup.cpu_limit(tmp_path / "a", tmp_path / "b") is None
    assert cgroup.memory_limit(tmp_path / "a", tmp_path / "b") is None


# ------------------------------------------------------------------------------------------- devices


@pytest.fixture
def cards(monkeypatch):
    """Pretend there are cards."""

    def pretend(count: int, *, bf16: bool = True, works: bool = True, **properties):
        described = SimpleNamespace(name="Card", **properties)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda card: described)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda card: (3 * GB, 8 * GB))
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)
        monkeypatch.setattr(hardware, "_works", lambda card: works)

    return pretend


@pytest.fixture
def probe(monkeypatch):
    """Pretend what the processor's probe finds."""

    def pretend(gain: float, error: float = 0.002, instructions: bool = True):
        monkeypatch.setattr(hardware, "has_bf16_instructions", lambda: instructions)
        monkeypatch.setattr(hardware, "probe_bf16", lambda: Probe(gain, error))

    return pretend


def test_without_a_card_auto_is_the_processor(cards, probe):
    cards(0)
    probe(2.0)
    found = detect("auto", "auto", SETTINGS)
    assert found.device == "cpu" and found.name and found.memory_kind == "process"
    assert found.threads == torch.get_num_threads()
    assert 0 < found.memory_used() < found.memory_budget
    assert found.memory_peak() >= GB // 100
    assert not found.unified and not found.ram_tier_on_gpu


def test_with_a_card_auto_is_the_card(cards):
    cards(1)
    found = detect("auto", "auto", SETTINGS)
    assert (found.device, found.name, found.precision) == ("cuda:0", "Card", "bf16")
    assert found.memory_budget == 8 * GB and found.memory_used() == 5 * GB
    assert found.memory_kind == "card" and not found.unified


def test_a_card_that_cannot_compute_is_passed_over_unless_asked_for(cards):
    cards(1, works=False)
    assert detect("auto", "fp32", SETTINGS).device == "cpu"
    with pytest.raises(UsageError, match="cannot compute on it"):
        detect("cuda", "fp32", SETTINGS)


@pytest.mark.parametrize("asked", ["cuda", "cuda:1", "CUDA:1", " cuda:0 "])
def test_cards_by_number(cards, asked):
    cards(2)
    assert detect(asked, "fp32", SETTINGS).device == ("cuda:1" if "1" in asked else "cuda:0")


@pytest.mark.parametrize(
    ("asked", "count", "words"),
    [
        ("tpu", 1, "no device 'tpu'"), ("", 1, "no device"), ("cuda:x", 1, "no device"),
        ("cuda:-1", 1, "no device"),
        ("cuda:", 1, "no device"), ("cuda:99999999999", 1, "no device"), ("cuda:٣", 1, "no device"),
        ("cuda:7", 1, "one card, cuda:0"), ("cuda:2", 2, "2 cards, cuda:0 to cuda:1"),
        ("cuda", 0, "cannot be used"), ("cuda:0", 0, "cannot be used"),
    ],
)  # fmt: skip
def test_devices_that_are_not_there(cards, asked, count, words):
    cards(count)
    with pytest.raises(UsageError, match=words):
        detect(asked, "fp32", SETTINGS)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has an Apple GPU")
def test_mps_where_there_is_none():
    with pytest.raises(UsageError, match="no Apple GPU"):
        detect("mps", "fp32", SETTINGS)


@pytest.mark.parametrize(
    "properties", [{"is_integrated": 1}, {"gcnArchName": "gfx1151:sramecc+"}, {"gcnArchName": "gfx1150"}]
)
def test_unified_memory_is_detected_and_may_be_overruled(cards, properties):
    cards(1, **properties)
    found = detect("cuda", "fp32", SETTINGS)
    assert found.unified and found.ram_tier_on_gpu
    told = detect("cuda", "fp32", with_hardware(unified=False))
    assert not told.unified and not told.ram_tier_on_gpu
    assert not detect("cuda", "fp32", with_hardware(ram_tier_on_gpu=False)).ram_tier_on_gpu


def test_the_budget_may_be_given(cards):
    cards(1)
    assert detect("cuda", "fp32", with_hardware(gpu_mem_gb=2.5)).memory_budget == int(2.5 * GB)


def test_a_containers_limit_bounds_the_budget(monkeypatch):
    monkeypatch.setattr(cgroup, "memory_limit", lambda: 123_456)
    assert detect("cpu", "fp32", SETTINGS).memory_budget == 123_456


# ---------------------------------------------------------------------------------------- precision


@pytest.mark.parametrize(
    ("asked", "gain", "error", "instructions", "used", "words"),
    [
        ("auto", 2.0, 0.002, True, "bf16", ""),
        ("bf16", 2.0, 0.002, True, "bf16", ""),
        ("bf16", 0.02, 0.002, False, "fp32", "no bf16 instructions"),
        ("auto", 0.02, 0.002, False, "fp32", ""),
        ("auto", 0.9, 0.002, True, "fp32", ""),
        ("bf16", 0.9, 0.002, True, "fp32", "0.9 times"),
        ("auto", 2.0, 0.3, True, "fp32", "inexact"),
        ("auto", 2.0, float("nan"), True, "fp32", "inexact"),
        ("fp32", 2.0, 0.002, True, "fp32", ""),
        ("fp16", 2.0, 0.002, True, "fp32", "needs a CUDA card"),
    ],
)
def test_precision_on_a_processor(probe, asked, gain, error, instructions, used, words):
    probe(gain, error, instructions)
    found = detect("cpu", asked, SETTINGS)
    assert found.precision == used
    assert words in found.notice and bool(words) == bool(found.notice)
    assert not found.notice or found.notice.endswith(".")


@pytest.mark.parametrize(
    ("asked", "bf16", "used", "words"),
    [
        ("auto", True, "bf16", ""), ("bf16", True, "bf16", ""), ("fp16", False, "fp16", ""),
        ("fp32", True, "fp32", ""), ("bf16", False, "fp32", "no bf16"), ("auto", False, "fp32", "no bf16"),
    ],
)  # fmt: skip
def test_precision_on_a_card(cards, asked, bf16, used, words):
    cards(1, bf16=bf16)
    found = detect("cuda", asked, SETTINGS)
    assert found.precision == used and words in found.notice


def test_an_unknown_precision_is_refused():
    with pytest.raises(UsageError, match="no precision 'int8'"):
        detect("cpu", "int8", SETTINGS)


def test_the_probe_takes_turns_and_stops_in_time():
    ticks = iter(range(1000))
    found = hardware.probe_bf16.__wrapped__(clock=lambda: next(ticks) * 0.01)
    assert found.gain == pytest.approx(1.0)
    assert found.error < 0.01
    assert next(ticks) < 30


def test_this_machine_says_what_it_does():
    found = detect("cpu", "bf16", SETTINGS)
    assert found.precision == "bf16" or found.notice
