"""The one port over HTTP: the page, health, metrics, the report; and how serving starts and ends."""

import asyncio
import socket
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from protocol import messages as m
from shared.errors import AddressError
from thinker.report import Report
from thinker.server.app import build_app, serve
from thinker.server.static_files import PAGE


async def get(url: str, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(url, **options)


def bearer(secret: str) -> dict[str, bytes]:
    return {"authorization": f"Bearer {secret}".encode()}


async def test_the_page_is_at_the_root(server: Any) -> None:
    response = await get(server.http)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-content-type-options"] == "nosniff"
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert response.text == (PAGE / "index.html").read_text()


@pytest.mark.parametrize("name", sorted(path.name for path in PAGE.iterdir() if path.is_file()))
async def test_every_file_of_the_page_has_its_type(server: Any, name: str) -> None:
    response = await get(f"{server.http}/page/{name}")
    assert response.status_code == 200
    expected = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
    assert response.headers["content-type"].partition(";")[0] == expected[name.rpartition(".")[2]]
    assert response.content == (PAGE / name).read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "page/none.js",
        "page/",
        "page/..%2fserver.py",
        "page/%2e%2e/server.py",
        "nothing",
        f"page/{'x' * 300}.js",
    ],
)
async def test_nothing_else_is_served(server: Any, path: str) -> None:
    assert (await get(f"{server.http}/{path}")).status_code == 404


async def test_ready_follows_the_engine(server: Any) -> None:
    assert (await get(f"{server.http}/healthz")).text == "ok"
    assert (await get(f"{server.http}/readyz")).status_code == 200
    server.engine.ready = False
    assert (await get(f"{server.http}/readyz")).status_code == 503
    server.engine.fault = "the Performer is gone"
    response = await get(f"{server.http}/readyz")
    assert (response.status_code, response.text) == (503, "the Performer is gone")
    assert (await get(f"{server.http}/healthz")).status_code == 200


async def test_the_report_holds_the_loops_lag(run_server: Any) -> None:
    async with run_server(operator_secret="key") as server:
        report = (await get(f"{server.http}/report", headers=bearer("key"))).json()
    assert report.keys() == set(Report.__struct_fields__)
    assert report["stages_ms"]["solve"] == {"p50": 60.0, "p99": 70.0}
    assert report["event_loop_lag_ms"]["p99"] >= 0


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("report", {}),
        ("report", {"params": {"token": "client"}}),
        ("report", {"params": {"token": "operator"}}),
        ("report", {"headers": {"authorization": "Bearer client"}}),
        ("report", {"headers": {"authorization": "Basic operator"}}),
        ("report", {"headers": {"authorization": "operator"}}),
        ("report?operator_secret=operator", {}),
    ],
)
async def test_a_client_can_not_read_the_report(run_server: Any, path: str, options: dict[str, Any]) -> None:
    async with run_server(token="client", operator_secret="operator") as server:
        response = await get(f"{server.http}/{path}", **options)
    assert response.status_code == 401
    assert response.text == "the report wants the operator's secret, as Authorization: Bearer SECRET"


async def test_without_a_secret_there_is_no_report(run_server: Any) -> None:
    async with run_server() as server:
        response = await get(f"{server.http}/report", headers={"authorization": "Bearer"})
    assert response.status_code == 403
    assert "operator's secret" in response.text
    assert "\n" not in response.text


@pytest.mark.parametrize(
    ("token", "secret"),
    [("", None), (None, ""), ("same", "same")],
    ids=["empty token", "empty secret", "same"],
)
def test_secrets_that_would_keep_nobody_out_are_refused(token: str | None, secret: str | None) -> None:
    with pytest.raises(ValueError, match=r"token|secret"):
        build_app(None, token=token, operator_secret=secret)  # type: ignore[arg-type]


async def test_metrics_are_prometheus_text(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        response = await get(f"{server.http}/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = response.text.splitlines()
    assert "thinker_connections 1.0" in lines
    assert "thinker_sessions 1.0" in lines
    assert "thinker_sessions_waiting 0.0" in lines
    assert 'thinker_report_stages_ms{in="solve",of="p99"} 70.0' in lines


async def test_with_a_token_the_numbers_are_guarded(run_server: Any) -> None:
    async with run_server(token="sésame", operator_secret="key") as server:
        metrics = f"{server.http}/metrics"
        assert (await get(metrics)).status_code == 401
        assert (await get(metrics, params={"token": "wrong"})).status_code == 401
        assert (await get(metrics, params={"token": "key"})).status_code == 401
        assert (await get(metrics, params={"token": "sésame"})).status_code == 200
        assert (await get(metrics, headers=bearer("key"))).status_code == 200
        assert (await get(server.http)).status_code == 200, "the page itself holds no secret"


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer open", 200),
        ("bearer open", 200),
        ("BEARER  open", 200),
        ("open", 401),
        ("Basic open", 401),
        ("Beareropen", 401),
        ("Bearer", 401),
        ("Bearer Bearer open", 401),
    ],
)
async def test_the_token_may_come_as_bearer(run_server: Any, authorization: str, status: int) -> None:
    async with run_server(token="open") as server:
        response = await get(f"{server.http}/metrics", headers={"authorization": authorization})
        assert response.status_code == status


async def test_a_port_in_use_is_one_clear_error(engine: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=rf"can't listen on 127.0.0.1:{port}: .*in use"):
            await serve(build_app(engine), host="127.0.0.1", port=port, stop=asyncio.Event())


async def test_an_unknown_host_is_one_clear_error(engine: Any) -> None:
    with pytest.raises(AddressError, match=r"can't listen on 192\.0\.2\.1:0"):
        await serve(build_app(engine), host="192.0.2.1", port=0, stop=asyncio.Event())


async def test_stopping_closes_the_sessions(run_server: Any) -> None:
    async with run_server() as server:
        client = await server.connect()
        await client.start()
        closed = asyncio.create_task(client.closed())
    assert await closed == (1001, "the server is shutting down")
    assert server.engine.open == []


async def test_stopping_tells_those_who_wait_too(run_server: Any, caplog: Any) -> None:
    async with run_server() as server:
        clients = [await server.connect() for _ in range(3)]
        await clients[0].start()
        for client in clients[1:]:
            await client.send_hello()
            await client.next(m.Queued)
        closed = [asyncio.create_task(client.closed()) for client in clients]
    assert await asyncio.gather(*closed) == [(1001, "the server is shutting down")] * 3
    assert server.engine.opened == 1, "a slot that comes free while all end goes to nobody"
    assert "Traceback" not in caplog.text


async def test_a_server_that_ends_lets_nobody_in(run_server: Any) -> None:
    async with run_server() as server, await server.connect():
        ending = asyncio.create_task(server.app.state.manager.end_sessions(within_s=5.0))
        with pytest.raises(InvalidStatus) as refused:
            await server.connect()
        assert refused.value.response.status_code == 503
        await ending


async def test_a_server_can_be_stopped_before_it_began(engine: Any) -> None:
    stop = asyncio.Event()
    stop.set()
    await serve(build_app(engine), host="127.0.0.1", port=0, stop=stop)


async def test_metrics_reach_the_client_once_a_second(server: Any) -> None:
    async with await server.connect() as client:
        await client.start()
        metrics = await client.next(m.Metrics)
    assert metrics.stages_ms == {"encode": 3.0, "solve": 60.0}
    assert (metrics.model_side_ms, metrics.loop_ms, metrics.emitted) == (90.5, 0.0, 1)
