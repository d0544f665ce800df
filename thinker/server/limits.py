"""What a client may do and how long it may take. No clock in here: the caller brings the time."""

from dataclasses import dataclass

from protocol.errors import Close, CloseCode


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLimits:
    """What a client may do, how long it may take, and how many there may be.

    The token bucket counts one for a message and one more for every `bucket_bytes` of it; a session needs
    about 30 a second.
    """

    connections: int = 64
    waiting_sessions: int = 32
    hello_s: float = 10.0
    silent_s: float = 20.0
    ping_every_s: float = 5.0
    close_s: float = 2.0
    warn_every_s: float = 1.0
    bucket_burst: int = 400
    bucket_per_s: int = 200
    bucket_bytes: int = 64 * 1024
    waiting_user_units: int = 8
    waiting_agent_units: int = 4
    waiting_messages: int = 512  # over the burst: each of its messages may have an answer


class LimitChecker:
    """Whether one client keeps to the limits; `now` is in seconds, of any clock that the caller keeps to."""

    def __init__(self, limits: ClientLimits, *, now: float) -> None:
        self._limits = limits
        self._opened_at = self._received_at = now
        self._bucket = TokenBucket(burst=limits.bucket_burst, per_s=limits.bucket_per_s, now=now)

    def received(self, size: int, *, now: float) -> Close | None:
        """A message of so many bytes came; the reason to end, when it is more than a session needs."""
        self._received_at = now
        if self._bucket.spend(1 + size / self._limits.bucket_bytes, now):
            return None
        return Close(CloseCode.POLICY, "more messages or bytes than a session needs")

    def silent(self, *, had_hello: bool, now: float) -> Close | None:
        """The reason to end, when the client has sent nothing for too long; `had_hello`: its hello came."""
        if not had_hello:
            if now - self._opened_at < self._limits.hello_s:
                return None
            return Close(CloseCode.HELLO_TIMEOUT, f"no hello within {self._limits.hello_s:g} s")
        if now - self._received_at < self._limits.silent_s:
            return None
        return Close(CloseCode.TRY_AGAIN_LATER, f"nothing heard for {self._limits.silent_s:g} s")


class TokenBucket:
    """A token bucket: `burst` at once, `per_s` in the long run; `now` as above."""

    def __init__(self, *, burst: float, per_s: float, now: float) -> None:
        self._burst, self._per_s = burst, per_s
        self._left, self._at = burst, now

    def spend(self, tokens: float, now: float) -> bool:
        """Take tokens; false when there weren't so many."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s) - tokens
        self._at = now
        return self._left >= 0
