"""Pictures as arrays: uint8 [height, width, 3], RGB. Scaling is PyAV's, JPEG is simplejpeg's."""

import av
import numpy as np
import numpy.typing as npt
import simplejpeg

Picture = npt.NDArray[np.uint8]

JPEG_QUALITY = 80
MAX_STRETCH = 16  # a picture 10,000 wide and 1 high is squeezed before it is cut, not blown up to gigabytes


def cover(
    frame: av.VideoFrame, width: int, height: int, *, pixel_aspect: float = 1.0, turns: int = 0
) -> Picture:
    """Scale a frame until it covers width x height, and cut the middle out: the aspect is kept, no bars.

    Args:
        frame: any pixel format and size.
        width: of the result.
        height: of the result.
        pixel_aspect: width over height of the frame's pixels.
        turns: quarter turns counter-clockwise that set the frame upright.
    """
    if turns % 2:
        width, height = height, width
    shown_width = frame.width * pixel_aspect
    scale = max(width / shown_width, height / frame.height)
    scaled_width = min(max(width, round(shown_width * scale)), width * MAX_STRETCH)
    scaled_height = min(max(height, round(frame.height * scale)), height * MAX_STRETCH)
    shrinks = scaled_width < frame.width
    scaled = frame.reformat(
        scaled_width, scaled_height, format="rgb24", interpolation="AREA" if shrinks else "BILINEAR"
    ).to_ndarray()
    left, top = (scaled_width - width) // 2, (scaled_height - height) // 2
    middle = scaled[top : top + height, left : left + width]
    return np.ascontiguousarray(np.rot90(middle, turns % 4), dtype=np.uint8)


def resize(picture: Picture, width: int, height: int) -> Picture:
    """`cover` for a picture that is an array already; itself when the size is right."""
    if picture.shape[:2] == (height, width):
        return picture
    return cover(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24"), width, height)


def encode_jpeg(picture: Picture) -> bytes:
    """The picture as JPEG."""
    coded: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(picture), JPEG_QUALITY, "RGB")
    return coded


def decode_jpeg(coded: bytes) -> Picture:
    """The picture in a JPEG.

    Raises:
        ValueError: when the bytes are no JPEG.
    """
    picture: Picture = simplejpeg.decode_jpeg(coded, "RGB")
    return picture
