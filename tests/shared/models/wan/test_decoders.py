"""Both decoders as streams against whole clips: diffusers' VAE, a plain reading of TAEHV's architecture."""

import pytest
import torch
from diffusers import AutoencoderKLWan
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.wan.checkpoints import load_strictly, vae_decoder_weights
from shared.models.wan.taehv import MemBlock, TaehvConfig, TaehvDecoder, TaehvMemory, TGrow
from shared.models.wan.vae import VaeConfig, VaeMemory, WanVaeDecoder

VAE = VaeConfig(dim=8)
TAEHV = TaehvConfig(decoder=(12, 10, 8, 6))


@pytest.fixture(scope="module")
def theirs() -> AutoencoderKLWan:
    torch.manual_seed(0)
    vae = AutoencoderKLWan(base_dim=8).eval().requires_grad_(False)
    for parameter in vae.parameters():
        nn.init.normal_(parameter, std=0.15 if parameter.ndim > 1 else 0.1)
    return vae


@pytest.fixture(scope="module")
def vae(theirs: AutoencoderKLWan) -> WanVaeDecoder:
    decoder = WanVaeDecoder(VAE)
    load_strictly(decoder, vae_decoder_weights(theirs.state_dict(), VAE), "VAE decoder", "diffusers")
    return decoder.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def taehv() -> TaehvDecoder:
    torch.manual_seed(0)
    decoder = TaehvDecoder(TAEHV)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.1)
    return decoder.eval().requires_grad_(False)


def clip(latents: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(latents, 16, 6, 8)


def in_pieces(vae: WanVaeDecoder, z: Tensor) -> Tensor:
    memory = VaeMemory()
    return torch.cat([vae.decode(latent, memory) for latent in z])


@pytest.mark.parametrize("latents", [1, 2, 5])
def test_the_streamed_vae_equals_diffusers_decoding_the_whole(
    vae: WanVaeDecoder, theirs: AutoencoderKLWan, latents: int
) -> None:
    z = clip(latents)
    whole = theirs.decode(z.transpose(0, 1)[None]).sample[0].permute(1, 2, 3, 0)
    ours = in_pieces(vae, z).clamp(-1, 1)
    assert ours.shape == whole.shape == (1 + 4 * (latents - 1), 48, 64, 3)
    assert whole.std() > 0.01
    assert (ours - whole).abs().max() <= 1e-5


def test_films_in_one_process_do_not_mix(vae: WanVaeDecoder) -> None:
    one, other = clip(4), clip(4).flip(0)
    memories = VaeMemory(), VaeMemory()
    made: tuple[list[Tensor], list[Tensor]] = ([], [])
    for pair in zip(one, other, strict=True):
        for latent, memory, frames in zip(pair, memories, made, strict=True):
            frames.append(vae.decode(latent, memory))
    assert torch.equal(torch.cat(made[0]), in_pieces(vae, one))
    assert torch.equal(torch.cat(made[1]), in_pieces(vae, other))


def test_a_film_leaves_two_parts_of_frames_by_convolution_and_no_more(vae: WanVaeDecoder) -> None:
    memory, sizes = VaeMemory(), []
    for latent in clip(6):
        vae.decode(latent, memory)
        sizes.append(memory.nbytes)
    assert sizes[0] < sizes[1] == sizes[5]  # the second latent is the first that takes the way over time
    assert VaeMemory().nbytes == 0


def test_the_real_vae_has_the_published_names_and_sizes() -> None:
    with torch.device("meta"):
        weights = WanVaeDecoder(VaeConfig()).state_dict()
        published = AutoencoderKLWan()
    expected = vae_decoder_weights(published.state_dict(), VaeConfig())
    assert {name: t.shape for name, t in weights.items()} == {name: t.shape for name, t in expected.items()}
    assert weights["decoder.upsamples.3.time_conv.weight"].shape == (768, 384, 3, 1, 1)
    assert weights["decoder.middle.0.residual.2.weight"].shape == (384, 384, 3, 3, 3)
    assert weights["decoder.head.2.bias"].shape == (3,)


def plainly(decoder: TaehvDecoder, z: Tensor) -> Tensor:
    """Frame after frame, each block reading the one before beside it: the architecture as published."""
    x = list(z)
    for stage in decoder:
        if isinstance(stage, MemBlock):
            past = [torch.zeros_like(x[0]), *x[:-1]]
            x = [
                F.relu(stage.conv(torch.cat([frame, before])[None])[0] + frame)
                for frame, before in zip(x, past, strict=True)
            ]
        elif isinstance(stage, TGrow):
            x = [part for frame in x for part in stage.conv(frame[None])[0].chunk(stage.stride)]
        else:
            x = [stage(frame[None])[0] for frame in x]
    return torch.stack(x)[3:]


@pytest.mark.parametrize("latents", [1, 2, 5])
def test_streamed_taehv_equals_a_plain_reading_of_the_whole(taehv: TaehvDecoder, latents: int) -> None:
    z, memory = clip(latents), TaehvMemory()
    whole = plainly(taehv, z)
    streamed = torch.cat([taehv.decode(latent, memory) for latent in z])
    assert whole.shape == (1 + 4 * (latents - 1), 3, 48, 64)
    assert whole.std() > 0.01
    assert (streamed - whole).abs().max() <= 1e-5
    assert (taehv.decode_clips(z[None])[0] - whole).abs().max() <= 1e-5


def test_the_real_taehv_has_the_published_names_and_sizes() -> None:
    with torch.device("meta"):
        weights = TaehvDecoder(TaehvConfig()).state_dict()
    expected = {
        "1.weight": (256, 16, 3, 3), "3.conv.0.weight": (256, 512, 3, 3), "5.conv.4.bias": (256,),
        "7.conv.weight": (256, 256, 1, 1), "8.weight": (128, 256, 3, 3), "13.conv.weight": (256, 128, 1, 1),
        "14.weight": (64, 128, 3, 3), "19.conv.weight": (128, 64, 1, 1), "20.weight": (64, 64, 3, 3),
        "22.weight": (3, 64, 3, 3), "22.bias": (3,),
    }  # fmt: skip
    assert {name: tuple(weights[name].shape) for name in expected} == expected
    assert "8.bias" not in weights
    assert sum(tensor.numel() for tensor in weights.values()) == 9_844_611
