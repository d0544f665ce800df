"""Films over HTTP and WebSocket, from a real server with a real pair behind it: the tiny model."""

import asyncio
import contextlib
import io
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import av
import httpx
import openai
import pytest
import websockets
from film_pair import PROMPT, FilmPair
from film_pair import tiny as tiny  # noqa: PLC0414 - the fixture
from websockets.asyncio.client import ClientConnection, connect

from shared.models.wan.family import WanFamily
from thinker.server.app import build_film_app, serve

TOKEN = "test-token"
PATIENCE_S = 60


class FilmApi:
    """A server that runs."""

    def __init__(self, pair: FilmPair, port: int) -> None:
        self.pair = pair
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.AsyncClient(
            base_url=self.url,
            timeout=PATIENCE_S,
            headers={"authorization": f"Bearer {TOKEN}"},
            trust_env=False,
        )

    def socket(self, token: str = TOKEN) -> Any:
        return connect(f"{self.url.replace('http', 'ws')}/v1/realtime/video?token={token}", max_size=None)

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def completed(self, video: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                job: dict[str, Any] = (await self.http.get(f"/v1/videos/{video}")).json()
                if job["status"] in {"completed", "failed"}:
                    return job
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def served(pair: FilmPair, token: str | None = TOKEN) -> AsyncIterator[FilmApi]:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    app = build_film_app(pair.engine, token=token, operator_secret="another")
    task = asyncio.create_task(serve(app, host="127.0.0.1", port=0, stop=stop, listening=port.set_result))
    api = FilmApi(pair, await port)
    await api.until(lambda: pair.engine.ready)
    try:
        yield api
    finally:
        await api.http.aclose()
        stop.set()
        await task


@pytest.fixture
def pair(tiny: WanFamily) -> Iterator[FilmPair]:
    made = FilmPair(tiny, films=2)
    yield made
    made.close()


@pytest.fixture
async def api(pair: FilmPair) -> AsyncIterator[FilmApi]:
    async with served(pair) as made:
        yield made


def frames_in(mp4: bytes) -> list[float]:
    """Times of all frames."""
    with av.open(io.BytesIO(mp4)) as container:
        return [frame.time for frame in container.decode(video=0) if frame.time is not None]


async def test_the_models_are_listed(api: FilmApi) -> None:
    listed = (await api.http.get("/v1/models")).json()
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert model["id"] == "wan-tiny"
    assert model["workload"] == "film"
    assert (model["size"], model["fps"], model["block_frames"]) == ("64x48", 16, 12)


async def test_a_job_goes_from_queued_to_a_file(api: FilmApi) -> None:
    answer = await api.http.post("/v1/videos", json={"prompt": PROMPT, "num_frames": 45, "seed": 3})
    video = answer.json()
    assert answer.status_code == 200
    assert video["object"] == "video"
    assert video["status"] in {"queued", "in_progress"}
    early = await api.http.get(f"/v1/videos/{video['id']}/content")
    assert early.status_code in {409, 200}
    job = await api.completed(video["id"])
    assert (job["status"], job["progress"], job["num_frames"], job["size"]) == ("completed", 100, 45, "64x48")
    assert job["seconds"] == "2.8125"
    assert job["expires_at"] > job["completed_at"] >= job["created_at"]
    content = await api.http.get(f"/v1/videos/{video['id']}/content")
    assert content.headers["content-type"] == "video/mp4"
    assert frames_in(content.content) == pytest.approx([n / 16 for n in range(45)], abs=1e-3)
    assert [each["id"] for each in (await api.http.get("/v1/videos")).json()["data"]] == [video["id"]]
    deleted = await api.http.delete(f"/v1/videos/{video['id']}")
    assert deleted.json()["deleted"] is True
    assert (await api.http.get(f"/v1/videos/{video['id']}")).status_code == 404


@pytest.mark.filterwarnings("ignore:The Sora API")
async def test_the_official_client_creates_polls_and_downloads(api: FilmApi) -> None:
    def use() -> tuple[Any, bytes]:
        with openai.OpenAI(base_url=f"{api.url}/v1", api_key=TOKEN) as client:
            video = client.videos.create(model="wan-tiny", prompt=PROMPT, seconds="2", size="64x48")  # type: ignore[arg-type]
            while video.status in {"queued", "in_progress"}:
                time.sleep(0.05)
                video = client.videos.retrieve(video.id)
            content = client.videos.download_content(video.id).read()
            assert client.videos.list().data[0].id == video.id
            assert client.models.list().data[0].id == "wan-tiny"
            with pytest.raises(openai.BadRequestError, match="the prompt is empty"):
                client.videos.create(model="wan-tiny", prompt=" ")
            with pytest.raises(openai.NotFoundError):
                client.videos.retrieve("video_nothing")
            client.videos.delete(video.id)
            return video, content

    video, content = await asyncio.to_thread(use)
    assert video.status == "completed"
    assert len(frames_in(content)) == 32


async def test_a_storyboard_streams_while_it_is_made(api: FilmApi) -> None:
    scenes = [
        {"prompt": PROMPT, "num_frames": 33},
        {"prompt": "a star", "seconds": 1},
        {"prompt": "a fish", "num_frames": 5},
    ]
    body, chunks = b"", 0
    async with api.http.stream("POST", "/v1/videos/stream/cmaf", json={"scenes": scenes}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "video/mp4"
        async for chunk in answer.aiter_raw():
            if not body:
                assert api.pair.engine.counts.finished == 0
            body, chunks = body + chunk, chunks + 1
    assert chunks >= 3
    assert frames_in(body) == pytest.approx([n / 16 for n in range(33 + 16 + 5)], abs=1e-3)


async def test_what_a_prompt_is_taken_for_is_told(api: FilmApi) -> None:
    asked = {"prompt": "a yelow star with a hat", "num_frames": 9}
    async with api.http.stream("POST", "/v1/videos/stream/cmaf", json=asked) as answer:
        assert "'yelow' taken for 'yellow'" in json.loads(answer.headers["x-warnings"])
        await answer.aread()
    job = (await api.http.post("/v1/videos", json=asked)).json()
    assert "'yelow' taken for 'yellow'" in job["warnings"]


BAD = [
    ({}, 400, "give either prompt or scenes"),
    ({"prompt": ""}, 400, "the prompt is empty"),
    ({"prompt": " \n "}, 400, "the prompt is empty"),
    ({"prompt": "x", "scenes": [{"prompt": "y"}]}, 400, "give either prompt or scenes"),
    ({"prompt": "x", "num_frames": 0}, 400, "num_frames=0"),
    ({"prompt": "x", "num_frames": 10**9}, 400, "num_frames=1000000000"),
    ({"prompt": "x", "num_frames": 10**30}, 400, "num_frames"),
    ({"prompt": "x", "seconds": -1}, 400, "seconds=-1"),
    ({"prompt": "x", "seconds": 1e300}, 400, "seconds"),
    ({"prompt": "x", "seconds": 2, "num_frames": 5}, 400, "not both"),
    ({"prompt": "x", "size": "63x47"}, 400, "size '63x47'"),
    ({"prompt": "x", "size": "big"}, 400, "size 'big'"),
    ({"prompt": "x", "fps": 0}, 400, "fps=0"),
    ({"prompt": "x", "seed": -1}, 400, "seed=-1"),
    ({"prompt": "x", "model": "sora-2"}, 404, "no model 'sora-2'"),
    ({"prompt": "x", "colour": "red"}, 400, "colour"),
    ({"prompt": 5}, 400, "prompt"),
    ({"prompt": "x" * 2001}, 400, "2001 characters"),
    ({"prompt": "\ud800"}, 400, "not JSON"),
    ({"scenes": []}, 400, "0 scenes"),
    ({"scenes": [{"prompt": "x"}] * 65}, 400, "65 scenes"),
    ({"scenes": [{"prompt": "x"}, {"prompt": ""}]}, 400, "the prompt is empty"),
    ({"scenes": [{"prompt": "x", "num_frames": 15_000}] * 2}, 400, "30000 frames"),
    ({"scenes": [{"prompt": "x"}], "num_frames": 5}, 400, "belongs to each of the scenes"),
    ([1], 400, "object"),
]


@pytest.mark.parametrize("path", ["/v1/videos", "/v1/videos/stream/cmaf"])
async def test_bad_requests_are_answered_in_openais_shape(api: FilmApi, path: str) -> None:
    for asked, status, says in BAD:
        answer = await api.http.post(
            path, content=json.dumps(asked), headers={"content-type": "application/json"}
        )
        assert answer.status_code == status, (asked, answer.text)
        error = answer.json()["error"]
        assert says in error["message"], (asked, error)
        assert set(error) == {"message", "type", "param", "code"}
    assert api.pair.engine.counts.begun == 0


@pytest.mark.parametrize("path", ["/v1/videos", "/v1/videos/stream/cmaf"])
async def test_bodies_that_are_no_requests(api: FilmApi, path: str) -> None:
    broken = await api.http.post(path, content=b'{"prompt": "x"')
    assert broken.status_code == 400
    assert "not JSON" in broken.json()["error"]["message"]
    huge = await api.http.post(path, json={"prompt": "x" * 1_000_000})
    assert huge.status_code == 413
    form = await api.http.post(path, content=b"nothing", headers={"content-type": "multipart/form-data"})
    assert form.status_code == 400
    picture = await api.http.post(path, data={"prompt": "x"}, files={"input_reference": b"png"})
    assert "not supported" in picture.json()["error"]["message"]


async def test_without_the_token_nobody_gets_in(api: FilmApi) -> None:
    async with httpx.AsyncClient(base_url=api.url, trust_env=False) as stranger:
        for method, path in [
            ("POST", "/v1/videos"), ("GET", "/v1/videos"), ("GET", "/v1/models"), ("GET", "/v1/videos/x"),
            ("GET", "/v1/videos/x/content"), ("DELETE", "/v1/videos/x"), ("POST", "/v1/videos/stream/cmaf"),
        ]:  # fmt: skip
            answer = await stranger.request(method, path)
            assert answer.status_code == 401, path
            assert answer.json()["error"]["code"] == "invalid_api_key"
    with pytest.raises(websockets.InvalidStatus, match="401"):
        async with api.socket("wrong"):
            pass


async def test_a_live_session_is_refused_with_the_reason(api: FilmApi) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connect(f"{api.url.replace('http', 'ws')}/v1/session"):
            pass
    assert b"makes films and holds no live sessions" in refused.value.response.body


async def test_a_client_that_hangs_up_at_the_first_fragment_ends_its_film(api: FilmApi) -> None:
    async with api.http.stream(
        "POST", "/v1/videos/stream/cmaf", json={"prompt": PROMPT, "num_frames": 20_000}
    ) as answer:
        async for _ in answer.aiter_raw():
            break
    await api.until(lambda: api.pair.engine.counts.stopped == 1)
    await api.until(lambda: api.pair.engine.report().running == 0)
    made = api.pair.engine.stages.count("denoise")
    assert made < 30
    await asyncio.sleep(0.3)
    assert api.pair.engine.stages.count("denoise") <= made + 1


async def test_ten_requests_at_once_are_all_made(api: FilmApi) -> None:
    asked = [{"prompt": PROMPT, "num_frames": 21, "seed": seed} for seed in range(10)]
    jobs = [(await api.http.post("/v1/videos", json=each)).json() for each in asked]
    assert sum(job["status"] == "queued" for job in jobs) >= 1
    done = [await api.completed(job["id"]) for job in jobs]
    assert [job["status"] for job in done] == ["completed"] * 10


async def test_too_many_that_wait_are_refused(api: FilmApi) -> None:
    answers = [
        await api.http.post("/v1/videos", json={"prompt": PROMPT, "num_frames": 2_000}) for _ in range(40)
    ]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0].json()["error"]["type"] == "rate_limit_error"
    for answer in answers:
        if answer.is_success:
            await api.http.delete(f"/v1/videos/{answer.json()['id']}")
    await api.until(lambda: api.pair.engine.report().running == 0)


async def test_a_performer_that_goes_fails_jobs_and_cuts_streams(api: FilmApi) -> None:
    job = (await api.http.post("/v1/videos", json={"prompt": PROMPT, "num_frames": 20_000})).json()

    async def take_all() -> None:
        async with api.http.stream(
            "POST", "/v1/videos/stream/cmaf", json={"prompt": PROMPT, "num_frames": 20_000}
        ) as answer:
            async for _ in answer.aiter_raw():
                api.pair.stop_performer.set()

    with pytest.raises(httpx.RemoteProtocolError):
        await take_all()
    failed = await api.completed(job["id"])
    assert failed["status"] == "failed"
    assert failed["error"]["message"] == "the performer has gone away"
    content = await api.http.get(f"/v1/videos/{job['id']}/content")
    assert content.status_code == 409
    again = await api.http.post("/v1/videos", json={"prompt": PROMPT})
    assert again.status_code == 503
    assert (await api.http.get("/readyz")).status_code == 503


async def test_metrics_and_report_tell_of_films(api: FilmApi) -> None:
    job = (await api.http.post("/v1/videos", json={"prompt": PROMPT, "num_frames": 33})).json()
    await api.completed(job["id"])
    text = (await api.http.get("/metrics")).text
    assert 'thinker_report_films{of="frames"} 33.0' in text
    assert "thinker_jobs 1.0" in text
    report = await api.http.get("/report", headers={"authorization": "Bearer another"})
    assert report.json()["films"]["finished"] == 1
    assert report.json()["stages_ms"]["decode"]["p50"] > 0


async def told(socket: ClientConnection) -> dict[str, Any]:
    message = await asyncio.wait_for(socket.recv(), PATIENCE_S)
    assert isinstance(message, str)
    content: dict[str, Any] = json.loads(message)
    return content


async def test_a_film_over_a_websocket(api: FilmApi) -> None:
    async with api.socket() as socket:
        await socket.send(json.dumps({"type": "session.start", "prompt": PROMPT, "num_frames": 33}))
        start = await told(socket)
        assert start["type"] == "video.start"
        assert (start["width"], start["height"], start["fps"], start["num_frames"]) == (64, 48, 16, 33)
        film = await socket.recv()
        assert isinstance(film, bytes)
        shown = []
        while (message := await told(socket))["type"] == "video.chunk_metadata":
            fragment = await socket.recv()
            assert isinstance(fragment, bytes)
            assert len(fragment) == message["bytes"]
            assert [stage["process"] for stage in message["stages"]][-2:] == ["thinker", "thinker"]
            film += fragment
            shown.append((message["block"], message["first_frame"], message["num_frames"]))
        assert message == {"type": "video.end", "num_frames": 33, "reason": "complete"}
        assert shown == [(0, 0, 9), (1, 9, 12), (2, 21, 12)]
        assert len(frames_in(film)) == 33
        with pytest.raises(websockets.ConnectionClosedOK):
            await socket.recv()


async def test_a_prompt_changes_while_a_film_without_end_is_made(api: FilmApi) -> None:
    async with api.socket() as socket:
        await socket.send(json.dumps({"type": "session.start", "prompt": PROMPT}))
        prompts: list[str] = []
        while len(set(prompts)) < 2:
            message = await asyncio.wait_for(socket.recv(), PATIENCE_S)
            if (
                isinstance(message, str)
                and (content := json.loads(message))["type"] == "video.chunk_metadata"
            ):
                prompts.append(content["prompt"])
                if len(prompts) == 1:
                    await socket.send(json.dumps({"type": "session.interaction", "prompt": "a black star"}))
        assert prompts[-1] == "a black star"
        assert len(prompts) <= 6
        await socket.send(json.dumps({"type": "session.stop"}))
        while isinstance(message := await socket.recv(), bytes) or json.loads(message)["type"] != "video.end":
            pass
        assert json.loads(message)["reason"] == "stopped"
    await api.until(lambda: api.pair.engine.report().running == 0)


async def test_who_waits_is_told_how_many_are_before(api: FilmApi) -> None:
    async with api.socket() as one, api.socket() as two, api.socket() as three, api.socket() as four:
        for socket in (one, two, three):
            await socket.send(json.dumps({"type": "session.start", "prompt": PROMPT}))
        assert (await told(three)) == {"type": "session.queued", "position": 0}
        await four.send(json.dumps({"type": "session.start", "prompt": PROMPT, "num_frames": 9}))
        assert (await told(four)) == {"type": "session.queued", "position": 1}
        await three.close()
        assert (await told(four)) == {"type": "session.queued", "position": 0}
        await one.close()
        assert (await told(four))["type"] == "video.start"


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([{"type": "hello"}], "must be session.start"),
        ([{"type": "session.start"}], "give either prompt or scenes"),
        ([{"type": "session.start", "prompt": "x", "num_frames": -1}], "num_frames=-1"),
        ([{"type": "session.start", "prompt": "x"}, {"type": "what"}], "unknown message type 'what'"),
        ([{"type": "session.start", "prompt": "x"}, {"type": "session.interaction"}], "needs a prompt"),
        (
            [
                {"type": "session.start", "prompt": "x", "num_frames": 5_000},
                {"type": "session.interaction", "prompt": "y"},
            ],
            "can't be changed",
        ),
        ([[1]], "JSON object"),
        (["no json"], "JSON"),
        ([b"\x00"], "JSON"),
    ],
)
async def test_wrong_messages_end_with_a_reason(api: FilmApi, messages: list[Any], says: str) -> None:
    async with api.socket() as socket:
        for message in messages:
            raw = (
                message
                if isinstance(message, bytes)
                else message
                if message == "no json"
                else json.dumps(message)
            )
            await socket.send(raw)
        while True:
            answer = await asyncio.wait_for(socket.recv(), PATIENCE_S)
            if isinstance(answer, str) and (content := json.loads(answer))["type"] == "error":
                break
        assert says in content["error"]["message"]
        with pytest.raises(websockets.ConnectionClosedError) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
    await api.until(lambda: api.pair.engine.report().running == 0)


async def test_threads_of_jobs_leave_no_file_behind(api: FilmApi) -> None:
    """A job's file has no name, and its descriptor is closed when it is forgotten."""
    job = (await api.http.post("/v1/videos", json={"prompt": PROMPT, "num_frames": 21})).json()
    await api.completed(job["id"])
    assert threading.active_count() < 60
    await api.http.delete(f"/v1/videos/{job['id']}")
    assert (await api.http.get(f"/v1/videos/{job['id']}/content")).status_code == 404
