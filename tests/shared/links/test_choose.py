import logging

import pytest

from shared.errors import ConfigError, LinkUnavailable
from shared.links.choose import LINK_NAMES, Wish, available_links, check_link, choose_link


def wish(
    process: str, link: str = "auto", host: str = "A", available: tuple[str, ...] = ("shm", "gloo")
) -> Wish:
    return Wish(process=process, link=link, host=host, available=available)


def test_here_there_are_shm_and_gloo() -> None:
    assert available_links() == ("shm", "gloo")


@pytest.mark.parametrize("link", ["auto", "shm", "gloo"])
def test_links_that_are_here_pass(link: str) -> None:
    check_link(link)


@pytest.mark.parametrize(
    ("link", "lacks"), [("ccl", "a oneCCL process group"), ("xccl", "Intel GPUs"), ("nccl", "NVIDIA GPUs")]
)
def test_a_link_that_is_not_here_says_what_is_missing(link: str, lacks: str) -> None:
    with pytest.raises(LinkUnavailable, match=f"link {link} is not available: it needs {lacks}"):
        check_link(link)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="link: unknown name 'pigeon', known are " + ", ".join(LINK_NAMES)):
        check_link("pigeon")


@pytest.mark.parametrize(
    ("thinker", "performer", "chosen"),
    [
        (wish("thinker"), wish("performer"), "shm"),
        (wish("thinker"), wish("performer", host="B"), "gloo"),
        (wish("thinker"), wish("performer", available=("gloo",)), "gloo"),
        (wish("thinker", link="gloo"), wish("performer"), "gloo"),
        (wish("thinker"), wish("performer", link="gloo"), "gloo"),
        (wish("thinker", link="shm"), wish("performer", link="shm"), "shm"),
    ],
)
def test_the_choice_is_logged(
    thinker: Wish, performer: Wish, chosen: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert choose_link(thinker, performer) == chosen
    assert f"link {chosen}" in caplog.text


@pytest.mark.parametrize(
    ("thinker", "performer", "message"),
    [
        (
            wish("thinker", link="shm"),
            wish("performer", link="gloo"),
            "the thinker was started with link shm, the performer with gloo",
        ),
        (
            wish("thinker", link="shm"),
            wish("performer", host="B"),
            "shm needs both processes on one host: the thinker is on A, the performer on B",
        ),
        (
            wish("thinker", link="gloo"),
            wish("performer", available=("shm",)),
            "link gloo is not available to the performer, which has: shm",
        ),
        (
            wish("thinker", available=()),
            wish("performer"),
            "link gloo is not available to the thinker, which has: none",
        ),
    ],
)
def test_a_wish_that_can_not_be_met_is_refused(thinker: Wish, performer: Wish, message: str) -> None:
    with pytest.raises(LinkUnavailable, match=message):
        choose_link(thinker, performer)
