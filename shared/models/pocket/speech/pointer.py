"""What the agent says and when: spelled words under a pointer that can neither skip nor repeat a phone.

Shape suffixes: B batch, W window of phones, C channels.
"""

import itertools
import re
import textwrap
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from shared.models.layout import STEPS_PER_UNIT
from shared.models.pocket.speech.phones import PHONE_IDS, PHONES, SILENCE
from shared.models.pocket.speech.spelling import spell

NEIGHBOURS = 3  # phones to either side that decide how long one lasts
MAX_FRAMES = 16  # that a phone lasts
MAX_WAITING_CHARACTERS = 20_000
PIECE = 200  # characters that are spelled in a unit, at most
FEW_PHONES = 16  # with no more left the next piece is spelled
# What spelling makes words of: digits, signs, and letters that are of A to Z without their accents.
SPEAKABLE = re.compile(r"[A-Za-z0-9À-ÅÇ-ÏÑ-ÖÙ-Ýà-åç-ïñ-öù-ýÿ%&+=@#°$€£]")
TEMPERATURE = 0.6  # of drawn durations: averages flatten the rhythm, the raw spread stumbles


class PhoneTimer(nn.Module):
    """How many frames of 40 ms a phone lasts, from its neighbourhood of seven phones."""

    def __init__(self, embedding: int = 32, hidden: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(PHONES), embedding)
        self.hidden = nn.Linear((2 * NEIGHBOURS + 1) * embedding, hidden)
        self.write = nn.Linear(hidden, MAX_FRAMES)

    def forward(self, phones_BW: Tensor) -> Tensor:
        """Logits [B, MAX_FRAMES] of lasting 1, 2, ... frames."""
        x_BC = self.embed(phones_BW).flatten(1)
        out: Tensor = self.write(nn.functional.gelu(self.hidden(x_BC)))
        return out


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechTokens:
    """What is said in one unit: a phone for each 40 ms, and the words that begin with them."""

    phones: tuple[int, ...]
    words: tuple[str, ...]

    @property
    def speaking(self) -> bool:
        """Whether any phone is a sound."""
        return any(phone != SILENCE for phone in self.phones)


@dataclass(slots=True, eq=False)
class _Line:
    """A line to be said, and what of it is not spelled yet."""

    text: str
    typed: bool
    left: str
    spelled: bool = False


@dataclass(slots=True)
class SpeechPointer:
    """The pointer of one session: phones to come, with the word that each begins, and the one that sounds.

    Lines are cut and spelled piece by piece, when the phones before them run out: whatever is typed, a unit
    costs no more than `PIECE` characters.
    """

    lines: deque[_Line] = field(default_factory=deque)
    characters: int = 0  # of all `lines`
    unbegun: deque[_Line] = field(default_factory=deque)  # of which nothing was heard yet
    waiting: deque[tuple[int, str, bool]] = field(default_factory=deque)  # phone, word, whether a line begins
    recent: deque[int] = field(default_factory=lambda: deque([SILENCE] * NEIGHBOURS, NEIGHBOURS))
    sounding: int = SILENCE
    frames_left: int = 0

    @property
    def busy(self) -> bool:
        """Whether something waits to be said, or sounds."""
        return bool(self.lines or self.waiting or self.frames_left)

    def say(self, text: str, *, typed: bool = False) -> bool:
        """Queue a line, the user's if `typed`; False when nothing in it can be said or too much waits."""
        if self.characters + len(text) > MAX_WAITING_CHARACTERS or not SPEAKABLE.search(text):
            return False
        text = " ".join(text.split())
        self.lines.append(_Line(text, typed, left=text))
        self.unbegun.append(self.lines[-1])
        self.characters += len(text)
        return True

    def _next_piece(self) -> str:
        """Take the words of the first line that fit in a piece, and what behind them can't be spoken."""
        line = self.lines[0]
        piece = textwrap.wrap(line.left[: 2 * PIECE], PIECE)[0]
        rest = line.left[len(piece) :].lstrip()
        if not SPEAKABLE.search(rest):
            self.lines.popleft()
            rest = ""
        self.characters -= len(line.left) - len(rest)
        line.left = rest
        return piece

    def _spell_next_piece(self) -> None:
        silent = not (self.waiting or self.frames_left)
        line = self.lines[0]
        for word in spell(self._next_piece()):
            begins = next(i for i, phone in enumerate(word.phones) if phone != PHONES[SILENCE])
            # Whoever is silent needs no pause before the first sound: it would make every answer late.
            phones = word.phones[begins:] if silent else word.phones
            named = 0 if silent else begins
            for i, phone in enumerate(phones):
                begins_line = i == named and not line.spelled
                self.waiting.append((PHONE_IDS[phone], word.text if i == named else "", begins_line))
            silent, line.spelled = False, True
        if not (line.left or line.spelled):
            self.unbegun.remove(line)

    def stop(self) -> tuple[str, ...]:
        """Drop all that waits; the phone that sounds ends now. Returns typed lines that were not begun."""
        lost = tuple(line.text for line in self.unbegun if line.typed)
        self.unbegun.clear()
        self.lines.clear()
        self.characters = 0
        self.waiting.clear()
        self.frames_left = 0
        self.sounding = SILENCE
        return lost

    @torch.no_grad()
    def advance(self, timer: PhoneTimer, generator: torch.Generator) -> SpeechTokens:
        """Move on by one unit; durations are drawn from `generator`."""
        phones, words = [], []
        if self.lines and len(self.waiting) < FEW_PHONES:
            self._spell_next_piece()
        for _ in range(STEPS_PER_UNIT):
            if self.frames_left == 0:
                words += self._next_phone(timer, generator)
            self.frames_left = max(0, self.frames_left - 1)
            phones.append(self.sounding)
        return SpeechTokens(phones=tuple(phones), words=tuple(words))

    def _next_phone(self, timer: PhoneTimer, generator: torch.Generator) -> list[str]:
        self.recent.append(self.sounding)
        if not self.waiting:
            self.sounding = SILENCE
            return []
        self.sounding, word, begins_line = self.waiting.popleft()
        if begins_line:
            self.unbegun.popleft()
        ahead = [phone for phone, *_ in itertools.islice(self.waiting, NEIGHBOURS)]
        ahead += [SILENCE] * (NEIGHBOURS - len(ahead))
        window = torch.tensor([[*self.recent, self.sounding, *ahead]], device=timer.write.weight.device)
        odds = (timer(window) / TEMPERATURE).softmax(-1)[0].cpu()  # drawn on the CPU for every device
        self.frames_left = 1 + int(torch.multinomial(odds, 1, generator=generator))
        return [word] if word else []
