"""A look at the training data: what flite says and how the drawn face says it, as files to open."""

from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from training.data.faces.face import draw
from training.data.faces.motion import poses
from training.data.voices.agent import AgentUtterance
from training.data.voices.sound import RATE, write_wav
from training.files import require_room

FPS = 25
SHEET_COLUMNS = 10
SHEET_EVERY = 3  # frames
TAIL_FRAMES = 12
CLIP_BYTES = 2_000_000


def write_samples(utterances: list[AgentUtterance], folder: Path, *, size: int = 128) -> list[Path]:
    """Write a WAV, a contact sheet (PNG) and an MP4 of each sentence; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    require_room(folder, CLIP_BYTES * len(utterances), "sample clips")
    made = []
    for index, utterance in enumerate(utterances):
        num_frames = len(utterance.pcm) * FPS // RATE + TAIL_FRAMES
        rng = np.random.default_rng(index)
        frames = [draw(pose, size) for pose in poses(utterance.phones, num_frames, rng)]
        paths = [folder / f"clip-{index}.{kind}" for kind in ("wav", "png", "mp4")]
        write_wav(paths[0], utterance.pcm)
        write_sheet(paths[1], frames[::SHEET_EVERY])
        write_mp4(paths[2], frames, utterance.pcm)
        made += paths
    return made


def write_sheet(path: Path, frames: list[NDArray[np.uint8]]) -> None:
    """Frames [H, W, 3] side by side, row by row, as one PNG."""
    blank = np.zeros_like(frames[0])
    filled = frames + [blank] * (-len(frames) % SHEET_COLUMNS)
    rows = [np.hstack(filled[at : at + SHEET_COLUMNS]) for at in range(0, len(filled), SHEET_COLUMNS)]
    cv2.imwrite(str(path), np.vstack(rows)[..., ::-1])


def write_mp4(path: Path, frames: list[NDArray[np.uint8]], pcm: NDArray[np.float32]) -> None:
    """Frames at 25 fps with sound at 16 kHz in [-1, 1], as H.264 and AAC."""
    height, width = frames[0].shape[:2]
    with av.open(str(path), "w") as file:
        picture = file.add_stream("libx264", rate=FPS, options={"crf": "16"})
        picture.width, picture.height, picture.pix_fmt = width, height, "yuv420p"
        sound = file.add_stream("aac", rate=RATE, layout="mono")
        for frame in frames:
            file.mux(picture.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        padded = np.pad(pcm, (0, max(0, len(frames) * RATE // FPS - len(pcm))))
        block = av.AudioFrame.from_ndarray(padded[None], format="fltp", layout="mono")
        block.sample_rate, block.pts = RATE, 0
        file.mux(sound.encode(block))
        file.mux(picture.encode())
        file.mux(sound.encode())
