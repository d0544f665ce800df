"""Long recordings of the agent alone, as latents: sentences with pauses, encoded frame by frame."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track as progress
from torch import Tensor

from shared.models.audio_codec import AudioCodec
from shared.models.layout import STEPS_PER_UNIT
from shared.models.pocket.config import PHONE_LEAD
from shared.models.pocket.speech.phones import SILENCE
from shared.models.video_codec import VideoCodec
from training import files
from training.data.faces.face import draw
from training.data.faces.motion import gestures, poses
from training.data.voices.agent import AgentUtterance
from training.data.voices.phones import slots_of
from training.video_codec import encoder_parts, to_tensor

FRAME_SAMPLES = 640
CHUNK_FRAMES = 64
ORDER_SEED, TRACK_SEED, HELD_OUT_SEED = 5, 100, 199
# Share of all pauses, from, to. In the longest ones the agent has long been listening.
PAUSES_S = ((0.5, 0.0, 0.4), (0.25, 0.4, 2.0), (0.15, 2.0, 6.0), (0.1, 6.0, 12.0))
CUT_SHORT = 0.15  # share of the sentences in which it is told to stop


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """F frames of 40 ms: picture [F, N, Z], sound [F, Z], and what the slots say of each frame.

    That is its phone [F], already run ahead, and its gesture [F, 3] (gaze to the right, gaze down, nod).
    """

    picture: Tensor
    sound: Tensor
    phones: Tensor
    gesture: Tensor

    def words(self) -> Tensor:
        """1 for each unit that begins at a frame and has a phone in it, else 0: [F - 3]."""
        voiced = (self.phones != SILENCE).float()
        return (voiced.unfold(0, STEPS_PER_UNIT, 1).amax(1)).long()


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechTimeline:
    """What is said and when: sound, (phone, end in seconds), the phone of each frame."""

    pcm: NDArray[np.float32]
    phones: list[tuple[str, float]]
    slots: list[int]


def lay_out(
    utterances: list[AgentUtterance], rng: np.random.Generator, *, cut_short: float = CUT_SHORT
) -> SpeechTimeline:
    """Put sentences after one another with pauses between, all starting on a frame; cut some of them short.

    Flite's sentences end by themselves, but a user may end the agent's in the midst of a phone.
    """
    pcm, phones, slots = [], list[tuple[str, float]](), list[int]()
    for utterance in utterances:
        _, low, high = PAUSES_S[rng.choice(len(PAUSES_S), p=[share for share, _, _ in PAUSES_S])]
        pause = round(rng.uniform(low, high) * 25)
        spoken = _on_frames(utterance)
        if rng.uniform() < cut_short:
            spoken = _cut_short(spoken, int(rng.integers(1, len(spoken.slots))))
        start_s = (len(slots) + pause) * 0.04
        phones.append(("pau", start_s))
        phones += [(phone, start_s + end_s) for phone, end_s in spoken.phones]
        slots += [SILENCE] * pause + spoken.slots
        pcm += [np.zeros(pause * FRAME_SAMPLES, np.float32), spoken.pcm]
    return SpeechTimeline(pcm=np.concatenate(pcm), phones=phones, slots=slots)


def _on_frames(utterance: AgentUtterance) -> SpeechTimeline:
    """A sentence alone, filled up to whole frames."""
    frames = -(-len(utterance.pcm) // FRAME_SAMPLES)
    pcm = np.pad(utterance.pcm, (0, frames * FRAME_SAMPLES - len(utterance.pcm)))
    return SpeechTimeline(pcm=pcm, phones=utterance.phones, slots=slots_of(utterance.phones, frames))


def _cut_short(spoken: SpeechTimeline, frame: int) -> SpeechTimeline:
    """The same up to a frame; in that one the sound fades, and slots and lips are at rest from there on."""
    cut = frame * FRAME_SAMPLES
    pcm = spoken.pcm[: cut + FRAME_SAMPLES].copy()
    pcm[cut:] *= np.linspace(1, 0, FRAME_SAMPLES, dtype=np.float32)
    begins_s = [0.0, *(end_s for _, end_s in spoken.phones)]
    phones = [
        (phone, min(end_s, frame * 0.04))
        for (phone, end_s), begin_s in zip(spoken.phones, begins_s, strict=False)
        if begin_s < frame * 0.04
    ]
    return SpeechTimeline(pcm=pcm, phones=phones, slots=[*spoken.slots[:frame], SILENCE])


@torch.no_grad()
def tokenise(
    timeline: SpeechTimeline, audio: AudioCodec, video: VideoCodec, rng: np.random.Generator
) -> Track:
    """Run both codecs over a timeline; about 3 ms a frame on one core."""
    frames = len(timeline.slots)
    chosen = poses(timeline.phones, frames, rng)
    look = audio.config.lookahead
    device = audio.latent_mean_Z.device
    padded = torch.from_numpy(np.pad(timeline.pcm, (0, look))).to(device)
    audio_state = audio.encoder.init_state(1, padded[None, :look])
    video_state = video.init_state(1)
    pictures, sounds = [], []
    for start in progress(range(0, frames, CHUNK_FRAMES), "encoding the agent"):
        stop = min(start + CHUNK_FRAMES, frames)
        pcm = padded[start * FRAME_SAMPLES + look : stop * FRAME_SAMPLES + look]
        sounds.append(audio.encode(pcm[None], audio_state)[0])
        drawn = to_tensor([draw(pose, video.config.height) for pose in chosen[start:stop]])
        z, video_state = video.encode(drawn[None].to(device), video_state)
        pictures.append(z[0])
    return Track(
        picture=torch.cat(pictures).cpu(),
        sound=torch.cat(sounds).cpu(),
        phones=torch.tensor(timeline.slots[PHONE_LEAD:] + [SILENCE] * PHONE_LEAD),
        gesture=torch.from_numpy(gestures(chosen)),
    )


def training_track(
    folder: Path,
    speech: list[AgentUtterance],
    audio: AudioCodec,
    video: VideoCodec,
    *,
    sentences: int,
    parts: int,
) -> Track:
    """A random `sentences` of `speech` as latents, read from `folder` or made in `parts` files there."""
    order = np.random.default_rng(ORDER_SEED).permutation(len(speech))[:sentences]
    name = f"tracks-{_encoders(audio, video)}-{len(order)}-of-{len(speech)}"
    made = [
        _made(
            folder / f"{name}-{part}-of-{parts}.pt",
            [speech[i] for i in order[part::parts]], audio, video, TRACK_SEED + part,
        )
        for part in range(parts)
    ]  # fmt: skip
    return Track(
        picture=torch.cat([track.picture for track in made]),
        sound=torch.cat([track.sound for track in made]),
        phones=torch.cat([track.phones for track in made]),
        gesture=torch.cat([track.gesture for track in made]),
    )


def held_out_track_of(
    folder: Path, held_out: list[AgentUtterance], audio: AudioCodec, video: VideoCodec
) -> Track:
    """All of the held-out sentences as latents, likewise."""
    path = folder / f"tracks-{_encoders(audio, video)}-held-out-{len(held_out)}.pt"
    return _made(path, held_out, audio, video, HELD_OUT_SEED)


def _encoders(audio: AudioCodec, video: VideoCodec) -> str:
    """Latents are good for as long as these stay: both encoders and the statistics that normalise."""
    parts = (audio.encoder, *encoder_parts(video))
    statistics = [c for codec in (audio, video) for c in (codec.latent_mean_Z, codec.latent_std_Z)]
    return files.digest_of([*statistics, *(w for part in parts for w in part.state_dict().values())])


def _made(
    path: Path, utterances: list[AgentUtterance], audio: AudioCodec, video: VideoCodec, seed: int
) -> Track:
    if not path.exists():
        rng = np.random.default_rng(seed)
        track = tokenise(lay_out(utterances, rng), audio, video, rng)
        content = {
            "picture": track.picture.half(), "sound": track.sound.half(),
            "phones": track.phones.to(torch.int16), "gesture": track.gesture.half(),
        }  # fmt: skip
        files.write(path, content)
    saved = files.read(path)
    return Track(
        picture=saved["picture"].float(), sound=saved["sound"].float(),
        phones=saved["phones"].long(), gesture=saved["gesture"].float(),
    )  # fmt: skip
