"""umT5 through transformers, on a tiny random encoder, with the padding that Wan was trained with."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

from shared.devices import Device
from shared.errors import CheckpointError
from shared.models.wan.dit import DiTConfig
from shared.models.wan.text import Umt5Text, cleaned

SIZES = DiTConfig(dim=24, heads=2, layers=1, ffn=8, text_dim=16, text_len=12, freq_dim=8)
WORDS = ["<pad>", "</s>", "<unk>", "a", "red", "star", "over", "blue", "sky"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder and its tokenizer as `transformers` writes them."""
    path = tmp_path_factory.mktemp("umt5")
    torch.manual_seed(0)
    sizes = UMT5Config(
        vocab_size=len(WORDS),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        feed_forward_proj="gated-gelu",
    )
    UMT5EncoderModel(sizes).save_pretrained(path)
    words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Umt5Text:
    return Umt5Text(folder, folder, SIZES, Device(dtype="float32"))


def test_pads_are_zero_after_the_encoder(encoder: Umt5Text) -> None:
    vectors = encoder.encode("a red star")
    assert vectors.shape == (1, 12, 16)
    assert vectors[0, :4].abs().sum(-1).min() > 0  # three words and the end
    assert not vectors[0, 4:].any()


def test_a_prompt_is_encoded_as_without_pads(encoder: Umt5Text, folder: Path) -> None:
    network = UMT5EncoderModel.from_pretrained(folder).eval()
    with torch.no_grad():
        alone = network(torch.tensor([[3, 4, 5, 1]])).last_hidden_state
    assert (encoder.encode("a red star")[:, :4] - alone).abs().max() <= 1e-5


def test_what_is_too_long_is_told(encoder: Umt5Text) -> None:
    assert not encoder.warnings("a red star")
    long = "a red star over a blue sky " * 3
    assert encoder.warnings(long) == ["of 22 tokens the first 12 are read"]
    assert encoder.encode(long).shape == (1, 12, 16)


def test_prompts_are_cleaned_as_wan_cleans_them() -> None:
    assert cleaned("  a &amp;amp; b\n\t c ") == "a & b c"


def test_a_folder_without_an_encoder_is_said_to_hold_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no umT5 encoder in") as caught:
        Umt5Text(tmp_path, tmp_path, SIZES, Device(dtype="float32"))
    assert "\n" not in str(caught.value)
