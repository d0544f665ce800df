"""docs/protocol.md tells the truth: its examples decode, and nothing is missing in it."""

import pathlib
import re
from typing import get_args

from protocol.errors import CloseCode
from protocol.media import MediaFlags, MediaKind, MediaUnit, decode_media
from protocol.messages import ControlMessage, Ready, decode_control

REFERENCE = (pathlib.Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def test_the_example_of_a_unit() -> None:
    (example,) = re.findall(r"^02 01 [0-9a-f\s]+$", REFERENCE, re.MULTILINE)
    assert decode_media(bytes.fromhex(example)) == MediaUnit(
        kind=MediaKind.AGENT,
        flags=MediaFlags.DISCONTINUITY | MediaFlags.INTERRUPTED,
        epoch=3,
        unit=4328719365,
        pts_us=160_000,
        audio=b"\x01\x00\xff\x7f",
        frames=(b"\xff\xd8", b""),
    )


def test_the_example_of_ready() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", REFERENCE, re.DOTALL)
    ready = decode_control(example)
    assert isinstance(ready, Ready)
    assert all(f'"{field}"' in example for field in Ready.__struct_fields__)


def test_every_message_field_and_close_code_is_described() -> None:
    for message in get_args(ControlMessage):
        assert message.__struct_config__.tag in REFERENCE
        assert [f for f in message.__struct_fields__ if f"`{f}`" not in REFERENCE] == []
    for code in CloseCode:
        assert f"| {int(code)} |" in REFERENCE
