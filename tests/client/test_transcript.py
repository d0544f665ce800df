"""Text counts as heard when its unit is played."""

from client.transcript import Transcript


def test_text_is_heard_with_its_unit() -> None:
    transcript = Transcript(unit_us=160_000)
    transcript.add("hello ", 3)
    transcript.add("there", 5)
    assert transcript.advance(480_000) == ""
    assert transcript.advance(481_000) == "hello "
    assert transcript.advance(490_000) == ""
    assert (transcript.said, transcript.heard) == ("hello there", "hello ")
    assert transcript.advance(2_000_000) == "there"


def test_what_an_interruption_cut_off_is_never_heard() -> None:
    transcript = Transcript(unit_us=160_000)
    transcript.add("one ", 0)
    transcript.add("two ", 1)
    transcript.advance(100_000)
    transcript.cut()
    transcript.add("three", 2)
    transcript.advance(10_000_000)
    assert transcript.said == "one two three"
    assert transcript.heard == "one three"
