import pytest
import torch
from torch import nn

from shared.models.onednn import pack
from shared.models.video_codec import VideoCodec, VideoCodecConfig

ONE_TOKEN = VideoCodecConfig(height=32, width=32, patch=2, widths=(6, 8, 10), latent_dim=5)
MANY_TOKENS = VideoCodecConfig(
    height=16, width=32, patch=2, widths=(6, 8), token_height=1, token_width=1, latent_dim=5
)
WIDE_TOKENS = VideoCodecConfig(
    height=16, width=32, patch=2, widths=(6, 8), token_height=2, token_width=4, latent_dim=5, time_kernel=4
)
UNIT = 4
# fp32: the fused convolution kernels depend on how many frames there are.
ROUNDING = {"atol": 1e-5, "rtol": 1e-4}


def new_codec(sizes: VideoCodecConfig) -> VideoCodec:
    """With nothing left at zero: time mixing and the second convolutions start there."""
    codec = VideoCodec(sizes)
    for parameter in codec.parameters():
        nn.init.normal_(parameter, std=0.2)
    codec.latent_mean_Z.normal_()
    codec.latent_std_Z.uniform_(0.5, 2)
    return codec.eval().requires_grad_(False)


@pytest.fixture(params=[ONE_TOKEN, MANY_TOKENS, WIDE_TOKENS], ids=["one token", "one a cell", "wide tokens"])
def codec(request: pytest.FixtureRequest) -> VideoCodec:
    return new_codec(request.param)


def frames_for(codec: VideoCodec, count: int) -> torch.Tensor:
    return torch.rand(2, count, 3, codec.config.height, codec.config.width) * 2 - 1


@pytest.mark.parametrize("piece", [1, UNIT])
def test_a_stream_in_pieces_equals_the_whole(codec: VideoCodec, piece: int) -> None:
    frames = frames_for(codec, 3 * UNIT)
    z_BTNZ, _ = codec.encode(frames, codec.init_state(2))
    made, _ = codec.decode(z_BTNZ, codec.init_state(2))
    assert z_BTNZ.shape == (2, 3 * UNIT, codec.config.tokens_per_frame, 5)
    assert made.shape == frames.shape
    encoding, decoding = codec.init_state(2), codec.init_state(2)
    latents, pictures = [], []
    for few in frames.split(piece, dim=1):
        z, encoding = codec.encode(few, encoding)
        latents.append(z)
    for z in z_BTNZ.split(piece, dim=1):
        picture, decoding = codec.decode(z, decoding)
        pictures.append(picture)
    torch.testing.assert_close(torch.cat(latents, dim=1), z_BTNZ, **ROUNDING)
    torch.testing.assert_close(torch.cat(pictures, dim=1), made, **ROUNDING)


def test_later_frames_have_no_effect(codec: VideoCodec) -> None:
    frames = frames_for(codec, 8)
    other = frames.clone()
    other[:, 5:] = -other[:, 5:]
    (one, _), (two, _) = (codec.encode(x, codec.init_state(2)) for x in (frames, other))
    assert torch.equal(one[:, :5], two[:, :5])
    assert not torch.equal(one[:, 5], two[:, 5])
    z_other = one.clone()
    z_other[:, 5:] += 1
    (one, _), (two, _) = (codec.decode(z, codec.init_state(2)) for z in (one, z_other))
    assert torch.equal(one[:, :5], two[:, :5])
    assert not torch.equal(one[:, 5], two[:, 5])


def test_earlier_frames_have_an_effect(codec: VideoCodec) -> None:
    z = torch.randn(1, 4, codec.config.tokens_per_frame, 5)
    other = z.clone()
    other[:, 0] += 1
    (one, _), (two, _) = (codec.decode(x, codec.init_state(1)) for x in (z, other))
    past = codec.config.time_kernel - 1
    assert not torch.equal(one[:, past], two[:, past])
    assert torch.equal(one[:, past + 1 :], two[:, past + 1 :])


def test_streams_of_a_batch_do_not_mix(codec: VideoCodec) -> None:
    frames = frames_for(codec, 3)
    other = frames.clone()
    other[1] = -other[1]
    (one, _), (two, _) = (codec.encode(x, codec.init_state(2)) for x in (frames, other))
    assert torch.equal(one[0], two[0])


def test_packed_it_looks_the_same(codec: VideoCodec, dtype: torch.dtype) -> None:
    frames = frames_for(codec, UNIT)
    z, _ = codec.encode(frames, codec.init_state(2))
    expected, past = codec.decode(z, codec.init_state(2))
    pack(codec, dtype)
    made, packed_past = codec.decode(z, codec.init_state(2))
    for one, two in (
        (z, codec.encode(frames, codec.init_state(2))[0]),
        (expected, made),
        (past, packed_past),
    ):
        error = (one - two).square().mean() / one.square().mean()
        assert -10 * error.log10() > (100 if dtype == torch.float32 else 35)  # dB


@torch.inference_mode()
def test_packed_a_stream_is_the_same_whoever_shares_its_batch(dtype: torch.dtype) -> None:
    codec = new_codec(VideoCodecConfig())
    pack(codec, dtype)
    z = torch.randn(3, UNIT, 1, 64)
    together, past = codec.decode(z, codec.init_state(3))
    for row in range(3):
        alone, own_past = codec.decode(z[row : row + 1], codec.init_state(1))
        assert torch.equal(alone[0], together[row])
        assert torch.equal(own_past[0], past[row])


@pytest.mark.parametrize("sizes", [MANY_TOKENS, WIDE_TOKENS])
def test_tokens_are_patches_in_reading_order(sizes: VideoCodecConfig) -> None:
    codec = new_codec(sizes)
    rows, columns = sizes.grid
    grid = torch.arange(rows * columns).view(1, 1, 1, rows, columns).expand(1, 1, 3, -1, -1).float()
    tokens = codec._grid_to_tokens(grid)
    assert tokens.shape == (1, 1, sizes.tokens_per_frame, 3 * sizes.token_height * sizes.token_width)
    across = columns // sizes.token_width
    for index, token in enumerate(tokens[0, 0]):
        top, left = index // across * sizes.token_height, index % across * sizes.token_width
        patch = grid[0, 0, :, top : top + sizes.token_height, left : left + sizes.token_width]
        assert torch.equal(token, patch.flatten())
    assert torch.equal(codec._tokens_to_grid(tokens), grid)


def test_tokens_of_a_frame() -> None:
    assert ONE_TOKEN.tokens_per_frame == 1
    assert MANY_TOKENS.tokens_per_frame == 4 * 8
    assert WIDE_TOKENS.tokens_per_frame == 2 * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"height": 100}, r"height=100 is not a multiple of 32 \* 4"),
        ({"width": 144}, r"width=144 is not a multiple of 32 \* 4"),
        ({"patch": 0}, "patch=0 must be at least 1"),
        ({"widths": ()}, r"widths=\(\) must be"),
        ({"widths": (8, -8)}, r"widths=\(8, -8\) must be"),
    ],
)
def test_a_wrong_size_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VideoCodecConfig(**change)
