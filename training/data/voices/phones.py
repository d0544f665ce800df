"""From the phones of a recording to the phone slots of units: one phone for each 40 ms, none skipped."""

from shared.models.pocket.speech.phones import PHONE_IDS, SILENCE

FRAME_MS = 40


def frames_of_each(phones: list[tuple[str, float]]) -> list[int]:
    """How many frames of 40 ms each phone gets, given (phone, end in seconds) in order of time.

    Every phone but a pause keeps at least one frame, since the pointer that speaks them can't skip; a run of
    very short phones therefore lags for a frame or two and catches up in the next long one.
    """
    counts, at = [], 0
    for phone, end_s in phones:
        end = max(round(end_s * 1000 / FRAME_MS), at + (phone != "pau"))
        counts.append(end - at)
        at = end
    return counts


def slots_of(phones: list[tuple[str, float]], num_frames: int) -> list[int]:
    """Phone ids of `num_frames` frames; silence after the last phone."""
    counts = frames_of_each(phones)
    slots = [PHONE_IDS[name] for (name, _), count in zip(phones, counts, strict=True) for _ in range(count)]
    slots += [SILENCE] * max(0, num_frames - len(slots))
    return slots[:num_frames]
