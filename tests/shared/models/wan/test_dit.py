"""Our transformer against diffusers', chunks against a whole masked sequence, sizes of the real one."""

import pytest
import torch
from diffusers import WanTransformer3DModel
from torch import Tensor, nn
from torch.nn import functional as F

from shared.models.wan.checkpoints import dit_weights, load_strictly
from shared.models.wan.dit import DiTConfig, WanDiT, rope_angles
from shared.models.wan.kv_cache import CacheShape, FilmKVCache

SMALL = DiTConfig(dim=48, ffn=96, heads=2, layers=3, text_dim=20, text_len=9, freq_dim=16)
TOKENS = 24  # of a latent of 8 x 12
BLOCK, WINDOW = 2, 4
CPU = torch.device("cpu")


def everything(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def block_causal_mask(frames: int, tokens: int, block: int, window: int | None = None) -> Tensor:
    """Who sees whom in a sequence, bool [T, T]: own block and those before, `window` latents of them."""
    number = torch.arange(frames).repeat_interleave(tokens) // block
    seen = number[:, None] >= number[None, :]
    if window is not None:
        seen &= (number[:, None] - number[None, :]) * block <= window
    return seen


@pytest.fixture(scope="module")
def dit() -> WanDiT:
    torch.manual_seed(0)
    network = WanDiT(SMALL)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.15)
    return network.eval().requires_grad_(False)


def sequence(frames: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(1, frames, 16, 8, 12), 1000 * torch.rand(1, frames), torch.randn(1, 9, 20)


def test_equals_diffusers_over_a_whole_sequence() -> None:
    torch.manual_seed(0)
    reference = WanTransformer3DModel(
        num_attention_heads=2, attention_head_dim=24, text_dim=20, freq_dim=16, ffn_dim=96, num_layers=3,
        rope_max_seq_len=64,
    ).eval()  # fmt: skip
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.1)
    ours = WanDiT(SMALL)
    load_strictly(ours, dit_weights(reference.state_dict()), "denoiser", "diffusers")
    latents, _, text = sequence(6)
    with torch.no_grad():
        theirs = reference(
            hidden_states=latents.transpose(1, 2), timestep=torch.tensor([700.0]),
            encoder_hidden_states=text, return_dict=False,
        )[0]  # fmt: skip
        flow = ours(latents, torch.full((1, 6), 700.0), ours.text_kv(text), everything).transpose(1, 2)
    assert theirs.std() > 0.1
    assert (flow - theirs).abs().max() <= 1e-5


@pytest.mark.parametrize("sink", [0, 2])
def test_blocks_with_a_cache_equal_one_masked_pass(dit: WanDiT, sink: int) -> None:
    """Far past the buffer's end, so that its contents were moved; with a sink as long as nothing has left."""
    frames = 30 if not sink else WINDOW + sink + BLOCK
    latents, timesteps, text = sequence(frames)
    text_kv = dit.text_kv(text)
    mask = block_causal_mask(frames, TOKENS, BLOCK, window=None if sink else WINDOW)

    def masked(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    cache = FilmKVCache(
        SMALL,
        CacheShape(tokens=TOKENS, block=BLOCK, window=WINDOW, sink=sink),
        dtype=torch.float32,
        device=CPU,
    )
    made = []
    for first in range(0, frames, BLOCK):
        own = slice(first, first + BLOCK)
        dit(torch.randn_like(latents[:, own]), timesteps[:, own], text_kv, cache.attend, first_frame=first)
        made.append(dit(latents[:, own], timesteps[:, own], text_kv, cache.attend, first_frame=cache.latents))
        cache.keep()
    assert (torch.cat(made, 1) - dit(latents, timesteps, text_kv, masked)).abs().max() <= 1e-5


def test_a_sink_lies_just_before_the_window_however_long_the_film(dit: WanDiT) -> None:
    """A late block sees what it would see if the latents between sink and window had never been."""
    shape = CacheShape(tokens=TOKENS, block=BLOCK, window=WINDOW, sink=2)
    latents, timesteps, text = sequence(24)
    text_kv = dit.text_kv(text)

    def run(order: list[int]) -> Tensor:
        """Over blocks at the first layer alone, whose keys know no context."""
        cache = FilmKVCache(SMALL, shape, dtype=torch.float32, device=CPU)
        seen: list[Tensor] = []

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = cache.attend(layer, q, k, v)
            if layer == 0:
                seen.append(out)
            return out

        for number in order:
            own = slice(number * BLOCK, (number + 1) * BLOCK)
            dit(latents[:, own], timesteps[:, own], text_kv, attend, first_frame=cache.latents)
            cache.keep()
        return seen[-1]

    assert (run(list(range(12))) - run([0, 9, 10, 11])).abs().max() <= 1e-5


def test_positions_have_no_end() -> None:
    late, early = (rope_angles(SMALL, (1, 4, 6), CPU, first_frame=first) for first in (1_000_000, 0))
    assert late[0].isfinite().all()
    assert (late[0] - early[0]).abs().max() > 0.1


def test_a_block_depends_on_its_prompt_and_on_no_later_block(dit: WanDiT) -> None:
    latents, timesteps, text = sequence(4)
    mask = block_causal_mask(4, TOKENS, BLOCK)

    def flow(latents: Tensor, text: Tensor) -> Tensor:
        def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        return dit(latents, timesteps, dit.text_kv(text), attend)

    usual, changed = flow(latents, text), latents.clone()
    changed[:, BLOCK:] += 1
    assert torch.equal(flow(changed, text)[:, :BLOCK], usual[:, :BLOCK])
    assert not torch.equal(flow(latents, text + 1), usual)


def test_the_real_model_has_the_published_names_and_sizes() -> None:
    with torch.device("meta"):
        weights = WanDiT(DiTConfig()).state_dict()
    assert sum(tensor.numel() for tensor in weights.values()) == 1_418_996_800
    expected = {
        "patch_embedding.weight": (1536, 16, 1, 2, 2), "text_embedding.0.weight": (1536, 4096),
        "time_embedding.2.bias": (1536,), "time_projection.1.weight": (9216, 1536),
        "blocks.29.modulation": (1, 6, 1536), "blocks.0.self_attn.norm_q.weight": (1536,),
        "blocks.0.cross_attn.o.bias": (1536,), "blocks.7.norm3.weight": (1536,),
        "blocks.7.ffn.0.weight": (8960, 1536), "blocks.7.ffn.2.weight": (1536, 8960),
        "head.head.weight": (64, 1536), "head.modulation": (1, 2, 1536),
    }  # fmt: skip
    assert {name: tuple(weights[name].shape) for name in expected} == expected
    assert len(weights) == 825


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"block": 3, "window": 4, "sink": 0}, "window=4"),
        ({"block": 3, "window": 0, "sink": 0}, "window=0"),
        ({"block": 3, "window": 6, "sink": 2}, "sink=2"),
    ],
)
def test_a_cache_that_does_not_fit_its_blocks_is_refused(shape: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CacheShape(tokens=1, **shape)
