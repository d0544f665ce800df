"""A user on film: an MP4 of somebody who asks things before a camera, to be played to a live session."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shared.models.pocket.dialogue.replies import Request
from training.data.hearing.scenes import AudioScene, UtteranceSource, pick, scene_of, voiced
from training.data.hearing.targets import FRAME, Placed, SpokenEvent
from training.data.noise.acoustics import captured, impulse_response, worn
from training.data.noise.background import background
from training.data.noise.synth import RATE, decibels
from training.data.samples import write_mp4
from training.data.vision.scene import follow

GAPS_S = (4.5, 9.0)  # after each thing said: an answer fits
STORY_GAP_S = 13.0
NOTHING_ASKED = 0.2  # share of what is said that asks for nothing
LEVEL_DB, SNR_DB = -23.0, 25.0  # of what is said (RMS, dBFS), and over the noise
LEAD_S = 1.0  # silence before the first
FRAMES_PER_SECOND, FRAMES_PER_UNIT = 25, 4
STRIDE_FRAMES = 60  # between the places that the user moves through
REACH = 0.6  # of those places, in [-1, 1]


def write_user(
    path: Path, bank: UtteranceSource, rng: np.random.Generator, seconds: float
) -> tuple[SpokenEvent, ...]:
    """Write about `seconds` of a speaker of `bank` who asks at random; a JSON beside it says what and when.

    Returns:
        What is said, in seconds.

    Raises:
        TrainingError: nobody in the bank says one of the requests.
    """
    requests, gaps_s = _plan(rng, seconds)
    scene = dialogue(bank, rng, requests, gaps_s=gaps_s)
    frames = len(scene.pcm) // 640 // FRAMES_PER_UNIT * FRAMES_PER_UNIT
    marks = rng.uniform(-REACH, REACH, (frames // STRIDE_FRAMES + 2, 2))
    at = np.arange(frames) / STRIDE_FRAMES
    places = np.stack([np.interp(at, np.arange(len(marks)), column) for column in marks.T], axis=1)
    view = follow(rng, places, held_out=True)
    write_mp4(path, list(view.frames), scene.pcm[: frames * 640])
    content = [
        {"request": event.request.name.lower(), "start_s": event.start_s, "end_s": event.end_s}
        for event in scene.events
    ]
    path.with_suffix(".json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return scene.events


def _plan(rng: np.random.Generator, seconds: float) -> tuple[list[Request], list[float]]:
    """What is said and how long the pause after it is, for about so long."""
    asked = [request for request in Request if request]
    requests, gaps_s, left = list[Request](), list[float](), seconds
    while left > 0:
        nothing = rng.random() < NOTHING_ASKED
        request = Request.NONE if nothing else asked[rng.integers(len(asked))]
        gap_s = STORY_GAP_S if request is Request.STORY else float(rng.uniform(*GAPS_S))
        requests.append(request)
        gaps_s.append(gap_s)
        left -= gap_s + 1.5
    return requests, gaps_s


def dialogue(
    bank: UtteranceSource, rng: np.random.Generator, requests: Sequence[Request], *, gaps_s: Sequence[float]
) -> AudioScene:
    """One user in a room who says the given things, each followed by silence of `gaps_s`.

    NONE is a sentence that asks for nothing. The speaker is one of those who can say most of it; what they
    lack others say.

    Raises:
        TrainingError: nobody in the bank says one of the requests.
    """
    own = bank.voices == _most_able(bank, rng, requests)
    said: list[Placed] = []
    at = LEAD_S * RATE
    for request, gap_s in zip(requests, gaps_s, strict=True):
        spoken = pick(bank, rng, bank.requests == request, own, f"{request.name} in it")
        said.append(Placed(spoken=spoken, start=round(at)))
        at = said[-1].end + gap_s * RATE
    num = -(-round(at) // FRAME) * FRAME
    voice = (voiced(said, rng, num, LEVEL_DB), impulse_response(rng))
    noise = (background(rng, num) * np.float32(decibels(LEVEL_DB - SNR_DB)), None)
    return scene_of(worn(rng, captured(rng, [voice, noise]), faults=0), said)


def _most_able(bank: UtteranceSource, rng: np.random.Generator, requests: Sequence[Request]) -> str:
    names, speaker = np.unique(bank.voices, return_inverse=True)
    able = np.zeros(len(names), np.int64)
    for request in set(requests):
        able[np.unique(speaker[bank.requests == request])] += 1
    return str(rng.choice(names[able == able.max()]))
