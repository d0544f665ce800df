"""The two secrets of a server: the token that clients bring, and the operator's, which reads the report."""

import secrets

from starlette.requests import HTTPConnection


class Access:
    """Who is let in to what: clients with the token, if there is one, and whoever runs the server.

    Comparisons take the same time whatever is offered.

    Raises:
        ValueError: a secret is empty, which would look like a closed door and be none; or both are the same.
    """

    def __init__(self, *, token: str | None, operator_secret: str | None) -> None:
        if token == "":
            raise ValueError("the token is empty; None is an open server")
        if operator_secret == "":
            raise ValueError("the operator's secret is empty; None is a server without a report")
        if token is not None and token == operator_secret:
            raise ValueError(
                "the token and the operator's secret are the same: clients could read the report"
            )
        self.token = token
        self._operator_secret = operator_secret

    def has_token(self, connection: HTTPConnection) -> bool:
        """Whether ?token= or an Authorization header (Bearer) holds the token; True when there is none."""
        if self.token is None:
            return True
        return _same(connection.query_params.get("token", _bearer(connection)), self.token)

    @property
    def has_operator(self) -> bool:
        """Whether anybody can be the operator."""
        return self._operator_secret is not None

    def is_operator(self, connection: HTTPConnection) -> bool:
        """Whether an Authorization header holds the operator's secret; an address may end up in a log."""
        return self._operator_secret is not None and _same(_bearer(connection), self._operator_secret)


def _bearer(connection: HTTPConnection) -> str:
    scheme, _, credentials = connection.headers.get("authorization", "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else ""  # schemes have no case


def _same(offered: str, secret: str) -> bool:
    return secrets.compare_digest(offered.encode(), secret.encode())
