"""What a scene's message holds, and how long one may be."""

import msgspec
import torch
from torch import Tensor

from shared.errors import SliceError

MAX_PROMPT = 2_000  # characters
MAX_SCENE_BYTES = 4 * MAX_PROMPT + 64


class SceneMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, for all blocks until the next one."""

    prompt: str
    seed: int = 0
    begins: bool = True
    """Whether what was made before is forgotten."""


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(SceneMessage)


def pack_scene(scene: SceneMessage, room: Tensor) -> int:
    """Write the message into a link's buffer, uint8; returns its bytes."""
    data = _encoder.encode(scene)
    room[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return len(data)


def unpack_scene(payload: Tensor) -> SceneMessage:
    """Read what `pack_scene` wrote; a SliceError where it is no such thing."""
    try:
        return _decoder.decode(payload.cpu().numpy().tobytes())
    except msgspec.MsgspecError as error:
        raise SliceError(f"not a scene: {error}") from None
