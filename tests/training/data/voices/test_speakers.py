import shutil

import numpy as np
import pytest

from shared.models.pocket.speech.phones import PHONE_IDS
from training.data.voices import espeak, speakers
from training.data.voices.speakers import VOICES, installed, say
from training.errors import TrainingError

SPEAKING = shutil.which("flite") is not None and shutil.which("espeak-ng") is not None
needs_voices = pytest.mark.skipif(not SPEAKING, reason="flite and espeak-ng are not installed")


def test_held_out_voices_are_whole_speakers():
    trained = {str(voice) for voice in VOICES if not voice.held_out}
    held_out = {str(voice) for voice in VOICES if voice.held_out}
    assert not trained & held_out
    assert {"flite/rms", "festival/ked_diphone", "piper/joe"} <= held_out
    assert not any("en-029" in name or name.endswith("+f5") for name in trained)
    assert any("en-029" in name for name in held_out)
    for family in ("espeak", "flite", "kokoro"):
        assert {voice.held_out for voice in VOICES if voice.family == family} == {True, False}


def test_every_phone_of_espeak_is_one_of_the_agent():
    assert {name for names in espeak.PHONES.values() for name in names.split()} <= PHONE_IDS.keys()


def test_a_long_vowel_with_r_is_two_phones():
    spoken = list(espeak.arpabet([("k", 0.0), ("'A@", 0.1), ("_:", 0.4)], 0.5))
    assert spoken == [("k", 0.1), ("aa", pytest.approx(0.3)), ("r", 0.4), ("pau", 0.5)]
    with pytest.raises(ValueError, match="no ARPAbet name"):
        list(espeak.arpabet([("Q!", 0.0)], 1.0))


def test_missing_synthesizers_are_named(monkeypatch):
    monkeypatch.setattr(speakers.shutil, "which", lambda name: None)
    with pytest.raises(TrainingError, match="apt install flite espeak-ng"):
        installed.__wrapped__(held_out=False)


@needs_voices
@pytest.mark.parametrize("family", ["espeak", "flite", "festival", "piper", "kokoro"])
@pytest.mark.parametrize("held_out", [False, True])
def test_a_voice_says_a_sentence(family, held_out):
    found = installed(held_out=held_out).get(family)
    if found is None:
        pytest.skip(f"no such voice of {family} here")
    voice = found[-1]
    spoken = say(voice, "what colour is this", np.random.default_rng(2))
    assert spoken.voice == str(voice)
    assert 0.4 < len(spoken.pcm) / 16_000 < 2.5
    assert np.abs(spoken.pcm[-80:]).max() > 0.001  # it ends where speech does
    if spoken.phones is None:
        assert family in {"kokoro", "piper"}
        return
    names, ends = zip(*spoken.phones, strict=True)
    assert set(names) <= PHONE_IDS.keys()
    assert list(ends) == sorted(ends)
    assert ends[-1] == pytest.approx(len(spoken.pcm) / 16_000)
    assert names[0] == "w"
    assert names[-1] in {"s", "z"}


@needs_voices
def test_a_draw_decides_how_it_is_said():
    voice = installed(held_out=False)["espeak"][0]
    lengths = {len(say(voice, "good morning", np.random.default_rng(seed)).pcm) for seed in range(6)}
    assert len(lengths) > 3
    with pytest.raises(ValueError, match="no voice"):
        espeak.library().speak("hi", "nobody", words_per_minute=160, pitch=50, pitch_range=50)
