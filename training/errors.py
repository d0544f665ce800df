"""Faults of training that can be foreseen, beside those of `shared.errors`."""

from shared.errors import RuntimeFault


class TrainingError(RuntimeFault):
    """Something that training needs is missing (a program, a trained part, room on the disk)."""
