"""The page in a real browser, against a made-up agent."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import simplejpeg
from playwright.sync_api import Page, expect

from protocol import messages as m
from protocol.media import MediaUnit

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
Browse = Callable[..., Page]


def wait_for(page: Page, condition: str) -> None:
    """Until the condition holds. Playwright's own waiting uses eval, which the page's policy forbids."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never came: {condition}"
        page.wait_for_timeout(40)


def test_pictures_are_painted_and_sound_is_played(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1")
    wait_for(page, "tp.state === 'live'")
    wait_for(page, "tp.framesPainted >= 25")
    page.get_by_placeholder("Type to the agent").fill("hello there")
    page.keyboard.press("Enter")
    wait_for(page, "tp.samplesPlayedNonSilent > 2000")
    expect(page.locator("#transcript .user")).to_have_text("hello there")
    expect(page.locator("#transcript .agent")).to_have_text("You said: hello there")
    expect(page.locator("#understood")).to_have_text("understood: say it")
    assert page.evaluate("tp.framesPainted") >= 25


def test_camera_and_microphone_arrive_in_units(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1")
    wait_for(page, "tp.unitsSent >= 12")
    (hello,) = agent.of_type(m.Hello)
    assert (hello.camera, hello.microphone) == (True, True)
    units = agent.of_type(MediaUnit)
    assert [unit.unit for unit in units] == list(range(len(units)))
    assert all(len(unit.audio) in {0, 5120} for unit in units)
    loudest = max(units, key=lambda unit: np.abs(np.frombuffer(unit.audio, "<i2").astype(int)).max(initial=0))
    spectrum = np.abs(np.fft.rfft(np.frombuffer(loudest.audio, "<i2") * np.hanning(2560)))
    assert abs(np.argmax(spectrum) * 16000 / 2560 - 440) < 10, "the fake microphone hums at 440 Hz"
    pictures = [jpeg for unit in units for jpeg in unit.frames]
    assert len(pictures) >= 12
    assert simplejpeg.decode_jpeg(pictures[-1]).shape == (64, 64, 3)
    assert len(set(pictures)) > 3, "the fake camera moves"


def test_acks_tell_what_was_heard(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1")
    wait_for(page, "tp.unitsReceived >= 12 && tp.positionUs > 500000")
    acks = agent.of_type(m.Ack)
    assert [ack.unit for ack in acks] == list(range(len(acks)))
    played = [ack.played_pts for ack in acks]
    assert played == sorted(played)
    assert played[-1] > 300_000


def test_start_needs_a_click_and_end_ends(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url)
    assert page.evaluate("tp.state") == "idle"
    page.get_by_role("button", name="Start").click()
    wait_for(page, "tp.state === 'live'")
    page.get_by_role("button", name="End the session").click()
    expect(page.locator("#words")).to_have_text("The session has ended.")
    assert agent.over.wait(10)
    page.get_by_role("button", name="Start again").click()
    wait_for(page, "tp.state === 'live'")


def test_closing_the_tab_ends_the_session(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1")
    wait_for(page, "tp.unitsReceived >= 2")
    page.close()
    assert agent.over.wait(10)


def test_without_devices_one_can_still_talk(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1", devices=False)
    wait_for(page, "tp.state === 'live' && tp.unitsSent > 3")
    notes = page.locator("#transcript .note")
    expect(notes).to_have_text(["No camera was found.", "No microphone was found. You can type."])
    page.get_by_placeholder("Type to the agent").fill("typed")
    page.keyboard.press("Enter")
    wait_for(page, "tp.samplesPlayedNonSilent > 500")
    unit = agent.of_type(MediaUnit)[-1]
    assert (unit.audio, unit.frames) == (b"", ())


def test_denied_devices_are_explained(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1", allowed=False)
    wait_for(page, "tp.state === 'live'")
    notes = page.locator("#transcript .note")
    expect(notes).to_have_count(2)
    expect(notes.first).to_contain_text("The camera is blocked for this page.")
    expect(notes.last).to_contain_text("The microphone is blocked for this page.")


def test_microphone_and_camera_can_be_turned_off(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1")
    wait_for(page, "tp.unitsSent > 8")
    page.locator("header").click()
    page.locator("body").press("m")
    expect(page.locator("#microphone")).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="Turn off camera").click()
    expect(page.locator("#self")).to_be_hidden()

    def is_quiet(unit: MediaUnit) -> bool:
        return unit.frames == () and not np.frombuffer(unit.audio, "<i2").any()

    # What was taken before still comes; on a busy machine that can be a second of it.
    while not all(map(is_quiet, agent.of_type(MediaUnit)[-6:])):
        page.wait_for_timeout(20)


def test_a_full_server_says_where_one_stands(page_url: str, agent: Any, browse: Browse) -> None:
    agent.queue_first = True
    page = browse(page_url + "?autostart=1")
    expect(page.locator("#words")).to_have_text("Waiting for a free slot. You are 2nd in line, about 40 s.")
    agent.queue_first = False
    wait_for(page, "tp.state === 'live'")


def test_the_end_of_the_model_is_told_and_can_be_retried(page_url: str, agent: Any, browse: Browse) -> None:
    agent.end_after = 4
    page = browse(page_url + "?autostart=1")
    expect(page.locator("#words")).to_have_text("The model has ended. It says: the model ended.")
    agent.end_after = None
    page.get_by_role("button", name="Start again").click()
    wait_for(page, "tp.framesPainted > 5")


def test_a_line_that_went_dead_is_told(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1")
    wait_for(page, "tp.unitsReceived > 1")
    agent.frozen = True
    expect(page.locator("#words")).to_have_text("The connection was lost.", timeout=30_000)
    expect(page.get_by_role("button", name="Start again")).to_be_focused()
    agent.frozen = False
    page.keyboard.press("Enter")
    wait_for(page, "tp.state === 'live'")


def test_an_interruption_silences_the_agent(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1")
    wait_for(page, "tp.positionUs > 100000")
    page.get_by_placeholder("Type to the agent").fill("talk")
    page.keyboard.press("Enter")
    wait_for(page, "tp.samplesPlayedNonSilent > 500")
    page.keyboard.press("Escape")
    expect(page.locator("#agent-state")).to_have_text("Listening")
    units = page.evaluate("tp.unitsReceived")
    wait_for(page, f"tp.unitsReceived > {units + 1}")
    heard = page.evaluate("tp.samplesPlayedNonSilent")
    wait_for(page, f"tp.unitsReceived > {units + 4}")
    assert page.evaluate("tp.samplesPlayedNonSilent") == heard
    assert heard < 8 * 2560 * 0.8, "it had eight units to say"
    assert agent.of_type(MediaUnit)[-1].epoch == 1


def test_a_line_that_is_refused_is_noted(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url + "?autostart=1", devices=False)
    wait_for(page, "tp.state === 'live'")
    page.get_by_placeholder("Type to the agent").fill("?!")
    page.keyboard.press("Enter")
    expect(page.locator("#transcript .note").last).to_have_text("“?!” will not be answered")


def test_insecure_address_is_explained(page_url: str, agent: Any, browse: Browse) -> None:
    port = page_url.rstrip("/").rsplit(":", 1)[1]
    page = browse(
        f"http://studio.example:{port}/?autostart=1",
        flags=("--host-resolver-rules=MAP studio.example 127.0.0.1",),
    )
    expect(page.locator("#words")).to_contain_text("only on https or on localhost")
    assert page.evaluate("tp.state") == "impossible"


def test_nothing_is_loaded_from_elsewhere(page_url: str, agent: Any, browse: Browse) -> None:
    page = browse(page_url)
    names = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert names
    assert all(name.startswith(page_url) for name in names)
