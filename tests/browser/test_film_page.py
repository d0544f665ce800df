"""The room of films in a real browser, against the real pair of processes with the tiny model."""

import io
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import av
import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

Browse = Callable[..., Page]
Groups = Callable[[], AbstractContextManager[Any]]
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def films(groups: Groups) -> Iterator[str]:
    """Address of `live --config wan-tiny`."""
    with groups() as group:
        live = group.start("live", "--config", "wan-tiny", "--port", "0", "--no-browser")
        yield live.wait_for(r"films are made at (http://\S+)")[1]
        live.process.send_signal(signal.SIGINT)
        assert live.wait() == 0, live.output
        group.assert_nothing_left()


def wait_for(page: Page, condition: str) -> None:
    """Until the condition holds in the page."""
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never came: {condition}; {page.locator('#words').inner_text()}"
        page.wait_for_timeout(40)


def open_room(browse: Browse, films: str) -> Page:
    page = browse(f"{films}/film", devices=False)
    expect(page.locator("#make")).to_be_enabled()
    return page


def test_a_storyboard_of_243_frames_plays_while_it_is_made(
    films: str, browse: Browse, tmp_path: Path
) -> None:
    page = open_room(browse, films)
    page.check("[value=scenes]")
    for row, seconds in zip(page.locator("#scenes li").all(), ("5.0625",) * 3, strict=True):
        row.locator("[type=number]").fill(seconds)  # 81 frames at 16 a second
    page.click("#make")
    wait_for(page, "room.blocks.length > 0 && document.getElementById('film').currentTime > 0")
    seen = set()
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate("document.getElementById('film').ended"):
        seen.add(page.locator("#shown").inner_text())
        assert time.monotonic() < deadline
        page.wait_for_timeout(100)
    assert {words.partition(":")[0] for words in seen} >= {"Scene 1", "Scene 2", "Scene 3"}
    assert page.evaluate("room.blocks.length") == 21
    assert page.evaluate("document.getElementById('film').duration") == pytest.approx(243 / 16, abs=0.1)
    assert page.evaluate("document.getElementById('film').getVideoPlaybackQuality().droppedVideoFrames") < 24
    with page.expect_download() as download:
        page.click("#download")
    saved = tmp_path / "film.mp4"
    download.value.save_as(saved)
    with av.open(io.BytesIO(saved.read_bytes())) as container:
        times = [frame.time for frame in container.decode(video=0)]
    assert times == pytest.approx([n / 16 for n in range(243)], abs=1e-3)


def test_the_overlap_is_drawn_and_told(films: str, browse: Browse) -> None:
    page = open_room(browse, films)
    page.click("#make")
    wait_for(page, "room.blocks.length >= 5")
    stages = page.evaluate("room.blocks.flatMap((block) => block.stages.map((stage) => stage.process))")
    assert {"performer", "thinker"} == set(stages)
    label = page.locator("#timeline").get_attribute("aria-label")
    assert label is not None
    assert "stages of the Performer ran while the Thinker worked" in label
    drawn = page.evaluate(
        """() => { const c = document.getElementById('timeline');
        const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let n = 0; n < pixels.length; n += 4) if (pixels[n + 3]) seen.add(pixels.slice(n, n + 3).join());
        return seen.size; }"""
    )
    assert drawn > 4


def test_a_film_without_end_changes_its_prompt_and_stops(films: str, browse: Browse) -> None:
    page = open_room(browse, films)
    page.check("#endless")
    page.click("#make")
    wait_for(page, "room.blocks.length > 0")
    page.fill("#prompt", "a black star bounces over a yellow desert")
    page.click("#change")
    wait_for(page, "room.blocks.at(-1).prompt === 'a black star bounces over a yellow desert'")
    page.click("#stop")
    expect(page.locator("#make")).to_be_visible()
    expect(page.locator("#notes")).to_contain_text("The film was stopped.")


def test_warnings_and_faults_are_told_in_a_sentence(films: str, browse: Browse) -> None:
    page = open_room(browse, films)
    page.fill("#prompt", "a yelow star")
    page.fill("#seconds", "1")
    page.click("#make")
    expect(page.locator("#notes")).to_contain_text("'yelow' taken for 'yellow'")
    expect(page.locator("#notes")).to_contain_text("The film is complete.")
    page.fill("#prompt", " ")
    page.click("#make")
    expect(page.locator("#words")).to_have_text("The prompt is empty")
    expect(page.locator("#make")).to_be_visible()


def test_each_room_says_what_the_server_is_for(films: str, browse: Browse) -> None:
    page = browse(films, devices=False)
    expect(page.locator("#words")).to_contain_text("This server makes films")
    page.get_by_role("link", name="Film").click()
    expect(page.locator("#make")).to_be_enabled()


def test_a_server_of_live_sessions_says_so_in_the_room_of_films(page_url: str, browse: Browse) -> None:
    page = browse(f"{page_url}film", devices=False)
    expect(page.locator("#words")).to_contain_text("This server holds live sessions")
    expect(page.locator("#make")).to_be_disabled()


def test_a_closed_tab_ends_its_film(
    films: str, browse: Browse, eventually: Callable[..., None], report_of: Callable[[str], Any]
) -> None:
    page = open_room(browse, films)
    page.check("#endless")
    page.click("#make")
    wait_for(page, "room.blocks.length > 0")
    assert report_of(films)["running"] == 1
    page.close()
    eventually(lambda: report_of(films)["running"] == 0, "the end of the film")
