"""The webcam's thread, fed by a video file through OpenCV as by a camera."""

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from client.camera import Webcam, list_cameras, load_opencv
from client.devices import open_devices
from client.errors import MediaDeviceError

MakeMedia = Callable[..., Path]
NumberOf = Callable[[npt.NDArray[np.uint8]], int]

pytest.importorskip("cv2")


def test_pictures_come_at_the_wanted_size_and_the_latest_wins(
    make_media: MakeMedia, number_of: NumberOf
) -> None:
    path = make_media("camera.mkv", size=(96, 64), times=[index / 25 for index in range(20)], rate=None)
    webcam = Webcam(str(path))
    assert webcam.wait_opened(10)
    while not (kept := list(webcam._frames)) or number_of(kept[-1][1]) < 19:
        time.sleep(0.01)
    pictures = webcam.latest(time.monotonic())
    assert len(pictures) == 4
    assert {picture.shape for picture in pictures} == {(64, 64, 3)}
    assert number_of(pictures[3]) == 19
    # the moments at which pictures were taken decide, not the order in which they are asked for
    taken, picture = kept[-2]
    assert webcam.latest(taken)[3] is picture
    webcam.close()


def test_a_camera_that_shows_nothing_new_shows_nothing(make_media: MakeMedia) -> None:
    webcam = Webcam(str(make_media("camera.mkv", seconds=0.2, rate=None)))
    assert webcam.wait_opened(10)
    assert webcam.latest(time.monotonic() + 60) == []
    webcam.close()


def test_a_missing_camera_is_a_warning_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.WARNING):
        user = open_devices(microphone=None, camera=str(tmp_path / "none.mp4"))
        assert user.take().frames == []
        user.close()
    assert sum("shows nothing" in record.message for record in caplog.records) == 1


def test_without_opencv_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MediaDeviceError, match="pip install"):
        load_opencv()


def test_listing_cameras_never_fails() -> None:
    assert isinstance(list_cameras(), list)
