"""Flite's voices, one of which is the agent's, with the time of every phone."""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.voices.sound import read_wave
from training.errors import TrainingError


def speak(text: str, voice: str, **settings: str) -> tuple[NDArray[np.float32], int, list[tuple[str, float]]]:
    """Say `text` as a voice, with flite's own `settings`, such as `duration_stretch`.

    Returns:
        sound [N] in [-1, 1], its rate, and (ARPAbet phone, end in seconds) in order.

    Raises:
        TrainingError: flite is not installed.
    """
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        command = ["flite", "-voice", voice, "-psdur", "-t", text, "-o", file.name]
        for name, value in settings.items():
            command += ["--setf", f"{name}={value}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        except FileNotFoundError:
            raise TrainingError("flite, which speaks the sentences, is missing: apt install flite") from None
        pcm, rate = read_wave(Path(file.name))
    return pcm, rate, [(name, float(end)) for name, end in (item.split(":") for item in done.stdout.split())]
