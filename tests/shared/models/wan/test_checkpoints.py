"""Files as others publish them, with random numbers in them: read, renamed, or refused in one line."""

from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKLWan
from safetensors.torch import save_file
from torch import Tensor

from shared.errors import CheckpointError
from shared.models.wan.checkpoints import (
    dit_weights,
    find,
    load_strictly,
    part_of,
    read_weights,
    vae_decoder_weights,
)
from shared.models.wan.dit import DiTConfig, WanDiT
from shared.models.wan.taehv import TaehvConfig, TaehvDecoder
from shared.models.wan.vae import VaeConfig, WanVaeDecoder

SIZES = DiTConfig(dim=24, ffn=32, heads=2, layers=1, text_dim=8, text_len=3, freq_dim=8)


def dit() -> WanDiT:
    return WanDiT(SIZES)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("prefix", ["model.", "model._fsdp_wrapped_module.", ""])
@pytest.mark.parametrize("key", ["generator", "generator_ema", None])
def test_reads_training_checkpoints_of_causal_and_self_forcing(
    tmp_path: Path, prefix: str, key: str | None
) -> None:
    weights = dit().state_dict()
    content = {prefix + name: tensor for name, tensor in weights.items()}
    path = tmp_path / "causal_forcing.pt"
    torch.save({key: content, "critic": {}} if key else content, path)
    loaded = dit()
    load_strictly(loaded, dit_weights(read_weights(path)), "denoiser", path)
    assert same(loaded.state_dict(), weights)


def test_the_averaged_generator_goes_before_the_other(tmp_path: Path) -> None:
    plain, averaged = dit().state_dict(), dit().state_dict()
    torch.save({"generator": plain, "generator_ema": averaged}, tmp_path / "long.pt")
    assert same(read_weights(tmp_path / "long.pt"), averaged)


def test_fsdp_names_inside_are_unwrapped(tmp_path: Path) -> None:
    weights = dit().state_dict()
    wrapped = {
        f"model.{name.replace('blocks.0.', 'blocks.0._fsdp_wrapped_module.')}": t
        for name, t in weights.items()
    }
    torch.save({"generator": wrapped}, tmp_path / "x.pt")
    assert same(read_weights(tmp_path / "x.pt"), weights)


def test_reads_a_folder_of_safetensors(tmp_path: Path) -> None:
    weights = dit().state_dict()
    names = sorted(weights)
    save_file({name: weights[name] for name in names[::2]}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({name: weights[name] for name in names[1::2]}, tmp_path / "model-00002-of-00002.safetensors")
    assert same(read_weights(tmp_path), weights)


def test_reads_both_layouts_of_the_vae(tmp_path: Path) -> None:
    published = AutoencoderKLWan(base_dim=4, num_res_blocks=1).state_dict()
    config = VaeConfig(dim=4, residual_blocks=1)
    decoder = WanVaeDecoder(config)
    load_strictly(decoder, vae_decoder_weights(published, config), "VAE decoder", "diffusers")
    original = decoder.state_dict() | {"encoder.conv1.weight": torch.zeros(1), "conv1.bias": torch.zeros(1)}
    torch.save(original, tmp_path / "Wan2.1_VAE.pth")
    again = WanVaeDecoder(config)
    load_strictly(again, vae_decoder_weights(read_weights(tmp_path / "Wan2.1_VAE.pth"), config), "VAE", "x")
    assert same(again.state_dict(), decoder.state_dict())


def test_reads_the_decoder_out_of_taehvs_file(tmp_path: Path) -> None:
    decoder = TaehvDecoder(TaehvConfig(decoder=(8, 6, 4, 4)))
    whole = {f"decoder.{name}": tensor for name, tensor in decoder.state_dict().items()}
    torch.save(whole | {"encoder.0.weight": torch.zeros(1)}, tmp_path / "taew2_1.pth")
    assert same(part_of(read_weights(tmp_path / "taew2_1.pth"), "decoder."), decoder.state_dict())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w: w.pop("head.head.bias"), "it has no head.head.bias"),
        (lambda w: w.update(other=torch.zeros(1)), "it has besides other"),
        (lambda w: w.update({"head.head.bias": torch.zeros(3)}), r"head.head.bias is \[3\]"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(change: object, says: str) -> None:
    weights = dit().state_dict()
    change(weights)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=says) as caught:
        load_strictly(dit(), weights, "denoiser", "model.pt")
    assert "\n" not in str(caught.value)
    assert "model.pt does not fit the denoiser" in str(caught.value)


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("ran",)


def test_files_that_hold_code_are_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"generator": Harmful()}, tmp_path / "bad.pt")
    with pytest.raises(CheckpointError, match=r"bad\.pt holds more than tensors"):
        read_weights(tmp_path / "bad.pt")
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_a_damaged_file_is_said_to_be_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not weights at all")
    with pytest.raises(CheckpointError, match=name):
        read_weights(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nothing\.pt is not there"):
        find("nothing.pt", tmp_path)


def test_a_hub_that_does_not_answer_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"hub:nobody/nothing/x\.pt can't be downloaded") as caught:
        find("hub:nobody/nothing/x.pt", None)
    assert "\n" not in str(caught.value)
