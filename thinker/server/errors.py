"""Faults of the Thinker's server side.

PictureError    one picture of the user can't be used; the session goes on
"""


class PictureError(Exception):
    """A picture that can't be decoded or is too large; the message is one line for its sender."""
