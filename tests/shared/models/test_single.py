from collections.abc import Callable, Iterator

import numpy as np
import torch

from shared.models.family import UserUnit
from shared.models.pocket.family import PocketFamily
from shared.models.single import reply_to


def silent_user(texts: tuple[str, ...] = ()) -> UserUnit:
    return UserUnit(pcm=np.zeros(2560, np.float32), frames=np.zeros((4, 64, 64, 3), np.uint8), texts=texts)


def test_the_same_session_twice_gives_the_same_bytes(tiny_family: Callable[..., PocketFamily]) -> None:
    family = tiny_family()
    session = [silent_user(("hello",)), *(silent_user() for _ in range(9))]
    for one, two in zip(reply_to(family, 5, session), reply_to(family, 5, session), strict=True):
        assert one.decision == two.decision
        assert one.latents.numpy().tobytes() == two.latents.numpy().tobytes()
        assert one.media.pcm.tobytes() == two.media.pcm.tobytes()
        assert one.media.frames.tobytes() == two.media.frames.tobytes()


def test_a_reply_needs_no_later_observation(tiny_family: Callable[..., PocketFamily]) -> None:
    taken = 0

    def live() -> Iterator[UserUnit]:
        nonlocal taken
        while True:
            taken += 1
            yield silent_user()

    replies = reply_to(tiny_family(), 5, live())
    for unit in range(1, 4):
        next(replies)
        assert taken == unit


def test_global_randomness_is_neither_used_nor_moved(tiny_family: Callable[..., PocketFamily]) -> None:
    family = tiny_family()
    torch.manual_seed(1)
    first = next(reply_to(family, 5, [silent_user(("hello",))]))
    state = torch.get_rng_state()
    torch.manual_seed(2)
    again = next(reply_to(family, 5, [silent_user(("hello",))]))
    assert torch.equal(first.latents, again.latents)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
