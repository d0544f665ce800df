"""Train the audio codec on the agent's voice (docs/pocket-model.md has the recipe and its results)."""

import math
import random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shared.models.audio_codec import AudioCodec, AudioCodecConfig
from shared.models.pocket.network.encoders import mel_filters
from training.data.voices.agent import AgentUtterance
from training.data.voices.sound import write_wav
from training.loop import TrainConfig, train

CLIP_UNITS = 8
UNIT_SAMPLES = 2560
TRANSFORM_SIZES = (256, 512, 1024)
KL_WEIGHT = 0.01
CLICK_WEIGHT = 10.0
SESSION_STARTS_IN = 4  # one clip in so many begins as a session does: in silence, with an empty decoder
MEL_BANDS = 80
SAMPLE_RATE = 16_000


def voice_track(utterances: list[AgentUtterance], seed: int) -> NDArray[np.float32]:
    """All sentences in a random order with pauses of up to 1.2 s of digital silence between them."""
    rng = random.Random(seed)
    order = rng.sample(utterances, len(utterances))
    pieces = []
    for utterance in order:
        pieces += [utterance.pcm, np.zeros(rng.randint(0, 19_200), np.float32)]
    return np.concatenate(pieces)


class SpectralLoss(nn.Module):
    """Multi-resolution: L1 of log-magnitude, spectral convergence, relative complex L1, L1 of log-mel."""

    def forward(self, made_BN: Tensor, real_BN: Tensor) -> Tensor:
        """Return the scalar loss of a batch of sounds."""
        total = made_BN.new_zeros(())
        for size in TRANSFORM_SIZES:
            window = torch.hann_window(size, device=made_BN.device)
            made, real = (
                torch.stft(x, size, size // 4, window=window, return_complex=True) for x in (made_BN, real_BN)
            )
            made_abs, real_abs = (x.abs().clamp(min=2e-3) for x in (made, real))
            total = total + (made_abs.log() - real_abs.log()).abs().mean()
            total = total + (made_abs - real_abs).norm() / (real_abs.norm() + 1e-3)
            total = total + 0.3 * (made - real).abs().mean() / (real_abs.mean() + 1e-3)
            mel = mel_filters(size, MEL_BANDS, SAMPLE_RATE).to(made_BN.device)
            made_mel, real_mel = ((x.transpose(1, 2) @ mel + 1e-2).log() for x in (made_abs, real_abs))
            total = total + (made_mel - real_mel).abs().mean()
        return total / len(TRANSFORM_SIZES)


def reconstruct(codec: AudioCodec, pcm_N: NDArray[np.float32]) -> NDArray[np.float32]:
    """Encode and decode a whole recording."""
    config, device = codec.config, codec.latent_mean_Z.device
    units = math.ceil(len(pcm_N) / UNIT_SAMPLES)
    padded = np.zeros(units * UNIT_SAMPLES + config.lookahead, np.float32)
    padded[: len(pcm_N)] = pcm_N
    sound = torch.from_numpy(padded).to(device)[None]
    with torch.no_grad():
        # The first window reaches back over the sound that the advance skipped.
        state = codec.encoder.init_state(1, sound[:, : config.lookahead])
        z_BTZ = codec.encode(sound[:, config.lookahead :], state)
        return codec.decode(z_BTZ, codec.decoder.init_state(1))[0].cpu().numpy()


@torch.no_grad()
def measure_statistics(codec: AudioCodec, track: NDArray[np.float32], seconds: int = 600) -> None:
    """Set latent mean and deviation from the first part of the voice track.

    The deviation is that of what the decoder was trained on, posterior noise included: dims that carry
    nothing then stay near 0 and are not blown up to unit variance.
    """
    look, step, device = codec.config.lookahead, 40 * UNIT_SAMPLES, codec.latent_mean_Z.device
    means, variances = [], []
    state = codec.encoder.init_state(1)
    for start in range(look, min(len(track), seconds * codec.config.sample_rate) - step, step):
        piece = torch.from_numpy(track[start : start + step]).to(device)
        mean, log_variance = codec.encoder(piece[None], state)
        means.append(mean[0])
        variances.append(log_variance[0].exp())
    mean = torch.cat(means)
    codec.latent_mean_Z.copy_(mean.mean(0))
    codec.latent_std_Z.copy_((mean.var(0) + torch.cat(variances).mean(0)).sqrt())


def train_audio_codec(
    config: TrainConfig,
    sizes: AudioCodecConfig,
    speech: list[AgentUtterance],
    held_out: list[AgentUtterance],
    *,
    batch: int,
    resume: bool,
    start: AudioCodec | None = None,
    frozen_encoder: AudioCodec | None = None,
) -> AudioCodec:
    """Train encoder and decoder, from `start` or from nothing; or only the decoder of `frozen_encoder`."""
    torch.manual_seed(config.seed)
    track = voice_track(speech, config.seed)
    codec = frozen_encoder or start or AudioCodec(sizes)
    codec.encoder.requires_grad_(frozen_encoder is None)
    spectral = SpectralLoss()
    span, look = CLIP_UNITS * UNIT_SAMPLES, sizes.lookahead

    def losses(step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng((config.seed, step))
        starts = rng.integers(0, len(track) - span - 2 * look, batch)
        gains = rng.uniform(0.6, 1.1, (batch, 1)).astype(np.float32)
        clips = torch.from_numpy(np.stack([track[s : s + span + 2 * look] for s in starts]) * gains)
        begins = batch // SESSION_STARTS_IN
        clips[:begins, : 2 * look] = 0
        clips = clips.to(config.device)
        with torch.autocast(torch.device(config.device).type, torch.bfloat16):
            state = codec.encoder.init_state(batch, clips[:, look : 2 * look])
            mean, log_variance = codec.encoder(clips[:, 2 * look :], state)
            log_variance = log_variance.float().clamp(-12, 4)
            mean = mean.float()
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            made = codec.decoder(z, codec.decoder.init_state(batch))
        # The decoder's first window has no past here. That can be compared only where the past was silence.
        click = made[:begins, :look].abs().sum() / (batch * look)
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
        return {
            "spectral": spectral(made[:, look:], clips[:, 2 * look : look + span]),
            "click": CLICK_WEIGHT * click,
            "kl": KL_WEIGHT * kl,
        }

    def evaluate(model: nn.Module, step: int) -> dict[str, float]:
        del step  # the samples are overwritten each time
        assert isinstance(model, AudioCodec)
        total = 0.0
        for index, utterance in enumerate(held_out[:20]):
            made = reconstruct(model, utterance.pcm)[: len(utterance.pcm)]
            total += spectral(torch.from_numpy(made)[None], torch.from_numpy(utterance.pcm)[None]).item()
            if index < 6:
                write_wav(config.folder / f"sample-{index}.wav", made)
        return {"held_out_spectral": total / len(held_out[:20])}

    average = train(config, codec, losses, evaluate, resume=resume)
    codec.load_state_dict(average)
    codec.eval()
    if frozen_encoder is None:
        measure_statistics(codec, track)
    return codec
