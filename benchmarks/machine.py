"""What figures were measured on."""

import os
import platform
from pathlib import Path

import torch

from shared.devices.cpu import cpu_flags, cpu_model

CPUS = Path("/sys/devices/system/cpu")


def describe(pinning: str = "") -> dict[str, str | int]:
    """Machine, versions, threads and pinning, for the head of a table."""
    return {
        "cpu": cpu_model() or platform.machine(),
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


def _isa() -> str:
    """What torch's own kernels use, and what oneDNN finds for bf16 beyond that."""
    found = [torch.backends.cpu.get_cpu_capability()]
    found += sorted({"avx512_bf16", "amx_bf16"} & cpu_flags())
    if not torch.backends.mkldnn.is_available():
        found.append("no oneDNN")
    return " ".join(found)


def _governor() -> str:
    try:
        return (CPUS / "cpu0/cpufreq/scaling_governor").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
