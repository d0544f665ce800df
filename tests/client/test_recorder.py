"""The recording: one timeline for sound and picture, whatever comes, and no file when nothing came."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

from client.errors import RecordError, UsageError
from client.media import UserPart
from client.mp4 import RecordFormat
from client.recorder import MAX_AGENT_FRAMES, MAX_GAP_UNITS, MAX_USER_FRAMES, Recorder

NumberOf = Callable[[npt.NDArray[np.uint8]], int]


def form(width: int = 64, height: int = 64, sample_rate: int = 16_000) -> RecordFormat:
    return RecordFormat(
        width=width,
        height=height,
        fps=Fraction(25),
        frames_per_unit=4,
        sample_rate=sample_rate,
        samples_per_unit=sample_rate * 160 // 1000,
    )


def frames_of(unit: int, width: int = 64, height: int = 64) -> list[npt.NDArray[np.uint8]]:
    return [np.full((height, width, 3), 16 + 8 * ((unit * 4 + index) % 28), np.uint8) for index in range(4)]


def sound(level: int, samples: int = 2560) -> npt.NDArray[np.int16]:
    """A 400 Hz tone: 25 ms hold ten periods, so units join without a click."""
    return np.round(level * np.sin(2 * np.pi * 400 * np.arange(samples) / 16_000)).astype(np.int16)


def read(path: Path) -> tuple[npt.NDArray[np.float32], list[npt.NDArray[np.uint8]], av.VideoStream]:
    with av.open(str(path)) as file:
        pictures = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
        assert file.streams.video[0].codec_context.name == "h264"
        assert file.streams.audio[0].codec_context.name == "aac"
        assert file.streams.video[0].average_rate == 25
        video = file.streams.video[0]
        lengths = [float(stream.duration * stream.time_base) for stream in file.streams]
        assert abs(lengths[0] - lengths[1]) <= 0.16
    with av.open(str(path)) as file:
        pcm = np.concatenate([frame.to_ndarray()[0] for frame in file.decode(audio=0)])
    return pcm, pictures, video


def loud(pcm: npt.NDArray[np.float32], unit: int) -> bool:
    middle = pcm[unit * 2560 + 800 : unit * 2560 + 1800]
    return float(np.abs(middle).max()) > 0.1


def test_sound_and_picture_are_as_long_as_the_units(tmp_path: Path, number_of: NumberOf) -> None:
    recorder = Recorder(tmp_path / "out.mp4", form())
    for unit in range(5, 30):  # the first unit that came is the beginning
        recorder.add(unit, sound(8000 if unit % 2 else 0), frames_of(unit))
    assert recorder.close()
    assert recorder.units == 25
    pcm, pictures, _ = read(tmp_path / "out.mp4")
    assert len(pictures) == 100
    assert abs(len(pcm) - 25 * 2560) <= 2560
    assert [number_of(picture) for picture in pictures] == [(20 + index) % 28 for index in range(100)]
    assert [loud(pcm, index) for index in range(25)] == [unit % 2 == 1 for unit in range(5, 30)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.mp4"]


def test_missing_units_are_the_last_frame_and_silence(tmp_path: Path, number_of: NumberOf) -> None:
    recorder = Recorder(tmp_path / "out.mp4", form())
    for unit in (0, 1, 4, 5):
        recorder.add(unit, sound(8000), frames_of(unit))
    recorder.add(4, sound(8000), frames_of(6))  # late twin: ignored
    recorder.add(6, sound(8000), [])  # the server gave up its pictures
    recorder.add(7, sound(8000)[:100], frames_of(7)[:1])
    recorder.close()
    assert recorder.gaps == 2
    pcm, pictures, _ = read(tmp_path / "out.mp4")
    assert len(pictures) == 32
    assert [number_of(picture) for picture in pictures[8:16]] == [7] * 8
    assert [number_of(picture) for picture in pictures[24:]] == [23] * 4 + [0] * 4
    assert [loud(pcm, index) for index in range(8)] == [True, True, False, False, True, True, True, False]


@pytest.mark.parametrize(("width", "height"), [(63, 64), (64, 35), (177, 99), (1, 1)])
def test_odd_sizes_are_made_even(tmp_path: Path, width: int, height: int) -> None:
    recorder = Recorder(tmp_path / "odd.mp4", form(width, height))
    recorder.add(0, sound(0), frames_of(3, width, height))
    recorder.add(1, sound(0), frames_of(3, 20, 20))  # not what was announced
    recorder.close()
    _, pictures, video = read(tmp_path / "odd.mp4")
    assert (video.width, video.height) == (width + width % 2, height + height % 2)
    assert len(pictures) == 8


def test_another_sound_rate_is_kept(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "out.mp4", form(sample_rate=24_000))
    for unit in range(10):
        recorder.add(unit, sound(8000, 3840), frames_of(unit))
    recorder.close()
    pcm, pictures, _ = read(tmp_path / "out.mp4")
    assert len(pictures) == 40
    assert abs(len(pcm) - 38_400) <= 3840


def test_the_agent_stands_where_the_user_hears_it(tmp_path: Path, number_of: NumberOf) -> None:
    recorder = Recorder(tmp_path / "out.mp4", form())
    recorder.delay_s = 0.365  # nine frames of 40 ms
    for unit in range(3, 6):
        recorder.add(unit, sound(8000), frames_of(unit))
    recorder.close()
    pcm, pictures, _ = read(tmp_path / "out.mp4")
    assert len(pictures) == 9 + 12
    assert [number_of(picture) for picture in pictures] == 9 * [12] + list(range(12, 24))
    loud_frames = [np.abs(part).max() > 0.1 for part in np.split(pcm[: 21 * 640], 21)]
    assert loud_frames == 9 * [False] + 12 * [True]


def users_and_agents(path: Path, number_of: NumberOf) -> tuple[list[int], list[int]]:
    pictures = read(path)[1]
    return (
        [number_of(picture[:, :60]) for picture in pictures],
        [number_of(picture[:, 68:]) for picture in pictures],
    )


def test_both_sides_stand_beside_each_other(tmp_path: Path, number_of: NumberOf) -> None:
    recorder = Recorder(tmp_path / "both.mp4", form(), both=True)
    recorder.delay_s = 0.4  # two units and a half
    for unit in range(6):
        recorder.add_user(UserPart(pcm=sound(9000 if unit == 2 else 0), frames=frames_of(unit, 32, 32)))
        if unit:
            recorder.add(unit - 1, sound(0), frames_of(unit - 1))
    recorder.close()
    pcm, _, video = read(tmp_path / "both.mp4")
    assert (video.width, video.height) == (128, 64)
    users, agents = users_and_agents(tmp_path / "both.mp4", number_of)
    assert agents == 10 * [0] + list(range(20))
    assert users == list(range(24)) + 6 * [23]
    assert [loud(pcm, index) for index in range(6)] == [False, False, True, False, False, False]


def test_a_user_s_unit_that_comes_late_is_waited_for(tmp_path: Path, number_of: NumberOf) -> None:
    recorder = Recorder(tmp_path / "both.mp4", form(), both=True)
    for unit in range(6):  # the agent is always a little ahead
        recorder.add(unit, sound(0), frames_of(unit))
        recorder.add_user(UserPart(pcm=sound(0), frames=frames_of(unit)))
    recorder.close()
    users, agents = users_and_agents(tmp_path / "both.mp4", number_of)
    assert users == agents == list(range(24))


def test_a_user_who_comes_much_too_late_is_left_out_and_comes_back_in_time(
    tmp_path: Path, number_of: NumberOf
) -> None:
    recorder = Recorder(tmp_path / "both.mp4", form(), both=True)
    units = MAX_AGENT_FRAMES // 4 + 6
    for unit in range(units):
        recorder.add(unit, sound(0), frames_of(unit))
    for unit in range(units):
        recorder.add_user(UserPart(pcm=sound(0), frames=frames_of(unit)))
    recorder.close()
    users, agents = users_and_agents(tmp_path / "both.mp4", number_of)
    left_out = 4 * units - MAX_AGENT_FRAMES
    assert len(users) == len(agents) == 4 * units
    assert users[left_out:] == agents[left_out:]


def test_a_user_whom_nobody_answers_does_not_fill_memory(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "both.mp4", form(), both=True)
    for _ in range(500):
        recorder.add_user(UserPart(pcm=sound(0), frames=[]))
    assert recorder._user is not None
    assert len(recorder._user._frames) == MAX_USER_FRAMES
    assert not recorder.close()


def test_nothing_came_and_nothing_is_left(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.write_bytes(b"an earlier recording")
    assert not Recorder(target, form()).close()
    assert target.read_bytes() == b"an earlier recording"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_file_appears_only_when_complete(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "out.mp4", form())
    recorder.add(0, sound(0), frames_of(0))
    assert not (tmp_path / "out.mp4").exists()
    recorder.close()
    assert (tmp_path / "out.mp4").exists()


def test_a_wild_unit_number_does_not_fill_the_disk(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "out.mp4", form(16, 16))
    recorder.add(0, sound(0), frames_of(0))
    recorder.add(10 + MAX_GAP_UNITS, sound(0), frames_of(1))
    recorder.add(2**60, sound(0), frames_of(2))
    recorder.close()
    assert recorder.units == 3


def test_a_target_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        Recorder(tmp_path / "nowhere" / "out.mp4", form())
    with pytest.raises(UsageError):
        Recorder(tmp_path, form())


def test_a_disk_that_fails_is_one_clear_line(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    recorder = Recorder(folder / "out.mp4", form())
    folder.rmdir()
    with pytest.raises(RecordError, match="can't be written"):
        recorder.add(0, sound(0), frames_of(0))
    assert not recorder.close()
