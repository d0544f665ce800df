"""The page in a real browser, against the real pair of processes."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

Browse = Callable[..., Page]
PATIENCE_S = 90.0
TWO_SECONDS_US = 2_000_000


def wait_for(page: Page, condition: str) -> None:
    """Until the condition holds in the page."""
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never came: {condition}"
        page.wait_for_timeout(40)


def type_to_the_agent(page: Page, text: str) -> None:
    page.get_by_placeholder("Type to the agent").fill(text)
    page.keyboard.press("Enter")


def sessions(url: str) -> float:
    """How many sessions hold a slot, as the server tells Prometheus."""
    metrics = httpx.get(f"{url}/metrics", timeout=20, trust_env=False).text
    found = re.search(r"^thinker_sessions (\S+)$", metrics, re.MULTILINE)
    assert found, metrics
    return float(found[1])


@pytest.fixture(scope="module")
def pocket_pair(groups: Callable[[], AbstractContextManager[Any]]) -> Iterator[str]:
    """Address of `live` as it comes, with the trained model."""
    with groups() as group:
        live = group.start("live", "--port", "0", "--no-browser")
        yield live.wait_for(r"the agent is at (http://\S+)")[1]
        live.process.send_signal(signal.SIGINT)
        assert live.wait() == 0, live.output
        group.assert_nothing_left()


def test_a_session_from_start_to_closed_tab(
    running_pair: str, browse: Browse, eventually: Callable[..., None], report_of: Callable[[str], Any]
) -> None:
    page = browse(f"{running_pair}/?autostart=1")
    wait_for(page, "tp.state === 'live' && tp.positionUs > 0 && tp.framesPainted > 0")
    assert sessions(running_pair) == 1
    began_us, painted = page.evaluate("[tp.positionUs, tp.framesPainted]")
    wait_for(page, f"tp.positionUs > {began_us + TWO_SECONDS_US}")
    assert page.evaluate("tp.framesPainted") - painted >= 25
    assert page.evaluate("tp.unitsSent") > 0

    type_to_the_agent(page, "hello there")
    expect(page.locator("#transcript .user")).to_have_text("hello there")
    expect(page.locator("#transcript .agent")).to_have_text("hello there", timeout=1000 * PATIENCE_S)
    assert "hello" not in str(report_of(running_pair)), "what is said stays in the session"

    page.close()
    eventually(lambda: sessions(running_pair) == 0, "the end of the session")
    emitted = report_of(running_pair)["units"]["emitted"]
    time.sleep(1.0)  # nothing more may come: there is no event to wait for
    assert report_of(running_pair)["units"]["emitted"] == emitted


def test_the_agent_is_heard_when_it_speaks(pocket_pair: str, browse: Browse) -> None:
    page = browse(f"{pocket_pair}/?autostart=1")
    wait_for(page, "tp.state === 'live' && tp.positionUs > 1e6")
    before_us, before = page.evaluate("[tp.positionUs, tp.samplesPlayedNonSilent]")
    wait_for(page, f"tp.positionUs > {before_us + TWO_SECONDS_US}")
    quiet = page.evaluate("tp.samplesPlayedNonSilent")
    assert quiet - before < 1_600, "silence is silence"
    type_to_the_agent(page, "The weather is lovely today.")
    expect(page.locator("#agent-state")).to_have_text("Speaking", timeout=1000 * PATIENCE_S)
    wait_for(page, f"tp.samplesPlayedNonSilent > {quiet + 4_000}")
    expect(page.locator("#transcript .agent")).to_have_text(
        "The weather is lovely today.", timeout=1000 * PATIENCE_S
    )
    expect(page.locator("#agent-state")).to_have_text("Listening", timeout=1000 * PATIENCE_S)
