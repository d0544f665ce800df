from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from shared.checkpoint import FILE, config_digest, load_weights, save_weights
from shared.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 3
    rates: tuple[float, ...] = (0.5, 1e-4)


@dataclass(frozen=True, kw_only=True)
class Config:
    name: str = "a"
    inner: Inner = field(default_factory=Inner)


class Small(nn.Module):
    count: Tensor

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(4, width)
        self.register_buffer("count", torch.tensor([7, 8]))
        self.register_buffer("window", torch.ones(2), persistent=False)


def saved(folder: Path, module: nn.Module | None = None, digest: str = "abc") -> Path:
    return save_weights(module or Small(), folder, digest, dtype=torch.float32)


def refusal(module: nn.Module, folder: Path, digest: str = "abc") -> str:
    with pytest.raises(CheckpointError) as caught:
        load_weights(module, folder, digest)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_weights_come_back(tmp_path: Path) -> None:
    one, two = Small(), Small()
    one.count += 1
    saved(tmp_path / "made" / "on the way", one)
    load_weights(two, tmp_path / "made" / "on the way", "abc")
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])


def test_floats_are_stored_in_the_dtype_asked_for_and_loaded_in_the_models(tmp_path: Path) -> None:
    one, two = Small(), Small()
    full = saved(tmp_path / "full", one)
    half = save_weights(one, tmp_path / "half", "abc")
    assert half.stat().st_size < full.stat().st_size
    load_weights(two, tmp_path / "half", "abc")
    assert two.layer.weight.dtype == torch.float32
    assert torch.equal(two.layer.weight, one.layer.weight.bfloat16().float())
    assert two.count.tolist() == [7, 8]


def test_the_digest_is_of_config_and_weights(tmp_path: Path) -> None:
    one, two = Small(), Small()
    digests = []
    for folder, module, config in (
        ("1", one, "abc"),
        ("2", one, "abc"),
        ("3", two, "abc"),
        ("4", one, "xyz"),
    ):
        saved(tmp_path / folder, module, config)
        digests.append(load_weights(Small(), tmp_path / folder, config))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_another_config_is_refused_by_both_digests(tmp_path: Path) -> None:
    saved(tmp_path)
    message = refusal(Small(), tmp_path, digest="xyz")
    assert "abc" in message
    assert "xyz" in message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "is not there" in refusal(Small(), tmp_path)
    assert "is not there" in refusal(Small(), tmp_path / "no such folder")


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    assert "damaged" in refusal(Small(), tmp_path)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("weights? what weights?")
    assert "damaged" in refusal(Small(), tmp_path)


def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    refusal(Small(), tmp_path)


def test_other_tensors_are_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, nn.Sequential(nn.Linear(4, 3)))
    message = refusal(Small(), tmp_path)
    assert "does not fit" in message
    assert "0.bias" in message


def test_a_tensor_of_another_shape_is_refused_and_nothing_is_loaded(tmp_path: Path) -> None:
    saved(tmp_path, Small(width=5))
    module = Small()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert "layer.weight" in refusal(module, tmp_path)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_equal_configs_have_equal_digests() -> None:
    assert config_digest(Config()) == config_digest(Config(inner=Inner(size=3)))
    assert config_digest(Config()) == "fc96f048fb7372f9"  # on every machine, in every version


@pytest.mark.parametrize(
    "other", [Config(name="b"), Config(inner=Inner(size=4)), Config(inner=Inner(rates=(0.5,)))]
)
def test_any_other_value_changes_the_digest(other: Config) -> None:
    assert config_digest(other) != config_digest(Config())
