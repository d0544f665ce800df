import logging
import re

import pytest
import torch
import torch.distributed as dist

from shared.errors import ConfigError, LinkUnavailable
from shared.links.choose import LINK_NAMES, Capabilities, available_links, check_link, choose_link, missing

HERE = ("shm", "gloo")
ON_CUDA, ON_XPU = (*HERE, "nccl"), (*HERE, "xccl")


def capabilities(
    process: str,
    link: str = "auto",
    host: str = "A",
    device: str = "cpu",
    available: tuple[str, ...] = HERE,
) -> Capabilities:
    return Capabilities(process=process, link=link, host=host, device=device, available=available)


def test_here_there_are_shm_and_gloo_and_ccl_where_it_is_installed() -> None:
    assert set(available_links()) - {"ccl"} == {"shm", "gloo"}
    assert ("ccl" in available_links()) == (missing("ccl") is None)


@pytest.mark.parametrize("link", ["auto", "shm", "gloo"])
def test_links_that_are_here_pass(link: str) -> None:
    check_link(link)


@pytest.mark.parametrize(
    ("link", "device", "lacks"),
    [
        ("xccl", "cpu", "it needs an Intel GPU (--device xpu:N) on both sides, and this process runs on cpu"),
        (
            "xccl",
            "cuda:0",
            "it needs an Intel GPU (--device xpu:N) on both sides, and this process runs on cuda",
        ),
        (
            "nccl",
            "cpu",
            "it needs an NVIDIA GPU (--device cuda:N) on both sides, and this process runs on cpu",
        ),
    ],
)
def test_a_link_that_is_not_here_says_what_is_missing(link: str, device: str, lacks: str) -> None:
    with pytest.raises(LinkUnavailable, match=re.escape(f"link {link} is not available: {lacks}")):
        check_link(link, device)


@pytest.mark.parametrize(("link", "device"), [("nccl", "cuda:1"), ("xccl", "xpu")])
def test_a_torch_without_it_is_named(link: str, device: str) -> None:
    if getattr(dist, f"is_{link}_available")():
        pytest.skip(f"this torch was built with {link}")
    with pytest.raises(LinkUnavailable, match=f"torch {re.escape(torch.__version__)} was built without it"):
        check_link(link, device)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="link: unknown name 'pigeon', known are " + ", ".join(LINK_NAMES)):
        check_link("pigeon")


@pytest.mark.parametrize(
    ("thinker", "performer", "chosen"),
    [
        (capabilities("thinker"), capabilities("performer"), "shm"),
        (capabilities("thinker"), capabilities("performer", host="B"), "gloo"),
        (capabilities("thinker"), capabilities("performer", available=("gloo",)), "gloo"),
        (capabilities("thinker", link="gloo"), capabilities("performer"), "gloo"),
        (capabilities("thinker"), capabilities("performer", link="gloo"), "gloo"),
        (capabilities("thinker", link="shm"), capabilities("performer", link="shm"), "shm"),
        (
            capabilities("thinker", device="cuda:0", available=ON_CUDA),
            capabilities("performer", device="cuda:1", available=ON_CUDA),
            "nccl",
        ),
        (
            capabilities("thinker", device="cuda", available=ON_CUDA),
            capabilities("performer", device="cuda:0", available=ON_CUDA),
            "shm",  # nccl refuses two processes on one device
        ),
        (
            capabilities("thinker", device="cuda:0", available=ON_CUDA),
            capabilities("performer", device="cuda:0", host="B", available=ON_CUDA),
            "nccl",
        ),
        (
            capabilities("thinker", device="xpu:0", available=ON_XPU),
            capabilities("performer", device="xpu:1", available=ON_XPU),
            "xccl",
        ),
        (
            capabilities("thinker", device="xpu:0", available=ON_XPU),
            capabilities("performer", device="xpu:1"),
            "shm",
        ),
        (
            capabilities("thinker", device="cuda:0", available=ON_CUDA),
            capabilities("performer", device="xpu:0", available=ON_XPU),
            "shm",
        ),
        (
            capabilities("thinker"),
            capabilities("performer", device="cuda:0", host="B", available=ON_CUDA),
            "gloo",
        ),
    ],
)
def test_the_choice_is_logged(
    thinker: Capabilities, performer: Capabilities, chosen: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert choose_link(thinker, performer) == chosen
    assert f"link {chosen}" in caplog.text


@pytest.mark.parametrize(
    ("thinker", "performer", "message"),
    [
        (
            capabilities("thinker", link="shm"),
            capabilities("performer", link="gloo"),
            "the thinker was started with link shm, the performer with gloo",
        ),
        (
            capabilities("thinker", link="shm"),
            capabilities("performer", host="B"),
            "shm needs both processes on one host: the thinker is on A, the performer on B",
        ),
        (
            capabilities("thinker", link="gloo"),
            capabilities("performer", available=("shm",)),
            "link gloo is not available to the performer, which has: shm",
        ),
        (
            capabilities("thinker", available=()),
            capabilities("performer"),
            "link gloo is not available to the thinker, which has: none",
        ),
        (
            capabilities("thinker", link="nccl", device="cuda:0", available=ON_CUDA),
            capabilities("performer", device="cuda:0", available=ON_CUDA),
            "link nccl needs two devices: both processes are on cuda:0",
        ),
        (
            capabilities("thinker", link="nccl", device="cuda:0", available=ON_CUDA),
            capabilities("performer"),
            "link nccl is not available to the performer, which has: shm, gloo",
        ),
    ],
)
def test_a_wish_that_can_not_be_met_is_refused(
    thinker: Capabilities, performer: Capabilities, message: str
) -> None:
    with pytest.raises(LinkUnavailable, match=message):
        choose_link(thinker, performer)
