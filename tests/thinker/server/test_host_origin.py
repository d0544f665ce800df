"""The names that the server goes by, and the origins whose pages may talk to it."""

from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

PATHS = ("", "healthz", "readyz", "metrics", "page/app.js")


async def status(url: str, **headers: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(url, headers=headers)).status_code


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil.example", "[", ""]
)
async def test_a_name_that_may_lead_elsewhere_is_refused(server: Any, host: str) -> None:
    for path in PATHS:
        assert await status(f"{server.http}/{path}", host=host) == 421


async def test_a_rebound_name_opens_no_session(server: Any) -> None:
    """The page of such a name is of the very origin that it asks, so its origin tells nothing."""
    with pytest.raises(InvalidStatus) as refused:
        await server.connect(name="evil.example:8765", origin="http://evil.example:8765")
    assert refused.value.response.status_code == 421
    assert b"--allow-origin" in refused.value.response.body


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:1234",
        "192.0.2.7",
        "[::1]:8765",
        "thinker.lan:8765",
        "friend.example",
        "other.example:1",
    ],
)
async def test_own_names_and_numbers_are_let_in(run_server: Any, host: str) -> None:
    origins = ["https://friend.example", "http://other.example:8080"]
    async with run_server(host="Thinker.lan", allow_origins=origins) as server:
        for path in PATHS:
            assert await status(f"{server.http}/{path}", host=host) == 200
        async with await server.connect(name=host, origin=f"http://{host}") as client:
            await client.start()


async def test_other_origins_are_refused(run_server: Any) -> None:
    async with run_server(allow_origins=["https://Friend.example"]) as server:
        for origin in ("http://evil.example", "http://friend.example", "null", "http://127.0.0.1:1", "x", ""):
            for path in PATHS:
                assert await status(f"{server.http}/{path}", origin=origin) == 403
            with pytest.raises(InvalidStatus) as refused:
                await server.connect(origin=origin)
            assert refused.value.response.status_code == 403
        for origin in (server.http, "https://friend.example"):
            for path in PATHS:
                assert await status(f"{server.http}/{path}", origin=origin) == 200
            async with await server.connect(origin=origin) as client:
                await client.start()
