"""What a client can fail of. Each message is one line for the person at the terminal.

ClientError
├── UsageError         what was asked for can't be done (exit 2)
│   └── MediaError     the input file is missing, broken or holds neither sound nor picture
├── MediaDeviceError        a camera, microphone, loudspeaker or window can't be used
├── RecordError        the recording can't be written
└── ConnectionFailed   no session with the server, or it broke off
    └── Unauthorised   the server refused the token (exit 2)
"""

from typing import ClassVar


class ClientError(Exception):
    """Base of all; `exit_code` is what the command ends with."""

    exit_code: ClassVar[int] = 1


class UsageError(ClientError, ValueError):
    """What was asked for can't be done."""

    exit_code = 2


class MediaError(UsageError):
    """The input file is missing, broken or holds neither sound nor picture."""


class MediaDeviceError(ClientError):
    """A camera, microphone, loudspeaker or window can't be used."""


class RecordError(ClientError):
    """The recording can't be written."""


class ConnectionFailed(ClientError):  # noqa: N818 - reads better than ConnectionFailedError
    """No session with the server, or it broke off."""


class Unauthorised(ConnectionFailed):
    """The server refused the token."""

    exit_code = 2
