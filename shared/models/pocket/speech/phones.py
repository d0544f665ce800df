"""The phones that the pocket agent speaks with: ARPAbet in the selection of CMU's US English voices."""

PHONES = (
    "pau",
    "aa", "ae", "ah", "ao", "aw", "ax", "ay", "b", "ch", "d", "dh", "eh", "er", "ey", "f", "g", "hh", "ih",
    "iy", "jh", "k", "l", "m", "n", "ng", "ow", "oy", "p", "r", "s", "sh", "t", "th", "uh", "uw", "v", "w",
    "y", "z", "zh",
)  # fmt: skip
SILENCE = 0
PHONE_IDS = {phone: index for index, phone in enumerate(PHONES)}
