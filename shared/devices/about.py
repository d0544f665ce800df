"""What figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

CPUS = Path("/sys/devices/system/cpu")


def cpu_model() -> str:
    """The processor's name."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_flags() -> frozenset[str]:
    """What the processor can do, as Linux calls it."""
    return frozenset(_cpuinfo("flags").split())


def describe(pinning: str = "") -> dict[str, str | int]:
    """Machine, versions, threads and pinning, for the head of a table."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 0,
        "allowed cores": len(os.sched_getaffinity(0)),
        "isa": _isa(),
        "governor": _governor(),
        "threads per process": torch.get_num_threads(),
        "pinning": pinning or "none",
        "load": f"{os.getloadavg()[0]:.1f}",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _cpuinfo(name: str) -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _isa() -> str:
    """What torch's own kernels use, and what oneDNN finds for bf16 beyond that."""
    found = [torch.backends.cpu.get_cpu_capability()]
    found += sorted({"avx512_bf16", "amx_bf16"} & cpu_flags())
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        found.append("no oneDNN")
    return " ".join(found)


def _governor() -> str:
    try:
        return (CPUS / "cpu0/cpufreq/scaling_governor").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
