"""Festival's voices, with the time of every phone. Optional: used where they are installed.

Debian: `festival`, `festvox-kdlpc16k` (ked) and `festvox-us-slt-hts`.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.voices.sound import read_wave
from training.errors import TrainingError

VOICES_FOLDER = Path("/usr/share/festival/voices")

# SynthText would play the sound; the segments go to a file as "end 100 phone" lines. Intonation is a linear
# regression on the mean and deviation of a model voice, so other means and deviations shift and stretch it.
PROGRAM = """
(voice_{voice})
(Parameter.set 'Duration_Stretch {stretch:.3f})
(set! int_lr_params '((target_f0_mean {mean:.0f}) (target_f0_std {deviation:.0f})
                      (model_f0_mean 170) (model_f0_std 34)))
(set! spoken (utt.synth (Utterance Text "{text}")))
(utt.save.wave spoken "{wave}" 'riff)
(utt.save.segs spoken "{segments}")
"""


def installed(voice: str) -> bool:
    """True if festival and this voice of it are there."""
    return shutil.which("festival") is not None and any(VOICES_FOLDER.glob(f"*/{voice}"))


def speak(
    text: str, voice: str, *, stretch: float, mean_hz: float, deviation_hz: float
) -> tuple[NDArray[np.float32], int, list[tuple[str, float]]]:
    """Say `text` `stretch` times as slowly, with a mean and a deviation of pitch (diphone voices only).

    Returns:
        sound [N] in [-1, 1], its rate, and (ARPAbet phone, end in seconds) in order.

    Raises:
        TrainingError: festival made no sound.
    """
    with tempfile.TemporaryDirectory() as folder:
        wave, segments = Path(folder, "sound.wav"), Path(folder, "sound.segs")
        program = PROGRAM.format(
            voice=voice, stretch=stretch, mean=mean_hz, deviation=deviation_hz,
            text=text.replace('"', " "), wave=wave, segments=segments,
        )  # fmt: skip
        done = subprocess.run(
            ["festival", "--pipe"], input=program, capture_output=True, text=True, check=False, timeout=600
        )
        if not wave.exists():
            raise TrainingError(f"festival did not speak as {voice}: {done.stderr.strip()[:200]}")
        pcm, rate = read_wave(wave)
        lines = segments.read_text(encoding="utf-8").split("#", 1)[1].split("\n")
    rows = [line.split() for line in lines if line.strip()]
    return pcm, rate, [("pau" if name == "h#" else name, float(end)) for end, _, name in rows]
