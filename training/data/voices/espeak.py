"""espeak-ng through its shared library: many accents and voices, with the time of every phone."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError

SYNCHRONOUS, PHONEME_EVENTS = 2, 1  # espeak_AUDIO_OUTPUT and an option of espeak_Initialize
RATE, VOLUME, PITCH, RANGE = 1, 2, 3, 4  # espeak_PARAMETER
END_OF_LIST, PHONEME = 0, 7  # espeak_EVENT_TYPE
UTF_8, END_PAUSE, IPA = 1, 0x1000, 2  # flags of espeak_Synth and espeak_TextToPhonemes

# What the English accents of espeak-ng 1.51 say, without stress and length marks, as the agent's phones. A
# vowel with r is two phones; the second takes the last third.
PHONES = {
    "": "pau", "_": "pau", "_:": "pau", "_!": "pau", "_|": "pau", "?": "pau", "a": "ae", "aa": "ae",
    "A": "aa", "A@": "aa r", "0": "aa", "O": "ao", "O@": "ao r", "O2": "ao", "o@": "ao r", "o": "ow",
    "oU": "ow", "V": "ah", "@": "ax", "@2": "ax", "@5": "ax", "@-": "ax", "a#": "ax", "3": "er", "IR": "er",
    "VR": "er", "E": "eh", "e": "ey", "e@": "eh r", "eI": "ey", "I": "ih", "I#": "ih", "I2": "ih",
    "i": "iy", "i@": "iy ax", "i@3": "iy r", "U": "uh", "U@": "uh r", "u": "uw", "aI": "ay", "aI2": "ay",
    "aI@": "ay ax", "aI3": "ay er", "aU": "aw", "aU@": "aw ax", "OI": "oy", "@L": "ax l", "b": "b",
    "d": "d", "f": "f", "g": "g", "h": "hh", "j": "y", "k": "k", "l": "l", "l/": "l", "m": "m", "n": "n",
    "n-": "n", "N": "ng", "p": "p", "r": "r", "r-": "r", "r/": "r", "s": "s", "S": "sh", "t": "t", "t#": "t",
    "t2": "t", "t[": "t", "tS": "ch", "T": "th", "D": "dh", "v": "v", "w": "w", "w#": "w", "x": "k",
    "z": "z", "Z": "zh", "dZ": "jh", "*": "d", ";": "y",
}  # fmt: skip


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # ms
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("string", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


class Espeak:
    """The library of this process; it has one voice at a time and keeps its state between sentences."""

    def __init__(self) -> None:
        """Load the library and its data.

        Raises:
            TrainingError: espeak-ng is not installed.
        """
        try:
            self._library = ctypes.CDLL("libespeak-ng.so.1")
        except OSError:
            raise TrainingError(
                "espeak-ng, which speaks as users, is missing: apt install espeak-ng"
            ) from None
        self.rate: int = self._library.espeak_Initialize(SYNCHRONOUS, 0, None, PHONEME_EVENTS)
        if self.rate <= 0:
            raise TrainingError("espeak-ng found none of its data: apt install espeak-ng-data")
        self._blocks: list[NDArray[np.int16]] = []
        self._marks: list[tuple[str, float]] = []
        self._callback = _Callback(self._take)  # kept here: the library holds a bare pointer to it
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(
        self, text: str, voice: str, *, words_per_minute: int, pitch: int, pitch_range: int
    ) -> tuple[NDArray[np.float32], list[tuple[str, float]]]:
        """Say `text` as a voice such as `en-gb+f3`; pitch and its range from 0 to 99, 50 as the voice has it.

        Returns:
            sound [N] in [-1, 1] at `self.rate`, and (ARPAbet phone, end in seconds) in order.

        Raises:
            ValueError: there is no such voice.
        """
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise ValueError(f"espeak-ng has no voice {voice}")
        for parameter, value in ((RATE, words_per_minute), (PITCH, pitch), (RANGE, pitch_range)):
            self._library.espeak_SetParameter(parameter, value, 0)
        self._blocks, self._marks = [], []
        raw = text.encode()
        self._library.espeak_Synth(raw, len(raw) + 1, 0, 1, 0, UTF_8 | END_PAUSE, None, None)
        pcm = np.concatenate(self._blocks) if self._blocks else np.zeros(1, np.int16)
        sound = pcm.astype(np.float32) / 32768.0
        return sound, list(arpabet(self._marks, len(pcm) / self.rate))

    def ipa(self, text: str, voice: str) -> str:
        """How a voice reads `text`, in the letters of the International Phonetic Alphabet."""
        self._library.espeak_SetVoiceByName(voice.encode())
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        rest = ctypes.c_char_p(text.encode())
        read = []
        while rest.value is not None:  # the library moves the pointer on, clause by clause
            read.append(self._library.espeak_TextToPhonemes(ctypes.byref(rest), UTF_8, IPA).decode())
        return " ".join(read).strip()

    def _take(
        self, samples: ctypes._Pointer[ctypes.c_short], count: int, events: ctypes._Pointer[_Event]
    ) -> int:
        if samples and count:
            self._blocks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        at = 0
        while events[at].type != END_OF_LIST:
            if events[at].type == PHONEME:
                self._marks.append((events[at].string.decode(), events[at].audio_position / 1000))
            at += 1
        return 0


@functools.cache
def library() -> Espeak:
    """The one library of this process."""
    return Espeak()


def ipa(text: str, voice: str) -> str:
    """A sentence in the letters of the International Phonetic Alphabet, with its punctuation."""
    marks = r"[,.!?;:]+"
    pieces = [piece.strip() for piece in re.split(f"({marks})", text) if piece.strip()]
    read = [piece if re.fullmatch(marks, piece) else library().ipa(piece, voice) for piece in pieces]
    return re.sub(f" ({marks})", r"\1", " ".join(read))


def arpabet(marks: list[tuple[str, float]], end_s: float) -> Iterator[tuple[str, float]]:
    """(phone, end in seconds) from espeak's (mnemonic, start in seconds); what isn't known stays out.

    Raises:
        ValueError: a mnemonic that has no phone.
    """
    ends = [start for _, start in marks[1:]] + [end_s]
    for (mnemonic, start), end in zip(marks, ends, strict=True):
        plain = mnemonic.strip("'%,=|").rstrip(":")
        if plain not in PHONES:
            raise ValueError(f"espeak-ng spoke a phone that has no ARPAbet name: {mnemonic!r}")
        first, *rest = PHONES[plain].split()
        if not rest:
            yield first, end
        else:
            yield first, start + (end - start) * 2 / 3
            yield rest[0], end
