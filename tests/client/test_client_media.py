"""A file of any kind as the user: sample-exact length, frames by their time, faults as one line."""

import wave
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg

from client.errors import MediaError
from client.media import UNIT_SAMPLES, FileUser, SilentUser

MakeMedia = Callable[..., Path]
NumberOf = Callable[[npt.NDArray[np.uint8]], int]


def play(
    path: Path, width: int = 32, height: int = 32
) -> tuple[npt.NDArray[np.int16], list[npt.NDArray[np.uint8]]]:
    user = FileUser(path)
    user.begin(width, height)
    sound, frames = [], []
    while not user.ended:
        part = user.take()
        assert part.pcm.shape == (UNIT_SAMPLES,)
        assert part.pcm.dtype == np.int16
        assert len(part.frames) == (4 if user.has_camera else 0)
        sound.append(part.pcm)
        frames += part.frames
        assert len(sound) < 1000
    user.close()
    return np.concatenate(sound), frames


def audible(pcm: npt.NDArray[np.int16]) -> int:
    """Samples from the first to the last loud one."""
    loud = np.flatnonzero(np.abs(pcm) > 500)
    return int(loud[-1] - loud[0]) + 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.mp4", {"rate": 48000, "channels": 2}),
        ("a.wav", {"rate": 8000, "channels": 1, "size": None, "audio_codec": "pcm_s16le"}),
        ("b.wav", {"rate": 44100, "channels": 2, "size": None, "audio_codec": "pcm_f32le"}),
        ("c.wav", {"rate": 96000, "channels": 6, "size": None, "audio_codec": "pcm_s24le"}),
        ("d.wav", {"rate": 48000, "channels": 8, "size": None, "audio_codec": "pcm_s16le"}),
        ("e.m4a", {"rate": 48000, "channels": 8, "size": None}),
        ("a.mkv", {"rate": 44100, "channels": 1, "audio_codec": "flac"}),
        ("a.webm.mkv", {"rate": 48000, "channels": 2, "audio_codec": "libopus"}),
        ("a.mp3", {"rate": 22050, "channels": 2, "size": None, "audio_codec": "mp3"}),
        ("a.m4a", {"rate": 16000, "channels": 1, "size": None}),
    ],
)
def test_any_sound_becomes_16_khz_of_the_same_length(
    make_media: MakeMedia, name: str, options: dict[str, object]
) -> None:
    pcm, _ = play(make_media(name, seconds=3.0, **options))
    assert abs(len(pcm) - 48_000) <= UNIT_SAMPLES
    assert abs(audible(pcm) - 48_000) <= 1_600  # lossy coders add or eat a little
    assert 4_000 < np.abs(pcm).max() < 14_000


def test_a_long_odd_rate_does_not_drift(make_media: MakeMedia) -> None:
    pcm, _ = play(
        make_media("long.wav", seconds=120.0, rate=44100, channels=1, size=None, audio_codec="pcm_s16le")
    )
    assert abs(audible(pcm) - 120 * 16_000) <= 4


def test_resampling_in_units_equals_the_tone(make_media: MakeMedia) -> None:
    pcm, _ = play(
        make_media("t.wav", seconds=2.0, rate=48000, channels=1, size=None, audio_codec="pcm_s16le")
    )
    time = np.arange(32_000) / 16_000
    wanted = 12_000 * np.sin(2 * np.pi * 440 * time)
    assert np.abs(pcm[800:31_200] - wanted[800:31_200]).max() < 30


@pytest.mark.parametrize("fps", [5, 25, 30, 50])
def test_frames_are_picked_by_time(make_media: MakeMedia, number_of: NumberOf, fps: int) -> None:
    count = min(28, 2 * fps)
    path = make_media("v.mkv", times=[index / fps for index in range(count)], rate=None)
    pcm, frames = play(path)
    assert not pcm.any()
    for index in range(len(frames)):
        assert number_of(frames[index]) == min(int(index / 25 * fps + 0.05), count - 1)


def test_a_variable_rate_holds_each_frame_for_its_time(make_media: MakeMedia, number_of: NumberOf) -> None:
    path = make_media("vfr.mp4", times=[0.0, 0.04, 0.5, 0.52, 0.54, 0.9], rate=None)
    numbers = [number_of(frame) for frame in play(path)[1]]
    assert numbers[:2] == [0, 1]
    assert set(numbers[2:12]) == {1}
    assert numbers[13] == 3
    assert numbers[14:22] == [4] * 8
    assert numbers[23] == 5


@pytest.mark.parametrize(
    ("size", "wanted"), [((177, 99), (64, 64)), ((64, 48), (33, 17)), ((48, 128), (64, 64))]
)
def test_odd_sizes_and_aspects_are_cut_to_what_is_wanted(
    make_media: MakeMedia, size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    _, frames = play(make_media("odd.mp4", seconds=0.2, size=size, rate=None), *wanted)
    assert {frame.shape for frame in frames} == {(wanted[1], wanted[0], 3)}


def test_a_rate_that_changes_in_mid_file_is_followed(make_media: MakeMedia, tmp_path: Path) -> None:
    parts = [
        make_media(f"{rate}.aac", seconds=2.0, rate=rate, channels=channels, size=None)
        for rate, channels in ((48000, 2), (32000, 1))
    ]
    path = tmp_path / "both.aac"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    pcm, _ = play(path)
    assert abs(audible(pcm) - 4 * 16_000) < 3_000
    spectrum = np.abs(np.fft.rfft(pcm[40_000:56_000].astype(float)))
    assert np.argmax(spectrum) == 440  # the second half is neither slower nor faster


def test_both_tracks_keep_their_distance(make_media: MakeMedia) -> None:
    pcm, frames = play(make_media("late.mkv", seconds=1.0, audio_starts=0.5, audio_codec="pcm_s16le"))
    first = int(np.flatnonzero(np.abs(pcm) > 500)[0])
    assert abs(first - 8_000) < 100
    assert len(frames) >= 36


def half_red(path: Path, rotation: int) -> Path:
    """A picture of 64x32 whose left half is red, marked to be turned."""
    pixels = np.zeros((32, 64, 3), np.uint8)
    pixels[:, :32, 0] = 220
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
        stream.set_display_rotation(rotation)
        for _ in range(5):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize(("rotation", "red_at"), [(0, "left"), (90, "bottom"), (-90, "top"), (180, "right")])
def test_a_turned_phone_is_set_upright(tmp_path: Path, rotation: int, red_at: str) -> None:
    upright = (32, 64) if rotation % 180 else (64, 32)
    red = play(half_red(tmp_path / "turned.mp4", rotation), *upright)[1][0][..., 0].astype(int)
    middle_y, middle_x = red.shape[0] // 2, red.shape[1] // 2
    halves = {
        "top": red[:middle_y],
        "bottom": red[middle_y:],
        "left": red[:, :middle_x],
        "right": red[:, middle_x:],
    }
    assert max(halves, key=lambda side: halves[side].mean()) == red_at


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp"])
def test_a_picture_alone_is_shown_for_ever(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"still.{suffix}"
    pixels = np.full((50, 70, 3), (200, 100, 50), np.uint8)
    if suffix == "jpg":
        path.write_bytes(simplejpeg.encode_jpeg(pixels, 95))
    else:
        with av.open(str(path), "w", format="image2", options={"update": "1"}) as container:
            stream = container.add_stream(suffix, rate=25)
            stream.width, stream.height, stream.pix_fmt = 70, 50, "rgb24" if suffix == "png" else "bgr24"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
    user = FileUser(path)
    user.begin(64, 64)
    for _ in range(20):
        part = user.take()
        assert not part.pcm.any()
        assert np.abs(part.frames[3].mean(axis=(0, 1)) - (200, 100, 50)).max() < 6
        assert not user.ended
    user.close()


def test_after_the_end_come_silence_and_the_last_frame(make_media: MakeMedia, number_of: NumberOf) -> None:
    user = FileUser(make_media("short.mp4", seconds=0.4))
    while not user.ended:
        user.take()
    part = user.take()
    assert not part.pcm.any()
    assert [number_of(frame) for frame in part.frames] == [9, 9, 9, 9]
    user.close()


def test_sound_that_is_no_number_is_silent(tmp_path: Path) -> None:
    pcm = np.full(16_000, 0.25, np.float32)
    pcm[4_000:8_000] = np.nan
    with av.open(str(tmp_path / "nan.wav"), "w") as container:
        stream = container.add_stream("pcm_f32le", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(pcm[None], "flt", "mono")
        frame.sample_rate = 16_000
        container.mux(stream.encode(frame))
    heard, _ = play(tmp_path / "nan.wav")
    assert not heard[4_100:7_900].any()
    assert np.abs(heard[9_000:15_000] - 8_192).max() < 4


def test_a_cut_file_plays_as_far_as_it_goes(make_media: MakeMedia) -> None:
    path = make_media("cut.mkv", seconds=4.0)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    pcm, frames = play(path)
    assert 8_000 < len(pcm) < 64_000
    assert frames


def test_damage_in_the_middle_is_skipped(make_media: MakeMedia) -> None:
    path = make_media("hurt.mkv", seconds=4.0)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 600] = bytes(range(200)) * 3
    path.write_bytes(data)
    pcm, _ = play(path)
    assert len(pcm) >= 16_000


@pytest.mark.parametrize(
    "content",
    [b"", b"not media at all\n" * 50, b"RIFF\x24\x00\x00\x00WAVEfmt ", b"\x00" * 5000, b"\xff\xd8\xff\xe0"],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.mp4"
    path.write_bytes(content)
    with pytest.raises(MediaError) as caught:
        FileUser(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no such file"):
        FileUser(tmp_path / "none.mp4")
    with pytest.raises(MediaError, match="not a file"):
        FileUser(tmp_path)


def test_a_wav_without_samples_or_with_an_impossible_rate_is_refused(tmp_path: Path) -> None:
    for name, rate, samples in (("empty.wav", 16_000, 0), ("fast.wav", 1_092_676, 441)):
        with wave.open(str(tmp_path / name), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(bytes(2 * samples))
        with pytest.raises(MediaError):
            FileUser(tmp_path / name)


def test_a_silent_user_has_no_frames() -> None:
    part = SilentUser().take()
    assert part.frames == []
    assert part.pcm.shape == (UNIT_SAMPLES,)
    assert not part.pcm.any()
