"""All parts of an evaluation, in the order of the levels."""

from training.evaluation import hearing, seeing, speaking, turns
from training.evaluation.parts import Part

PARTS: tuple[Part, ...] = (*speaking.PARTS, *hearing.PARTS, *turns.PARTS, *seeing.PARTS)
