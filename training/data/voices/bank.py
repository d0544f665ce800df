"""Thousands of utterances by many voices, spoken once and kept on the disk."""

import hashlib
import json
import multiprocessing
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from shared.models.pocket.dialogue.replies import Request
from shared.models.pocket.speech.phones import PHONE_IDS, PHONES
from training.data.split import Split
from training.data.voices.plan import UtteranceJob, plan
from training.data.voices.sound import RATE, finish
from training.data.voices.speakers import UserUtterance, say, version_of
from training.files import require_room

MADE_OF = "made-of.json"
CHUNK = 125  # utterances by one process: espeak-ng's noise depends on what it said before
PROCESSES = 2
UTTERANCE_BYTES = 130_000
QUICK = ("espeak", "festival", "flite")  # 3 to 200 ms an utterance; kokoro takes half a second
AGAIN = (0.88, 1.14)  # times as fast, of sound that may be warped already
UNTIMED = -1  # number of phones of a voice that tells no times


@dataclass(frozen=True, kw_only=True, slots=True)
class UtteranceBank:
    """Utterances one behind the other.

    pcm [samples] int16 at 16 kHz, on the disk; starts [N + 1] in samples; requests [N], 0 for none; near_miss
    [N]; phone_ids and phone_ends (seconds, within the utterance) of all; phone_starts [N + 1] into them and
    timed [N], False where the phones aren't known.
    """

    pcm: NDArray[np.int16]
    starts: NDArray[np.int64]
    requests: NDArray[np.int64]
    near_miss: NDArray[np.bool_]
    texts: tuple[str, ...]
    voices: NDArray[np.str_]
    phone_ids: NDArray[np.int8]
    phone_ends: NDArray[np.float32]
    phone_starts: NDArray[np.int64]
    timed: NDArray[np.bool_]
    folder: Path = Path()  # that it was read from

    def __len__(self) -> int:
        return len(self.texts)

    def utterance(self, index: int) -> UserUtterance:
        """One utterance, its sound in [-1, 1]."""
        pcm = self.pcm[self.starts[index] : self.starts[index + 1]].astype(np.float32) / 32768.0
        own = slice(self.phone_starts[index], self.phone_starts[index + 1])
        phones = [
            (PHONES[i], e)
            for i, e in zip(self.phone_ids[own].tolist(), self.phone_ends[own].tolist(), strict=True)
        ]
        return UserUtterance(
            text=self.texts[index],
            voice=str(self.voices[index]),
            request=Request(int(self.requests[index])),
            near_miss=bool(self.near_miss[index]),
            pcm=pcm,
            phones=phones if self.timed[index] else None,
        )

    @property
    def seconds(self) -> float:
        """Length of all the sound."""
        return float(self.starts[-1]) / RATE

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The bank that `write` left in a folder; its sound stays on the disk."""
        table = np.load(folder / "table.npz")
        words = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        counts = table["phone_counts"]
        return cls(
            pcm=np.memmap(folder / "pcm.int16", np.int16, mode="r"),
            starts=_starts(table["lengths"]),
            requests=table["requests"].astype(np.int64),
            near_miss=table["near_miss"],
            texts=tuple(words["texts"]),
            voices=np.array(words["voices"]),
            phone_ids=table["phone_ids"],
            phone_ends=table["phone_ends"],
            phone_starts=_starts(np.maximum(counts, 0)),
            timed=counts != UNTIMED,
            folder=folder,
        )


def together(*banks: UtteranceBank) -> UtteranceBank:
    """One bank of several, in memory."""
    return UtteranceBank(
        pcm=np.concatenate([bank.pcm for bank in banks]),
        starts=_starts(np.concatenate([np.diff(bank.starts) for bank in banks])),
        requests=np.concatenate([bank.requests for bank in banks]),
        near_miss=np.concatenate([bank.near_miss for bank in banks]),
        texts=tuple(text for bank in banks for text in bank.texts),
        voices=np.concatenate([bank.voices for bank in banks]),
        phone_ids=np.concatenate([bank.phone_ids for bank in banks]),
        phone_ends=np.concatenate([bank.phone_ends for bank in banks]),
        phone_starts=_starts(np.concatenate([np.diff(bank.phone_starts) for bank in banks])),
        timed=np.concatenate([bank.timed for bank in banks]),
    )


def warped(bank: UtteranceBank, rng: np.random.Generator) -> UtteranceBank:
    """The same utterances by other vocal tracts, a little faster or slower: more speakers at hardly any cost.

    Their names end in "~".
    """
    factors = rng.uniform(*AGAIN, size=len(bank))
    pieces = []
    for index, factor in enumerate(factors):
        pcm, _ = finish(bank.utterance(index).pcm, RATE, None, warp=float(factor))
        pieces.append((pcm * 32767).astype(np.int16))
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    return replace(
        bank,
        pcm=np.concatenate(pieces),
        starts=_starts(lengths),
        voices=np.array([f"{voice}~" for voice in bank.voices]),
        phone_ends=bank.phone_ends * np.repeat(lengths / np.diff(bank.starts), np.diff(bank.phone_starts)),
    )


def load_bank(
    folder: Path,
    *,
    requests: int,
    others: int,
    seed: int,
    split: Split,
    families: tuple[str, ...] = QUICK,
    unseen_wordings: bool = False,
) -> UtteranceBank:
    """A bank of `requests` utterances that ask something and `others` that don't, in random order.

    Half of the others are prose, a quarter small talk, a quarter sentences that resemble requests. Two
    processes speak it, as those of the `families` that are installed, unless `folder` has it from an earlier
    call and it is made of the same: voices, sentences, synthesizers and code. One line says so if it isn't.

    Raises:
        TrainingError: flite or espeak-ng is missing, or all of `families`, or the disk is full.
    """
    who = "-".join(sorted(families)) + ("-unseen" if unseen_wordings else "")
    path = folder / f"{who}-{requests}-{others}-{split.value}-{seed}"
    jobs = plan(requests, others, seed, families, split, unseen_wordings=unseen_wordings)
    made_of = ingredients(jobs)
    if path.exists():
        changed = _changed(path / MADE_OF, made_of)
        if not changed:
            return UtteranceBank.read(path)
        print(f"{path}: made anew, since other than before: {', '.join(changed)}")
        shutil.rmtree(path)
    require_room(folder, len(jobs) * UTTERANCE_BYTES, f"{len(jobs)} utterances")
    order = list(Split).index(split)
    chunks = [(jobs[at : at + CHUNK], [seed, order, at]) for at in range(0, len(jobs), CHUNK)]
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    with processes.Pool(PROCESSES, maxtasksperchild=1) as pool:
        spoken = track(pool.imap(speak_all, chunks), f"{len(jobs)} utterances", total=len(chunks))
        write(path, (utterance for chunk in spoken for utterance in chunk), made_of)
    return UtteranceBank.read(path)


def ingredients(jobs: list[UtteranceJob]) -> dict[str, str]:
    """What a bank is made of: digests of voices, of sentences and of the code, and the synthesizers."""
    families = {job.voice.family for job in jobs}
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return {
        "voices": _digest("\n".join(str(job.voice) for job in jobs).encode()),
        "sentences": _digest("\n".join(f"{job.text} {job.request} {job.near_miss}" for job in jobs).encode()),
        "code": _digest(code),
        **{family: version_of(family) for family in sorted(families)},
    }


def _changed(path: Path, made_of: dict[str, str]) -> list[str]:
    """Which of the ingredients are not those in a file; all of them if there is none that can be read."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    return [name for name in sorted(before.keys() | made_of) if before.get(name) != made_of.get(name)]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def speak_all(chunk: tuple[list[UtteranceJob], list[int]]) -> list[UserUtterance]:
    """Do some jobs, in order, with one generator of their own."""
    jobs, seed = chunk
    rng = np.random.default_rng(seed)
    return [
        say(job.voice, job.text, rng, request=job.request, near_miss=job.near_miss) for job in jobs
    ]  # fmt: skip


def write(folder: Path, spoken: Iterator[UserUtterance], made_of: dict[str, str]) -> None:
    """Write a bank; a folder under its final name is whole."""
    partial = folder.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    kept: list[UserUtterance] = []
    lengths = []
    with (partial / "pcm.int16").open("wb") as file:
        for utterance in spoken:
            file.write((utterance.pcm * 32767).astype(np.int16).tobytes())
            lengths.append(len(utterance.pcm))
            kept.append(
                UserUtterance(
                    text=utterance.text, voice=utterance.voice, request=utterance.request,
                    near_miss=utterance.near_miss, pcm=np.empty(0, np.float32), phones=utterance.phones,
                )
            )  # fmt: skip
    timed = [u.phones for u in kept]
    np.savez(
        partial / "table.npz",
        lengths=np.array(lengths, np.int64),
        requests=np.array([u.request for u in kept], np.int8),
        near_miss=np.array([u.near_miss for u in kept], np.bool_),
        phone_counts=np.array([UNTIMED if p is None else len(p) for p in timed], np.int64),
        phone_ids=np.array([PHONE_IDS[name] for p in timed for name, _ in p or ()], np.int8),
        phone_ends=np.array([end for p in timed for _, end in p or ()], np.float32),
    )
    words = {"texts": [u.text for u in kept], "voices": [u.voice for u in kept]}
    (partial / "words.json").write_text(json.dumps(words), encoding="utf-8")
    (partial / MADE_OF).write_text(json.dumps(made_of, indent=2) + "\n", encoding="utf-8")
    partial.rename(folder)


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
