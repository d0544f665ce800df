"""The media of a model: what its units hold."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Media:
    """What one model takes in and gives out; everything else is converted to it.

    `sample_rate` (Hz, mono), `height` and `width` are the agent's sound and picture; the fields that begin
    with `input_` are what the model wants of the user.
    """

    unit_ms: int
    fps: int
    frames_per_unit: int
    sample_rate: int
    height: int
    width: int
    input_rate: int
    input_height: int
    input_width: int

    @property
    def input_unit_samples(self) -> int:
        return self.input_rate * self.unit_ms // 1000
