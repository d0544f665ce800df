import math

import pytest
import torch
from torch import Tensor

from shared.models.audio_codec import AudioCodec, AudioCodecConfig
from shared.models.onednn import pack

SIZES = AudioCodecConfig(
    encoder_dim=16, decoder_dim=16, encoder_blocks=2, decoder_blocks=2, latent_blocks=1, latent_dim=8
)
UNIT = 4  # latents
UNIT_SAMPLES = UNIT * SIZES.samples_per_latent
# fp32: convolutions and the overlap of windows sum in another order when the pieces are shorter; samples are
# below 1 here.
ROUNDING = {"atol": 1e-5, "rtol": 1e-4}


@pytest.fixture
def codec() -> AudioCodec:
    codec = AudioCodec(SIZES).eval()
    codec.latent_mean_Z.normal_()
    codec.latent_std_Z.uniform_(0.5, 2)
    return codec.requires_grad_(False)


def encode_from_the_start(codec: AudioCodec, pcm_BN: Tensor) -> Tensor:
    """Latents of a whole recording that is followed by silence."""
    look = SIZES.lookahead
    padded = torch.nn.functional.pad(pcm_BN, (0, look))
    return codec.encode(padded[:, look:], codec.encoder.init_state(len(pcm_BN), padded[:, :look]))


def test_encoding_unit_by_unit_equals_encoding_at_once(codec: AudioCodec) -> None:
    pcm_BN = 0.1 * torch.randn(2, 6 * UNIT_SAMPLES)
    state = codec.encoder.init_state(2)
    streamed = [codec.encode(unit, state) for unit in pcm_BN.split(UNIT_SAMPLES, dim=1)]
    assert [z.shape for z in streamed] == [(2, UNIT, 8)] * 6
    torch.testing.assert_close(
        torch.cat(streamed, dim=1), codec.encode(pcm_BN, codec.encoder.init_state(2)), **ROUNDING
    )


@pytest.mark.parametrize("latents", [1, 2, UNIT])
def test_decoding_piece_by_piece_equals_decoding_at_once(codec: AudioCodec, latents: int) -> None:
    z_BTZ = torch.randn(2, 6 * UNIT, 8)
    state = codec.decoder.init_state(2)
    streamed = [codec.decode(piece, state) for piece in z_BTZ.split(latents, dim=1)]
    assert all(piece.shape[1] == latents * SIZES.samples_per_latent for piece in streamed)
    whole = codec.decode(z_BTZ, codec.decoder.init_state(2))
    torch.testing.assert_close(torch.cat(streamed, dim=1), whole, **ROUNDING)


def test_the_latents_of_a_unit_decide_its_samples(codec: AudioCodec) -> None:
    z_BTZ = torch.randn(1, 4 * UNIT, 8)
    other = z_BTZ.clone()
    other[:, 2 * UNIT :] = torch.randn(1, 2 * UNIT, 8)
    one, two = (codec.decode(z, codec.decoder.init_state(1)) for z in (z_BTZ, other))
    assert torch.equal(one[:, : 2 * UNIT_SAMPLES], two[:, : 2 * UNIT_SAMPLES])
    changed = (one != two)[0, 2 * UNIT_SAMPLES :]
    # The first sample of a window weighs nothing; from the second on, everything may change.
    assert changed[: SIZES.hop].sum() > SIZES.hop // 2


@pytest.mark.parametrize("latent", [0, 3, 9])
def test_a_latent_looks_ahead_as_documented_and_no_further(codec: AudioCodec, latent: int) -> None:
    pcm_BN = 0.1 * torch.randn(1, 12 * SIZES.samples_per_latent)
    end = (latent + 1) * SIZES.samples_per_latent + SIZES.lookahead  # of what the latent may depend on
    beyond, within = pcm_BN.clone(), pcm_BN.clone()
    beyond[:, end:] += 1
    within[:, end - 20 : end] += 1
    z, z_beyond, z_within = (encode_from_the_start(codec, x)[0, latent] for x in (pcm_BN, beyond, within))
    assert torch.equal(z, z_beyond)
    assert not torch.equal(z, z_within)


def test_the_lookahead_is_what_a_window_reaches_past_its_hop() -> None:
    assert SIZES.lookahead == SIZES.window - SIZES.hop == 480  # 30 ms


def test_a_click_is_known_one_latent_early_at_most(codec: AudioCodec) -> None:
    pcm_BN = torch.zeros(1, 10 * SIZES.samples_per_latent)
    clicked = pcm_BN.clone()
    clicked[0, 5 * SIZES.samples_per_latent + 200] = 1
    z, z_clicked = (encode_from_the_start(codec, x) for x in (pcm_BN, clicked))
    first = (z != z_clicked).any(-1)[0].nonzero()[0].item()
    assert first == 4  # the look-ahead of 480 samples is less than one latent of 640


@pytest.mark.parametrize("seconds", [0.16, 1.6])
def test_a_sine_comes_back_as_long_as_it_was(codec: AudioCodec, seconds: float) -> None:
    count = round(seconds * SIZES.sample_rate)
    pcm_BN = 0.3 * torch.sin(2 * math.pi * 440 / SIZES.sample_rate * torch.arange(count))[None]
    made = codec.decode(encode_from_the_start(codec, pcm_BN), codec.decoder.init_state(1))
    assert made.shape == pcm_BN.shape
    assert made.isfinite().all()


def test_no_latent_makes_more_noise_than_the_ceiling(codec: AudioCodec) -> None:
    made = codec.decode(1e6 * torch.randn(1, UNIT, 8), codec.decoder.init_state(1))
    assert made.isfinite().all()


def test_statistics_are_undone_by_decoding(codec: AudioCodec) -> None:
    z_BTZ = torch.randn(1, UNIT, 8)
    raw = z_BTZ * codec.latent_std_Z + codec.latent_mean_Z
    direct = codec.decoder(raw, codec.decoder.init_state(1))
    assert torch.equal(codec.decode(z_BTZ, codec.decoder.init_state(1)), direct)


def test_packed_it_sounds_the_same_whoever_shares_the_batch(dtype: torch.dtype) -> None:
    codec = AudioCodec(AudioCodecConfig()).eval().requires_grad_(False)
    z_BTZ = torch.randn(3, 2 * UNIT, 64)
    expected = codec.decode(z_BTZ, codec.decoder.init_state(3))
    pack(codec, dtype)
    state = codec.decoder.init_state(3)
    made = torch.cat([codec.decode(unit, state) for unit in z_BTZ.split(UNIT, dim=1)], dim=1)
    error = (made - expected).square().mean() / expected.square().mean()
    assert -10 * error.log10() > (100 if dtype == torch.float32 else 30)  # dB
    for row, z in enumerate(z_BTZ.split(1)):
        state = codec.decoder.init_state(1)
        alone = torch.cat([codec.decode(unit, state) for unit in z.split(UNIT, dim=1)], dim=1)
        assert torch.equal(alone[0], made[row])


@pytest.mark.parametrize(
    ("change", "message"),
    [({"window": 600}, "window=600 is not a multiple of hop=160"), ({"stride": 0}, "stride=0 must be")],
)
def test_a_wrong_size_is_named(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AudioCodecConfig(**change)
