"""The agent's voice to learn from: sentences spoken by `flite`, with the time of every phone."""

from __future__ import annotations

import subprocess
import tempfile
import wave
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from shared.models.pocket.speech.phones import PHONE_IDS
from training.data.sentences import corpus
from training.errors import TrainingError
from training.files import require_room

RATE = 16_000
SENTENCE_BYTES = 150_000  # on the disk, with room to spare
SPEECH_RMS = 0.1  # -20 dBFS, over the whole sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class Utterance:
    """One spoken sentence: sound in [-1, 1] at 16 kHz and (phone, end in seconds) in order."""

    sentence: str
    pcm: NDArray[np.float32]
    phones: list[tuple[str, float]]


def speak(sentence: str, voice: str = "slt") -> Utterance:
    """Let flite say one sentence, at the agent's loudness.

    Raises:
        TrainingError: flite is not installed.
    """
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        command = ["flite", "-voice", voice, "-psdur", "-t", sentence, "-o", file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except FileNotFoundError:
            raise TrainingError("flite, which speaks the sentences, is missing: apt install flite") from None
        with wave.open(file.name) as sound:
            raw = np.frombuffer(sound.readframes(sound.getnframes()), np.int16)
    pcm = raw.astype(np.float32) / 32768.0
    pcm *= SPEECH_RMS / max(float(np.sqrt(np.mean(pcm**2))), 1e-4)
    phones = [(name, float(end)) for name, end in (item.split(":") for item in done.stdout.split())]
    unknown = {name for name, _ in phones} - PHONE_IDS.keys()
    if unknown:
        raise ValueError(f"flite spoke phones that the pocket model has no id for: {sorted(unknown)}")
    return Utterance(sentence=sentence, pcm=np.clip(pcm, -0.99, 0.99), phones=phones)


def load_corpus(folder: Path, count: int, *, held_out: bool, seed: int = 1) -> list[Utterance]:
    """Speak `count` sentences, or read them from `folder` where an earlier call left them.

    Raises:
        TrainingError: flite is not installed, or the disk is full.
    """
    path = folder / f"speech-{count}-{'held-out' if held_out else 'train'}-{seed}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        require_room(folder, count * SENTENCE_BYTES, f"{count} spoken sentences")
        with ThreadPoolExecutor(2) as pool:
            spoken = pool.map(speak, corpus(count, seed, held_out=held_out))
            _save(path, list(track(spoken, "speaking", total=count)))
    data = np.load(path)
    cuts, phone_cuts = np.cumsum(data["lengths"])[:-1], np.cumsum(data["phone_counts"])[:-1]
    names = np.split(data["phone_names"], phone_cuts)
    ends = np.split(data["phone_ends"], phone_cuts)
    return [
        Utterance(
            sentence=str(sentence),
            pcm=pcm.astype(np.float32) / 32768.0,
            phones=list(zip(name.tolist(), end.tolist(), strict=True)),
        )
        for sentence, pcm, name, end in zip(
            data["sentences"], np.split(data["pcm"], cuts), names, ends, strict=True
        )
    ]


def _save(path: Path, spoken: list[Utterance]) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            sentences=np.array([u.sentence for u in spoken]),
            pcm=np.concatenate([(u.pcm * 32767).astype(np.int16) for u in spoken]),
            lengths=np.array([len(u.pcm) for u in spoken]),
            phone_names=np.array([name for u in spoken for name, _ in u.phones]),
            phone_ends=np.array([end for u in spoken for _, end in u.phones]),
            phone_counts=np.array([len(u.phones) for u in spoken]),
        )
    partial.rename(path)
