"""Films from real processes: over every link, apart on two terminals, and when a process is killed."""

import io
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import av
import httpx
import pytest
import torch

from shared.config import load_config
from shared.film_request import FilmRequest, Scene
from shared.links.choose import available_links
from shared.models.single_film import make_film
from shared.processes.model import load_film_model
from thinker.film.video_encoder import VideoShape, X264Encoder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROMPT, OTHER = "two red circles move left over a blue sky", "a star spins over a black night"
SCENES = [{"prompt": PROMPT, "num_frames": 33}, {"prompt": OTHER, "num_frames": 21}]
LINKS = [link for link in available_links() if link in {"shm", "gloo", "ccl"}]


@pytest.fixture(scope="module")
def alone() -> bytes:
    """The film that one process makes, encoded."""
    threads = torch.get_num_threads()
    family = load_film_model(load_config("wan-tiny"), "cpu")
    scenes = tuple(Scene(prompt=str(s["prompt"]), frames=int(s["num_frames"])) for s in SCENES)  # type: ignore[call-overload]
    encoder, film = X264Encoder(VideoShape(64, 48, 16)), b""
    for block, frames in make_film(family, FilmRequest(scenes=scenes, seed=5, fps=16)):
        encoded = encoder.encode(frames, number=block.number, first_frame=block.first_frame)
        film += (encoded.init if block.number == 0 else b"") + encoded.fragment
    torch.set_num_threads(threads)
    return film


@pytest.fixture
def rendezvous() -> str:
    """A free address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=60, trust_env=False)


def until_ready(url: str, eventually: Callable[..., None]) -> None:
    eventually(lambda: httpx.get(f"{url}/readyz", timeout=20, trust_env=False).text == "ready", "readiness")


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.parametrize("link", LINKS)
def test_two_processes_give_the_bytes_of_one(
    group: Any, rendezvous: str, alone: bytes, link: str, eventually: Callable[..., None]
) -> None:
    common = "--config", "wan-tiny", "--rendezvous", rendezvous, "--link", link
    thinker = group.start("thinker", *common, "--port", "0")
    performer = group.start("performer", *common)
    url = thinker.wait_for(r"thinker: serving on (http://\S+)")[1]
    until_ready(url, eventually)
    with client(url) as http:
        made = http.post("/v1/videos/stream/cmaf", json={"scenes": SCENES, "seed": 5})
    assert made.status_code == 200
    assert made.content == alone
    performer.process.send_signal(signal.SIGTERM)
    assert (performer.wait(), thinker.wait()) == (0, 1)
    group.assert_nothing_left()


@pytest.fixture(scope="module")
def films(groups: Callable[[], AbstractContextManager[Any]]) -> Iterator[tuple[str, Any]]:
    """`live --config wan-tiny`, and its group of processes."""
    with groups() as group:
        live = group.start("live", "--config", "wan-tiny", "--port", "0", "--no-browser")
        yield live.wait_for(r"films are made at (http://\S+)")[1], group
        live.process.send_signal(signal.SIGINT)
        assert live.wait() == 0, live.output
        group.assert_nothing_left()


def test_a_storyboard_of_243_frames_is_what_was_asked_for(films: tuple[str, Any], tmp_path: Path) -> None:
    scenes = [
        {"prompt": prompt, "num_frames": 81}
        for prompt in (PROMPT, OTHER, "three fish move up over a blue sea")
    ]
    began, first, film = time.monotonic(), 0.0, b""
    with (
        client(films[0]) as http,
        http.stream("POST", "/v1/videos/stream/cmaf", json={"scenes": scenes}) as answer,
    ):
        for chunk in answer.iter_raw():
            first = first or time.monotonic() - began
            film += chunk
    whole = time.monotonic() - began
    assert first < 0.6 * whole
    path = tmp_path / "film.mp4"
    path.write_bytes(film)
    probed = subprocess.run(
        ["ffprobe", "-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames:packet=pts",
         "-of", "json", path],
        capture_output=True, check=True,
    )  # fmt: skip
    told = json.loads(probed.stdout)
    assert told["streams"][0]["nb_read_frames"] == "243"
    stamps = [packet["pts"] for packet in told["packets"]]
    assert stamps == sorted(set(stamps))
    assert len(stamps) == 243


def test_many_clients_that_leave_early_leave_nothing_behind(
    films: tuple[str, Any], eventually: Callable[..., None], report_of: Callable[[str], Any]
) -> None:
    url, group = films
    (performer,) = group.pids("performer")
    (thinker,) = group.pids("thinker")

    def leave_at_the_first_fragment() -> None:
        with (
            client(url) as http,
            http.stream(
                "POST", "/v1/videos/stream/cmaf", json={"prompt": PROMPT, "num_frames": 20_000}
            ) as answer,
        ):
            next(answer.iter_raw())

    for _ in range(5):
        leave_at_the_first_fragment()
    eventually(lambda: report_of(url)["running"] == 0, "the end of all films")
    before = rss_mb(performer), rss_mb(thinker)
    stopped = report_of(url)["films"]["stopped"]
    for _ in range(25):
        leave_at_the_first_fragment()
    eventually(lambda: report_of(url)["films"]["stopped"] == stopped + 25, "the end of all films")
    eventually(lambda: report_of(url)["running"] == 0, "the end of all films")
    after = rss_mb(performer), rss_mb(thinker)
    assert after[0] - before[0] < 8
    assert after[1] - before[1] < 16


def test_a_killed_performer_fails_jobs_and_cuts_streams(group: Any, eventually: Callable[..., None]) -> None:
    live = group.start("live", "--config", "wan-tiny", "--port", "0", "--no-browser")
    url = live.wait_for(r"films are made at (http://\S+)")[1]
    with client(url) as http:
        job = http.post("/v1/videos", json={"prompt": PROMPT, "num_frames": 20_000}).json()
        eventually(lambda: http.get(f"/v1/videos/{job['id']}").json()["progress"] >= 0, "a beginning")
        (performer,) = group.pids("performer")
        subprocess.run(["kill", "-9", str(performer)], check=True)
        eventually(lambda: http.get(f"/v1/videos/{job['id']}").json()["status"] == "failed", "the failure")
        error = http.get(f"/v1/videos/{job['id']}").json()["error"]
        assert error == {"code": "generation_failed", "message": "the performer has gone away"}
    assert live.wait() == 1
    assert "performer was ended by signal 9" in live.output
    group.assert_nothing_left()


def test_generate_makes_a_file_by_itself(group: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    generate = group.start(
        "generate",
        "--scene",
        PROMPT,
        "--scene",
        "a yelow star",
        "--frames",
        "21",
        "--config",
        "wan-tiny",
        "-o",
        str(out),
    )
    assert generate.wait() == 0, generate.output
    assert "'yelow' taken for 'yellow'" in generate.output
    with av.open(io.BytesIO(out.read_bytes())) as container:
        assert container.streams.video[0].frames == 42
    group.assert_nothing_left()


def test_generate_asks_a_server_that_runs(films: tuple[str, Any], group: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    generate = group.start("generate", PROMPT, "--frames", "9", "--url", films[0], "-o", str(out))
    assert generate.wait() == 0, generate.output
    assert out.stat().st_size > 500


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("-o", "x.mp4"), 2, "give either a prompt or --scene"),
        (("a", "--scene", "b", "-o", "x.mp4"), 2, "give either a prompt or --scene"),
        (("a star", "-o", "/nowhere/x.mp4"), 2, "/nowhere"),
        (("a star", "-o", "x.mp4", "--config", "pocket"), 2, "makes no films"),
        (("a star", "-o", "x.mp4", "--url", "http://127.0.0.1:9"), 1, "nobody answers at"),
    ],
)
def test_what_generate_can_not_do_it_says_in_a_line(
    group: Any, arguments: tuple[str, ...], code: int, says: str
) -> None:
    generate = group.start("generate", *arguments)
    assert generate.wait() == code
    assert says in generate.output
    assert "Traceback" not in generate.output


def test_live_refuses_options_of_a_user_where_films_are_made(group: Any) -> None:
    live = group.start("live", "--config", "wan-tiny", "--text", "hello")
    assert live.wait() == 2
    assert "--text is for live sessions, and wan-tiny makes films" in live.output


def test_a_server_of_live_sessions_makes_no_films(running_pair: str) -> None:
    with client(running_pair) as http:
        refused = http.post("/v1/videos", json={"prompt": PROMPT})
        assert refused.status_code == 404
        assert "makes no films" in refused.json()["error"]["message"]
        assert http.get("/v1/models").json()["data"][0]["workload"] == "live"
