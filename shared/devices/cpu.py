"""The processor: its name, and what it can do."""

from pathlib import Path


def cpu_model() -> str:
    """The processor's name; empty where Linux doesn't tell."""
    return _cpuinfo("model name")


def cpu_flags() -> frozenset[str]:
    """What the processor can do, as Linux calls it."""
    return frozenset(_cpuinfo("flags").split())


def _cpuinfo(name: str) -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
