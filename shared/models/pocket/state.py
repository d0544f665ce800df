"""What one session of a pocket model holds, and how several are put together for one pass.

Shape suffixes: B batch (sessions), N samples, C channels.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shared.models.audio_codec import AudioCodecState
from shared.models.cache import KVCache
from shared.models.pocket.dialogue.turn_taking import TurnTaking
from shared.models.pocket.network.passes import Passes
from shared.models.pocket.speech.pointer import SpeechPointer


@dataclass(slots=True)
class Replica:
    """What the Performer holds of a session: its slot of the cache, and what noise is drawn from."""

    seed: int
    passes: Passes
    slot: int

    @property
    def cache(self) -> KVCache:
        return self.passes.cache


@dataclass(slots=True)
class PocketState(Replica):
    """What the Thinker holds of one."""

    audio_in: AudioCodecState
    audio_out: AudioCodecState
    video_out: Tensor
    speech: SpeechPointer = field(default_factory=SpeechPointer)
    turn_taking: TurnTaking = field(default_factory=TurnTaking)
    decoded: int = 0
    cut_short: set[int] = field(default_factory=set)  # units in which the agent fell silent, not decoded yet


@contextmanager
def together(states: Sequence[AudioCodecState]) -> Iterator[AudioCodecState]:
    """Join the streams of several sessions to one batch for a pass; what it leaves goes back to each."""
    if len(states) == 1:
        yield states[0]
        return
    contexts = [torch.cat(rows) for rows in zip(*(state.contexts for state in states), strict=True)]
    batch = AudioCodecState(torch.cat([state.tail_BN for state in states]), contexts)
    yield batch
    for row, state in enumerate(states):
        state.tail_BN = batch.tail_BN[row : row + 1]
        state.contexts = [context[row : row + 1] for context in batch.contexts]
