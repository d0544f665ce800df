"""What a client may do: an allowance that comes back with time, and bounds on its silence."""

from protocol.errors import CloseCode
from thinker.server.limits import ClientLimits, LimitChecker, TokenBucket

LIMITS = ClientLimits(hello_s=10.0, silent_s=20.0, allowance_burst=4, allowance_per_s=2, allowance_bytes=100)


def test_an_allowance_is_a_burst_and_a_rate() -> None:
    allowance = TokenBucket(burst=10, per_s=2, now=100.0)
    assert allowance.spend(10, 100.0)
    assert not allowance.spend(1, 100.0)
    assert allowance.spend(1, 101.0)
    assert not allowance.spend(11, 1_000.0), "it holds no more than the burst"


def test_a_large_message_counts_for_several() -> None:
    conduct = LimitChecker(LIMITS, now=0.0)
    assert conduct.heard(100, now=0.0) is None
    assert conduct.heard(100, now=0.0) is None
    misconduct = conduct.heard(0, now=0.0)
    assert misconduct is not None
    assert misconduct.code is CloseCode.POLICY
    assert conduct.heard(50, now=2.0) is None


def test_a_hello_is_waited_for_whatever_else_comes() -> None:
    conduct = LimitChecker(LIMITS, now=0.0)
    conduct.heard(1, now=9.0)
    assert conduct.silence(greeted=False, now=9.9) is None
    misconduct = conduct.silence(greeted=False, now=10.0)
    assert misconduct is not None
    assert (misconduct.code, misconduct.reason) == (CloseCode.HELLO_TIMEOUT, "no hello within 10 s")


def test_any_message_breaks_the_silence() -> None:
    conduct = LimitChecker(LIMITS, now=0.0)
    assert conduct.silence(greeted=True, now=19.0) is None
    conduct.heard(1, now=19.0)
    assert conduct.silence(greeted=True, now=38.9) is None
    misconduct = conduct.silence(greeted=True, now=39.0)
    assert misconduct is not None
    assert misconduct.code is CloseCode.TRY_AGAIN_LATER
