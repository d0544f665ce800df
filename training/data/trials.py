"""Sound to test listening with: a user who asks given things, and stretches in which nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.models.pocket.dialogue.replies import Request
from training.data.noise import background
from training.data.rooms import captured, impulse_response, worn
from training.data.scenes import Bank, Odds, Scene, compose, pick, scene_of, voiced
from training.data.synth import RATE, Sound, decibels
from training.data.targets import FRAME, Placed

LEVEL_DB = -23.0  # RMS of what a user says in a dialogue, dBFS
CHUNK_S = 10.0  # a stretch of negatives changes its speaker, noise and room so often
SEAM = RATE // 50  # samples over which one chunk fades out and the next one in
NOTHING_ASKED = Odds(request=0.0, no_user=0.4, cut_off=0.0)  # half a near miss could be a request


def dialogue(
    bank: Bank,
    rng: np.random.Generator,
    requests: Sequence[Request],
    *,
    gaps_s: Sequence[float],
    voice: str | None = None,
    lead_s: float = 1.0,
    snr_db: float | None = None,
    room: bool = False,
) -> Scene:
    """One user who says the given things, each followed by silence of `gaps_s`; `events` tell when exactly.

    Args:
        bank: whom to draw from.
        rng: the same one gives the same dialogue.
        requests: what is asked, in order; NONE is a sentence that asks for nothing.
        gaps_s: silence after each, as many as `requests`.
        voice: who speaks; by default one of those who can say most of it. What they lack others say.
        lead_s: silence before the first.
        snr_db: level of speech over a random background; by default there is none.
        room: whether it sounds in a random room. With neither, the sound is clean.

    Raises:
        TrainingError: nobody in the bank says one of the requests.
    """
    own = bank.voices == (_most_able(bank, rng, requests) if voice is None else voice)
    said = []
    at = lead_s * RATE
    for request, gap_s in zip(requests, gaps_s, strict=True):
        spoken = pick(bank, rng, bank.requests == request, own, f"{request.name} in it")
        said.append(Placed(spoken=spoken, start=round(at)))
        at = said[-1].end + gap_s * RATE
    num = -(-round(at) // FRAME) * FRAME
    dry = voiced(said, rng, num, LEVEL_DB)
    if snr_db is None and not room:
        return scene_of(np.clip(dry, -1, 1), said)
    sources = [(dry, impulse_response(rng) if room else None)]
    if snr_db is not None:
        sources.append((background(rng, num) * np.float32(decibels(LEVEL_DB - snr_db)), None))
    return scene_of(worn(rng, captured(rng, sources), faults=0), said)


def negatives(bank: Bank, rng: np.random.Generator, seconds: float, *, echoes: Sequence[Sound] = ()) -> Sound:
    """Noise, music, other people and sentences that ask for nothing: 16 kHz, in [-1, 1], whole frames."""
    fade = np.ones(round(CHUNK_S * RATE), np.float32)
    fade[:SEAM] = np.linspace(0, 1, SEAM)
    fade[-SEAM:] = np.linspace(1, 0, SEAM)
    num = round(seconds * RATE / FRAME) * FRAME
    chunks = [
        compose(bank, rng, seconds=CHUNK_S, odds=NOTHING_ASKED, echoes=echoes).pcm * fade
        for _ in range(-(-num // len(fade)))
    ]
    return np.concatenate(chunks)[:num]


def _most_able(bank: Bank, rng: np.random.Generator, requests: Sequence[Request]) -> str:
    names, speaker = np.unique(bank.voices, return_inverse=True)
    able = np.zeros(len(names), np.int64)
    for request in set(requests):
        able[np.unique(speaker[bank.requests == request])] += 1
    return str(rng.choice(names[able == able.max()]))
