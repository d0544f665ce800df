"""The agent's voice to learn from: sentences spoken by `flite`, with the time of every phone."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from shared.models.pocket.speech.phones import PHONE_IDS
from training.data.split import Split
from training.data.voices import flite
from training.data.voices.sentences import corpus
from training.data.voices.sound import SPEECH_RMS
from training.files import require_room

SENTENCE_BYTES = 150_000  # on the disk, with room to spare


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentUtterance:
    """One spoken sentence: sound in [-1, 1] at 16 kHz and (phone, end in seconds) in order."""

    sentence: str
    pcm: NDArray[np.float32]
    phones: list[tuple[str, float]]


def speak(sentence: str, voice: str = "slt") -> AgentUtterance:
    """Let flite say one sentence, at the agent's loudness.

    Raises:
        TrainingError: flite is not installed.
    """
    pcm, _, phones = flite.speak(sentence, voice)
    pcm *= SPEECH_RMS / max(float(np.sqrt(np.mean(pcm**2))), 1e-4)
    unknown = {name for name, _ in phones} - PHONE_IDS.keys()
    if unknown:
        raise ValueError(f"flite spoke phones that the pocket model has no id for: {sorted(unknown)}")
    return AgentUtterance(sentence=sentence, pcm=np.clip(pcm, -0.99, 0.99), phones=phones)


def load_corpus(folder: Path, count: int, split: Split, *, seed: int = 1) -> list[AgentUtterance]:
    """Speak `count` sentences, or read them from `folder` where an earlier call left them.

    Raises:
        TrainingError: flite is not installed, or the disk is full.
    """
    path = folder / f"speech-{count}-{split.value}-{seed}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        require_room(folder, count * SENTENCE_BYTES, f"{count} spoken sentences")
        with ThreadPoolExecutor(2) as pool:
            spoken = pool.map(speak, corpus(count, seed, split))
            _save(path, list(track(spoken, "speaking", total=count)))
    data = np.load(path)
    cuts, phone_cuts = np.cumsum(data["lengths"])[:-1], np.cumsum(data["phone_counts"])[:-1]
    names = np.split(data["phone_names"], phone_cuts)
    ends = np.split(data["phone_ends"], phone_cuts)
    return [
        AgentUtterance(
            sentence=str(sentence),
            pcm=pcm.astype(np.float32) / 32768.0,
            phones=list(zip(name.tolist(), end.tolist(), strict=True)),
        )
        for sentence, pcm, name, end in zip(
            data["sentences"], np.split(data["pcm"], cuts), names, ends, strict=True
        )
    ]


def _save(path: Path, spoken: list[AgentUtterance]) -> None:
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
