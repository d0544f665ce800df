"""One session with the agent in this process, unit by unit, with its state within reach."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch

from shared.models.family import AgentMedia, StepDecision, UserUnit
from shared.models.layout import STEPS_PER_UNIT
from shared.models.pocket.family import PocketFamily
from shared.models.pocket.speech.phones import SILENCE
from shared.models.pocket.speech.pointer import PhoneTimer, SpeechPointer, SpeechTokens


class Conversation:
    """As `shared.models.single.reply_to`, but the caller decides what comes next and may look at `state`."""

    def __init__(self, family: PocketFamily, seed: int) -> None:
        self.family = family
        self.state = family.init_state(family.allocate(1), 0, seed)
        self.unit = 0

    def hear(self, user: UserUnit) -> StepDecision:
        """Listen for a unit and decide what to say, without saying it: a fifth of the cost of `reply`."""
        states, users = [self.state], [user]
        (said,) = self.family.state_pass(states, [self.unit], users, self.family.encode(states, users))
        self.unit += 1
        return said

    def reply(self, user: UserUnit) -> tuple[StepDecision, AgentMedia]:
        """Live through a whole unit."""
        states, units = [self.state], [self.unit]
        said = self.hear(user)
        latents = self.family.solve(states, units)
        (emission,) = self.family.decode(states, latents)
        self.family.commit(states, units, latents)
        return said, emission


@dataclass(slots=True)
class ScriptedSpeech(SpeechPointer):
    """A pointer on rails: the phones of a recording frame by frame, instead of words under the timer."""

    script: deque[int] = field(default_factory=deque)

    @property
    def busy(self) -> bool:
        """Whether something waits to be said."""
        return bool(self.script)

    def say(self, text: str, *, typed: bool = False) -> bool:
        """Nothing but the script is said."""
        del text, typed
        return True

    def stop(self) -> tuple[str, ...]:
        """The script goes on."""
        return ()

    def advance(self, timer: PhoneTimer, generator: torch.Generator) -> SpeechTokens:
        """The next four frames of the script; silence after its end."""
        del timer, generator
        phones = [self.script.popleft() if self.script else SILENCE for _ in range(STEPS_PER_UNIT)]
        return SpeechTokens(phones=tuple(phones), words=())


def nobody(family: PocketFamily, *texts: str) -> UserUnit:
    """A unit in which nobody is there, sound and picture are off, and perhaps something is typed."""
    media = family.media
    return UserUnit(
        pcm=np.zeros(media.input_rate * media.unit_ms // 1000, np.float32),
        frames=np.zeros((media.frames_per_unit, media.input_height, media.input_width, 3), np.uint8),
        texts=texts,
    )


def sound_of(emission: AgentMedia) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The sound of a unit in [-1, 1]."""
    return emission.pcm.astype(np.float32) / 32768.0
