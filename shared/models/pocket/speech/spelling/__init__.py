"""From typed English to phones: a pronouncing dictionary, letter rules for the rest, numbers in words.

`cmudict.dict.gz` is the CMU Pronouncing Dictionary, unchanged (see LICENSE beside it).
"""

from shared.models.pocket.speech.spelling.spell import SpelledWord, load_dictionary, spell

__all__ = ["SpelledWord", "load_dictionary", "spell"]
