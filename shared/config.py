"""The runtime's configuration: one TOML file, shipped by name in `configs/` or given as a path."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from shared.errors import ConfigError
from shared.tables import from_table

DEFAULT = "pocket"
CHOICES = {
    "dtype": ("auto", "float32", "bfloat16"),
    "pin": ("auto", "on", "off"),
    "chunk_mode": ("auto", "packed", "layerwise"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeConfig:
    """Everything of a config file but the inside of `[model]`, which belongs to the model's family.

    `weights` is a folder: a path, `package:NAME` for weights that ship with the package `NAME`, or empty for
    random weights of a fixed seed. A Performer that needs more than `solve_timeout_s` for a unit is taken to
    be stuck.

    `sessions` is how many one pair may serve at a time; memory for all of them is allocated at the start.
    They are spread over `phases` of the unit, and batched within each. `chunk_mode` is how KV slices
    travel: "packed" in one piece, "layerwise" while later layers compute, "auto" by their size.

    How a process computes: `threads` on a CPU; `pin`: its model thread on a core of its own, "auto" for where
    that helps; `dtype`: "auto" for what is fastest on the device, must be the same for both processes.
    """

    name: str = ""
    family: str = "pocket"
    weights: str = ""
    threads: int = 1
    pin: str = "auto"
    dtype: str = "auto"
    sessions: int = 1
    phases: int = 1
    chunk_mode: str = "auto"
    solve_timeout_s: float = 10.0
    model: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, number in (("threads", self.threads), ("sessions", self.sessions), ("phases", self.phases)):
            if number < 1:
                raise ValueError(f"{name}={number} must be at least 1")
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name}={value!r} must be one of: {', '.join(choices)}")
        if not 0 < self.solve_timeout_s < math.inf:
            raise ValueError(f"solve_timeout_s={self.solve_timeout_s} must be above 0")

    def weights_folder(self) -> Path | None:
        """Where the weights are; None for random ones."""
        if self.weights.startswith("package:"):
            package = self.weights.removeprefix("package:")
            try:
                return Path(str(resources.files(package))) / "weights"
            except (ModuleNotFoundError, ValueError):
                raise ConfigError(f"config {self.name}: weights: there is no package {package!r}") from None
        return Path(self.weights).expanduser() if self.weights else None


def shipped_configs() -> list[str]:
    """Names of the configs that come with the package."""
    return sorted(
        p.name.removesuffix(".toml") for p in resources.files("configs").iterdir() if p.name.endswith(".toml")
    )


def load_config(name_or_path: str) -> RuntimeConfig:
    """Read a shipped config by name, or a file by path.

    Raises:
        ConfigError: no such config, not TOML, an unknown key or a bad value; names file, field and value.
    """
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"config: {path} is not there")
        text, name = path.read_text(encoding="utf-8"), path.stem
    elif name_or_path in shipped_configs():
        text, name = (
            resources.files("configs").joinpath(f"{name_or_path}.toml").read_text(encoding="utf-8"),
            name_or_path,
        )
    else:
        raise ConfigError(
            f"config: there is no {name_or_path!r}; there are {', '.join(shipped_configs())}; "
            "or give the path of a .toml file"
        )
    try:
        table: Mapping[str, Any] = {"name": name, **tomllib.loads(text)}
        return from_table(RuntimeConfig, table, name)
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise ConfigError(f"config {name_or_path}: {error}") from None
