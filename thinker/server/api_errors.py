"""Faults of requests, in the shape of OpenAI's API: what its clients read and show."""

from typing import Any

from starlette.responses import JSONResponse


class ApiError(Exception):
    """A request that can't be served: status, one sentence, and which field it is about."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """`{"error": {...}}`."""
        kind = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers = {"www-authenticate": "Bearer"} if self.status == 401 else None
        return JSONResponse(self.body, self.status, headers=headers)


def unauthorised() -> ApiError:
    """The token is missing or wrong."""
    return ApiError(401, "the token is missing or wrong", code="invalid_api_key")
