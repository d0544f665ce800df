"""Train the parts of the pocket model one after the other, each from where its last run was left.

A part's folder under `runs/` holds `checkpoint.pt` (to go on from), `log.jsonl`, samples, and `final.pt` (the
averaged weights) once it is trained. What is not trained here is taken from a checkpoint folder, as a rule
the weights that ship.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from shared.models.audio_codec import AudioCodec
from shared.models.pocket.network.encoders import VisionEncoder
from shared.models.pocket.network.streamer import StreamerNetwork
from shared.models.video_codec import VideoCodec
from training.audio_codec import train_audio_codec
from training.context import FINAL, HELD_OUT_SEED, TrainContext, TrainRun
from training.data.split import Split
from training.data.voices.bank import UtteranceBank, load_bank, together, warped
from training.data.voices.speakers import installed
from training.distil import train_distil
from training.errors import TrainingError
from training.files import read, write
from training.loop import CHECKPOINT
from training.performer import train_performer
from training.recipes import (
    BankRecipe,
    CodecRecipe,
    DistilRecipe,
    PerformerRecipe,
    ThinkerRecipe,
    TimingRecipe,
    load_recipe,
)
from training.thinker import train_thinker
from training.timing import train_timing
from training.tracks import Track, held_out_track_of, training_track
from training.video_codec import train_video_codec
from training.vision import train_eyes

CodecT = TypeVar("CodecT", AudioCodec, VideoCodec)
TIMER = "timer.pt"
NEURAL = ("kokoro",)  # families of voices that take half a second an utterance
ECHOES = 200  # sentences of the agent that a user's microphone may catch


def audio_codec(context: TrainContext) -> None:
    """Train the audio codec, then its decoder further."""
    _train_codec(
        context,
        "audio",
        lambda: AudioCodec(context.model.audio),
        partial(train_audio_codec, sizes=context.model.audio),
    )


def video_codec(context: TrainContext) -> None:
    """Train the video codec, then its decoder further."""
    _train_codec(
        context,
        "video",
        lambda: VideoCodec(context.model.video),
        partial(train_video_codec, sizes=context.model.video),
    )


def _train_codec(
    context: TrainContext, kind: str, build: Callable[[], CodecT], train_codec: Callable[..., CodecT]
) -> None:
    """Train in two stages; in the second the encoder stays, so that what is made of latents stays valid."""
    recipe = load_recipe(CodecRecipe, f"{kind}-codec", context.recipes)
    whole = TrainRun(context, f"{kind}-codec", recipe.schedule)
    decoder = TrainRun(context, f"{kind}-decoder", recipe.decoder_schedule)
    if whole.is_done and decoder.is_done:
        return
    speech, held_out = context.speech(recipe.speech)
    if not whole.is_done:
        decoder.forget()  # it was trained for an encoder that is going to change
        base = whole.begin(context)
        codec = train_codec(
            whole.config, speech=speech, held_out=held_out, batch=recipe.batch, resume=whole.resumes,
            start=None if base is None else base.get_submodule(kind),
        )  # fmt: skip
        whole.finish(codec)
    frozen = build()
    frozen.load_state_dict(read(whole.final, context.device))
    print(f"{decoder.name}: {decoder.config.steps} steps, the encoder stays as it is")
    codec = train_codec(
        decoder.config, speech=speech, held_out=held_out, batch=recipe.decoder_batch, resume=decoder.resumes,
        frozen_encoder=frozen,
    )  # fmt: skip
    decoder.finish(codec)


def timing(context: TrainContext) -> None:
    """Train the phone timing; it takes half a minute, so it is done anew or not at all."""
    path = context.runs / TIMER
    if context.resume and path.exists():
        print(f"timing: already trained, {path} (--no-resume trains it anew)")
        return
    recipe = load_recipe(TimingRecipe, "timing", context.recipes)
    speech, held_out = context.speech(recipe.speech)
    base = context.base_weights()
    timer, exact = train_timing(
        speech, held_out, epochs=recipe.epochs, start=None if base is None else base.timer.cpu()
    )
    write(path, timer.state_dict())
    print(f"timing: trained, {exact:.0%} of held-out phones exact to the frame, {path}")


def performer(context: TrainContext) -> None:
    """Train the transformer on the latents of both codecs."""
    recipe = load_recipe(PerformerRecipe, "performer", context.recipes)
    run = TrainRun(context, "performer", recipe.schedule)
    if run.is_done:
        return
    track, held_out = _tracks(context, recipe)
    for name in (CHECKPOINT, FINAL):
        (context.runs / "distil" / name).unlink(missing_ok=True)  # its teacher is going to change
    base = run.begin(context)
    network = train_performer(
        run.config, context.model, track, held_out,
        batch=recipe.batch, units=recipe.units, resume=run.resumes,
        start=None if base is None else base.network,
    )  # fmt: skip
    run.finish(network)


def thinker(context: TrainContext) -> None:
    """Train the eyes, then the tower that listens, with pictures and voices of users."""
    recipe = load_recipe(ThinkerRecipe, "thinker", context.recipes)
    eyes_run = TrainRun(context, "eyes", recipe.eyes_schedule)
    run = TrainRun(context, "thinker", recipe.schedule)
    if eyes_run.is_done and run.is_done:
        return
    if not eyes_run.is_done:
        base = eyes_run.begin(context)
        eyes = train_eyes(
            eyes_run.config, context.model, clips=recipe.clips, resume=eyes_run.resumes,
            start=None if base is None else base.network.listener.vision_encoder,
        )  # fmt: skip
        eyes_run.finish(eyes)
    voices = _users(context, recipe.bank)
    held_out = load_bank(
        context.runs / "data", requests=recipe.bank.held_out_requests, others=recipe.bank.held_out_others,
        seed=HELD_OUT_SEED, split=Split.WATCH,
    )  # fmt: skip
    speech, _ = context.speech(recipe.speech)
    base = run.begin(context)
    eyes = VisionEncoder(context.model.listener)
    eyes.load_state_dict(read(eyes_run.final, context.device))
    listener = train_thinker(
        run.config, context.model, voices, held_out,
        batch=recipe.batch, pictured=recipe.pictured, units=recipe.units, resume=run.resumes,
        echoes=[utterance.pcm for utterance in speech[:ECHOES]],
        eyes=eyes, start=None if base is None else base.network.listener,
    )  # fmt: skip
    run.finish(listener)


def _users(context: TrainContext, recipe: BankRecipe) -> UtteranceBank:
    """Everything that users are to say. Neural voices are slow, so that few sentences are made to be many."""
    folder = context.runs / "data"
    quick = load_bank(folder, requests=recipe.requests, others=recipe.others, seed=1, split=Split.TRAIN)
    neural = tuple(family for family in NEURAL if family in installed(held_out=False))
    if not neural or not recipe.neural_requests:
        return quick
    slow = load_bank(
        folder, requests=recipe.neural_requests, others=recipe.neural_others, seed=1, split=Split.TRAIN,
        families=neural,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    return together(quick, slow, *(warped(slow, rng) for _ in range(recipe.neural_copies)))


def distil(context: TrainContext) -> None:
    """Teach a copy of the tower that speaks to need fewer solver steps."""
    recipe = load_recipe(DistilRecipe, "distil", context.recipes)
    run = TrainRun(context, "distil", recipe.schedule)
    if run.is_done:
        return
    teacher = _teacher(context)
    track, held_out = _tracks(context, recipe)
    run.final.unlink(missing_ok=True)
    print(f"distil: {run.config.steps} steps, of {recipe.teacher_steps} steps make {recipe.solver_steps}")
    network = train_distil(
        run.config, teacher, track, held_out,
        batch=recipe.batch, units=recipe.units, teacher_steps=recipe.teacher_steps,
        solver_steps=recipe.solver_steps, resume=run.resumes,
    )  # fmt: skip
    run.finish(network)


PARTS = {
    "audio-codec": audio_codec,
    "video-codec": video_codec,
    "timing": timing,
    "performer": performer,
    "thinker": thinker,
    "distil": distil,
}


def _teacher(context: TrainContext) -> StreamerNetwork:
    """The network of these runs, else that of the base checkpoint."""
    path = context.runs / "performer" / FINAL
    if path.exists():
        network = StreamerNetwork(context.model)
        network.load_state_dict(read(path, context.device))
        return network
    base = context.base_weights()
    if base is None:
        raise TrainingError(f"distil: {path} is not there yet: run `train performer` first, or give --from")
    return base.network


def _tracks(context: TrainContext, recipe: PerformerRecipe | DistilRecipe) -> tuple[Track, Track]:
    """Latents of sentences to train on and of others to measure with; made at the first call."""
    speech, held_out = context.speech(recipe.speech)
    folder, codecs = context.runs / "data", _codecs(context)
    sentences, parts = recipe.tracks.sentences, recipe.tracks.parts
    track = training_track(folder, speech, *codecs, sentences=sentences, parts=parts)
    return track, held_out_track_of(folder, held_out, *codecs)


def _codecs(context: TrainContext) -> tuple[AudioCodec, VideoCodec]:
    """The codecs of these runs, else those of the base checkpoint."""
    base = context.base_weights()
    audio, video = AudioCodec(context.model.audio), VideoCodec(context.model.video)
    for name, codec, fallback in (
        ("audio-codec", audio, None if base is None else base.audio),
        ("video-codec", video, None if base is None else base.video),
    ):
        path = context.runs / name / FINAL
        if path.exists():
            codec.load_state_dict(read(path, context.device))
        elif fallback is not None:
            codec.load_state_dict(fallback.state_dict())
        else:
            raise TrainingError(
                f"performer: {path} is not there yet: run `train {name}` first, or give --from"
            )
    return audio.to(context.device).eval(), video.to(context.device).eval()
