"""The wire protocol between a client and the Thinker. No I/O in here; `docs/protocol.md` is the reference.

The files tell the story: `errors` (a peer's faults, as values), `messages` (JSON control), `media` (the
binary unit), `outgoing` (what a slow client loses), `session` (the state machines of both ends).
"""
