"""What a client may do: an bucket that comes back with time, and bounds on its silence."""

from protocol.errors import CloseCode
from thinker.server.limits import ClientLimits, LimitChecker, TokenBucket

LIMITS = ClientLimits(hello_s=10.0, silent_s=20.0, bucket_burst=4, bucket_per_s=2, bucket_bytes=100)


def test_an_bucket_is_a_burst_and_a_rate() -> None:
    bucket = TokenBucket(burst=10, per_s=2, now=100.0)
    assert bucket.spend(10, 100.0)
    assert not bucket.spend(1, 100.0)
    assert bucket.spend(1, 101.0)
    assert not bucket.spend(11, 1_000.0), "it holds no more than the burst"


def test_a_large_message_counts_for_several() -> None:
    checker = LimitChecker(LIMITS, now=0.0)
    assert checker.received(100, now=0.0) is None
    assert checker.received(100, now=0.0) is None
    close = checker.received(0, now=0.0)
    assert close is not None
    assert close.code is CloseCode.POLICY
    assert checker.received(50, now=2.0) is None


def test_a_hello_is_waited_for_whatever_else_comes() -> None:
    checker = LimitChecker(LIMITS, now=0.0)
    checker.received(1, now=9.0)
    assert checker.silent(had_hello=False, now=9.9) is None
    close = checker.silent(had_hello=False, now=10.0)
    assert close is not None
    assert (close.code, close.reason) == (CloseCode.HELLO_TIMEOUT, "no hello within 10 s")


def test_any_message_breaks_the_silence() -> None:
    checker = LimitChecker(LIMITS, now=0.0)
    assert checker.silent(had_hello=True, now=19.0) is None
    checker.received(1, now=19.0)
    assert checker.silent(had_hello=True, now=38.9) is None
    close = checker.silent(had_hello=True, now=39.0)
    assert close is not None
    assert close.code is CloseCode.TRY_AGAIN_LATER
