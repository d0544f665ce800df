import argparse

import pytest

from scripts.arguments import rank_count, rank_devices
from shared.errors import ConfigError


def test_the_cpu_is_for_all_ranks() -> None:
    assert rank_devices("cpu", 1) == ["cpu"]
    assert rank_devices("cpu", 3) == ["cpu", "cpu", "cpu"]


def test_other_devices_are_named_one_by_one() -> None:
    assert rank_devices("cuda:1", 1) == ["cuda:1"]
    assert rank_devices("cuda:0,cuda:2", 2) == ["cuda:0", "cuda:2"]


@pytest.mark.parametrize(
    "devices", ["cuda:0", "cuda", "cuda:0,cuda:0", "cuda:0,xpu:1", "cuda:0,cuda:1,cuda:2", "cpu,cpu"]
)
def test_devices_that_do_not_fit_are_refused(devices: str) -> None:
    with pytest.raises(ConfigError, match=f"--device {devices}: 2 ranks need as many of one kind"):
        rank_devices(devices, 2)


def test_a_number_of_ranks() -> None:
    assert rank_count("4") == 4
    for text in ("0", "-1", "two", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number from 1 up"):
            rank_count(text)
