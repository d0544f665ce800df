"""The tiny film model, in both halves."""

import pytest

from shared.config import RuntimeConfig, load_config
from shared.models.wan.family import WanFamily
from shared.processes.model import load_film_model


@pytest.fixture(scope="session")
def tiny_config() -> RuntimeConfig:
    return load_config("wan-tiny")


@pytest.fixture(scope="session")
def tiny(tiny_config: RuntimeConfig) -> WanFamily:
    family = load_film_model(tiny_config, "cpu")
    assert isinstance(family, WanFamily)
    return family
