import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from shared.checkpoint import config_digest, save_weights
from shared.config import load_config
from shared.devices import Device
from shared.errors import CheckpointError, ConfigError
from shared.models.cache import KVCache
from shared.models.family import Role, UserUnit, model_builder
from shared.models.layout import KVBlock, Tower
from shared.models.pocket.config import PocketConfig
from shared.models.pocket.dialogue.replies import Request
from shared.models.pocket.family import PocketFamily
from shared.models.pocket.network.weights import PocketWeights
from shared.models.pocket.speech.spelling import spell
from shared.models.pocket.state import PocketState, Replica
from shared.models.single import Reply, reply_to
from shared.models.transformer import rms_norm
from shared.tables import from_table

BuildFamily = Callable[..., PocketFamily]
TINY = load_config("tiny").model
CPU = Device(dtype="float32")


def users(units: int, texts: dict[int, str] | None = None, seed: int = 0) -> list[UserUnit]:
    """A user who makes noise and lines typed at the given units."""
    rng = np.random.default_rng(seed)
    return [
        UserUnit(
            pcm=(0.1 * rng.standard_normal(2560)).astype(np.float32),
            frames=rng.integers(0, 256, (4, 64, 64, 3), dtype=np.uint8),
            texts=(texts[unit],) if texts and unit in texts else (),
        )
        for unit in range(units)
    ]


def same(one: Reply, two: Reply) -> bool:
    """To the last bit."""
    return (
        torch.equal(one.latents, two.latents)
        and np.array_equal(one.media.pcm, two.media.pcm)
        and np.array_equal(one.media.frames, two.media.frames)
        and one.decision == two.decision
    )


def alone(family: PocketFamily, seed: int = 7) -> PocketState:
    """A session with a memory of its own."""
    state: PocketState = family.init_state(family.allocate(1), 0, seed)
    return state


def kept_of(cache: KVCache) -> torch.Tensor:
    """All but the scratch places, which are the Performer's own."""
    kv, scratch = cache.kv_L2SNKD, cache.layout.scratch
    return torch.cat([kv[:, :, :, : scratch.start], kv[:, :, :, scratch.stop :]], dim=3)


def as_a_pair(family: PocketFamily, seed: int, observations: list[UserUnit]) -> Iterator[Reply]:
    """The work of Thinker and Performer, which share nothing but the bytes of slices and latents."""
    thinker, performer = alone(family, seed), alone(family, seed)

    def exchange(block: KVBlock, unit: int) -> None:
        message = torch.empty(family.slice_bytes(block), dtype=torch.uint8)
        family.export_kv(thinker, block, unit, message)
        family.import_kv(performer, block, unit, message.clone())
        assert torch.equal(kept_of(performer.cache), kept_of(thinker.cache))
        assert torch.equal(performer.cache.hidden_SN, thinker.cache.hidden_SN)

    for unit, user in enumerate(observations):
        (said,) = family.state_pass([thinker], [unit], [user], family.encode([thinker], [user]))
        exchange(KVBlock.STATE, unit)
        (latents,) = family.solve([performer], [unit])
        (media,) = family.decode([thinker], [latents])
        yield Reply(decision=said, latents=latents, media=media)
        family.commit([thinker], [unit], [latents])
        exchange(KVBlock.COMMIT, unit)


def test_two_caches_are_one_for_200_units(tiny_family: BuildFamily) -> None:
    family = tiny_family()
    observations = users(200, {3: "hello there", 120: "and once more"})
    pair, alone = as_a_pair(family, 7, observations), reply_to(family, 7, observations)
    assert all(same(a, b) for a, b in zip(pair, alone, strict=True))


def with_another_unit(observations: list[UserUnit], unit: int, **change: object) -> list[UserUnit]:
    return [
        dataclasses.replace(user, **change) if index == unit else user
        for index, user in enumerate(observations)
    ]


OTHER = users(1, seed=1)[0]
CHANGES = pytest.mark.parametrize(
    "change",
    [{"pcm": OTHER.pcm}, {"frames": OTHER.frames}, {"texts": ("hello",)}],
    ids=["sound", "picture", "text"],
)


def silent(units: int) -> list[UserUnit]:
    """A user who moves and says nothing."""
    return [dataclasses.replace(user, pcm=np.zeros(2560, np.float32)) for user in users(units)]


@torch.no_grad()
def responsive(family: PocketFamily) -> PocketFamily:
    """Noise is heard as a request, between the two sides of what the tower makes of noise and silence.

    And a scene head that is sure of what it sees: the gaze follows every picture.
    """
    listener = family.weights.network.listener
    sides = [torch.cat([tower_of(family, user) for user in some]).mean(0) for some in (users(4), silent(4))]
    axis = sides[0] - sides[1]
    steep = 100 * axis / axis.square().sum()
    listener.speech_head.weight.zero_()
    listener.speech_head.bias.fill_(-100)
    listener.speech_head.bias[Request.NONE] = 0
    listener.speech_head.weight[Request.NAME] = steep
    listener.speech_head.bias[Request.NAME] = -steep @ (sides[0] + sides[1]) / 2
    listener.vision_encoder.scene_head.weight.mul_(30)
    return family


def tower_of(family: PocketFamily, user: UserUnit) -> torch.Tensor:
    """The listening tower's last sound tokens [4, C] of a user in a first unit."""
    listener, state = family.weights.network.listener, alone(family)
    tokens = family.encode([state], [user])
    tokens = torch.cat(listener.user_tokens(tokens[:, :1], tokens[:, 1:]), dim=1)
    steps_T = family.layout.steps(KVBlock.STATE, 0, Tower.LISTENING)
    return rms_norm(
        listener.run(
            tokens, steps_T, state.cache.attend(state.cache.writing(KVBlock.STATE, [0], [0], Tower.LISTENING))
        )
    )[0, 1:]


@CHANGES
def test_a_unit_knows_nothing_of_the_next_and_acts_on_what_was(
    tiny_family: BuildFamily, change: dict[str, object]
) -> None:
    family = responsive(tiny_family())
    observations = silent(12)
    one = list(reply_to(family, 7, observations))
    two = list(reply_to(family, 7, with_another_unit(observations, 4, **change)))
    assert all(same(a, b) for a, b in zip(one[:4], two[:4], strict=True))
    differ = [not torch.equal(a.latents, b.latents) for a, b in zip(one, two, strict=True)]
    first = differ.index(True)
    assert first == 4, "a gaze, an answer, a typed line: all in the unit that asked for it"
    assert all(differ[first:])  # through the cache
    assert not np.array_equal(one[first].media.frames, two[first].media.frames)


@pytest.mark.parametrize("change", [{"pcm": OTHER.pcm}, {"frames": OTHER.frames}], ids=["sound", "picture"])
@torch.no_grad()
def test_the_towers_do_not_see_each_other(tiny_family: BuildFamily, change: dict[str, object]) -> None:
    """What the user does reaches the agent through the heads alone: with these silent, not at all."""
    family = tiny_family()
    listener = family.weights.network.listener
    for head in (listener.speech_head, listener.vision_encoder.scene_head):
        head.weight.zero_()
        head.bias.zero_()
    observations = users(6)
    states = [alone(family) for _ in range(2)]
    for unit, users_of_unit in enumerate(
        zip(observations, with_another_unit(observations, 5, **change), strict=True)
    ):
        latents = []
        for state, user in zip(states, users_of_unit, strict=True):
            family.state_pass([state], [unit], [user], family.encode([state], [user]))
            latents += family.solve([state], [unit])
            family.commit([state], [unit], latents[-1:])
        assert torch.equal(*latents)
    one, two = (state.cache.kv_L2SNKD for state in states)
    changed = {
        stream.name
        for stream in family.layout.streams
        if not torch.equal(*(kv[:, :, 0, family.layout.place(stream, 5)] for kv in (one, two)))
    }
    assert changed == {"user picture", "user sound"}


def test_seed_and_input_decide_every_byte(tiny_family: BuildFamily) -> None:
    observations = users(6, {0: "hello"})
    first, again, other = (
        list(reply_to(family, seed, observations))
        for family, seed in ((tiny_family(), 7), (tiny_family(), 7), (tiny_family(), 8))
    )
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.isclose(a.latents, b.latents).all() for a, b in zip(first, other, strict=True))


def test_two_roles_give_what_the_whole_model_gives() -> None:
    config = from_table(PocketConfig, TINY, "model")
    whole, thinker, performer = (
        PocketFamily.build(config, weights=None, device=CPU, role=role)
        for role in (Role.BOTH, Role.THINKER, Role.PERFORMER)
    )
    assert not hasattr(thinker.weights.audio, "encoder")
    assert thinker.digest == performer.digest == whole.digest
    here = thinker.init_state(thinker.allocate(1), 0, 7)
    there = performer.init_state(performer.allocate(1), 0, 7)
    user = users(4, {1: "hello"})
    for unit, reply in enumerate(reply_to(whole, 7, user)):
        thinker.state_pass(
            [here], [unit], user[unit : unit + 1], thinker.encode([here], user[unit : unit + 1])
        )
        hand_over(thinker, here, performer, there, KVBlock.STATE, unit)
        latents = performer.solve([there], [unit])
        (media,) = thinker.decode([here], latents)
        assert same(reply, Reply(decision=reply.decision, latents=latents[0], media=media))
        thinker.commit([here], [unit], latents)
        hand_over(thinker, here, performer, there, KVBlock.COMMIT, unit)


def hand_over(
    thinker: PocketFamily,
    here: PocketState,
    performer: PocketFamily,
    there: Replica,
    block: KVBlock,
    unit: int,
) -> None:
    message = torch.empty(thinker.slice_bytes(block), dtype=torch.uint8)
    thinker.export_kv(here, block, unit, message)
    performer.import_kv(there, block, unit, message)


@pytest.mark.parametrize("role", [Role.THINKER, Role.PERFORMER], ids=lambda role: role.value)
def test_nothing_of_a_session_is_left_in_its_slot_and_the_next_is_as_in_a_new_one(role: Role) -> None:
    config = from_table(PocketConfig, TINY, "model")
    family = PocketFamily.build(config, weights=None, device=CPU, role=role)
    memory, fresh = family.allocate(3), family.allocate(3)
    ended, neighbour = (family.init_state(memory, slot, slot) for slot in (1, 2))
    for state in (ended, neighbour):
        live_through(family, state, 6, seed=state.slot)
    kept = memory.cache.kv_L2SNKD[:, :, 2].clone()
    assert kept.any()
    assert memory.cache.kv_L2SNKD[:, :, 1].any()
    family.end_state(ended)
    assert not memory.cache.kv_L2SNKD[:, :, :2].view(torch.uint8).any()
    assert torch.equal(memory.cache.hidden_SN[:2], fresh.cache.hidden_SN[:2])
    assert torch.equal(memory.cache.kv_L2SNKD[:, :, 2], kept)
    made = [live_through(family, family.init_state(m, 1, 5), 4, seed=9) for m in (memory, fresh)]
    assert all(torch.equal(a, b) for a, b in zip(*made, strict=True))
    assert torch.equal(memory.cache.kv_L2SNKD[:, :, 1], fresh.cache.kv_L2SNKD[:, :, 1])


def live_through(family: PocketFamily, state: Replica, units: int, seed: int) -> list[torch.Tensor]:
    """What a role makes of units: a Thinker keys and values, a Performer latents of some that it is given."""
    made = []
    generator = torch.Generator().manual_seed(seed)
    for unit, user in enumerate(users(units, {1: "hello"}, seed)):
        if isinstance(state, PocketState):
            family.state_pass([state], [unit], [user], family.encode([state], [user]))
            family.commit([state], [unit], [torch.randn(family.config.latent_numbers, generator=generator)])
            made.append(state.cache.kv_L2SNKD[:, :, state.slot].clone())
        else:
            for block in KVBlock:
                given = torch.randn(family.slice_bytes(block) // 4, generator=generator)
                family.import_kv(state, block, unit, given.view(torch.uint8))
            made += family.solve([state], [unit])
    return made


def test_sessions_of_one_family_do_not_touch_each_other(tiny_family: BuildFamily) -> None:
    family = tiny_family()
    here, there = users(8, {1: "hello"}), users(8, {2: "good bye"}, seed=3)
    alone = list(reply_to(family, 7, here))
    interleaved = list(zip(reply_to(family, 7, here), reply_to(family, 9, there), strict=True))
    assert all(same(a, b) for a, (b, _) in zip(alone, interleaved, strict=True))


def test_what_is_typed_is_said_once_and_in_order(tiny_family: BuildFamily) -> None:
    line = "Hello, I have 3 apples; what's your name?"
    said = [reply.decision for reply in reply_to(tiny_family(), 7, users(200, {2: line}))]
    assert "".join(part.text for part in said) == "".join(word.text + " " for word in spell(line))
    assert not any(part.speaking for part in said[:2])
    assert said[-1].text == ""
    assert not said[-1].speaking
    assert all(part.speaking for part in said if part.text)


def test_what_cant_be_said_is_handed_back(tiny_family: BuildFamily) -> None:
    said = [reply.decision for reply in reply_to(tiny_family(), 7, users(3, {1: "🙂"}))]
    assert [part.refused for part in said] == [(), ("🙂",), ()]


def test_an_interruption_silences_the_speech_tokens_at_once(tiny_family: BuildFamily) -> None:
    family = tiny_family()
    line = "this will take a good while to say and nobody wants to hear the end of it"
    observations = with_another_unit(users(30, {0: line}), 8, interrupted=True)
    said = [reply.decision for reply in reply_to(family, 7, observations)]
    assert said[7].speaking
    assert not any(part.speaking or part.text for part in said[8:])


def test_lines_that_an_interruption_drops_are_told(tiny_family: BuildFamily) -> None:
    observations = with_another_unit(
        users(30, {0: "this will take a good while to say", 4: "a second line"}), 8, interrupted=True
    )
    told = [reply.decision.interrupted for reply in reply_to(tiny_family(), 7, observations)]
    assert told == [("a second line",) if unit == 8 else () for unit in range(30)]


def test_a_line_that_comes_with_the_interruption_is_said(tiny_family: BuildFamily) -> None:
    observations = with_another_unit(
        users(60, {0: "one two three four five six"}), 3, interrupted=True, texts=("stop",)
    )
    said = [reply.decision.text for reply in reply_to(tiny_family(), 7, observations)]
    assert "".join(said[3:]) == "stop "


def test_shapes_and_types(tiny_family: BuildFamily) -> None:
    family = tiny_family()
    reply = next(reply_to(family, 7, users(1)))
    assert reply.latents.dtype == torch.float32
    assert reply.latents.nbytes == family.latent_bytes
    assert (reply.media.pcm.dtype, reply.media.pcm.shape) == (np.int16, (2560,))
    assert (reply.media.frames.dtype, reply.media.frames.shape) == (np.uint8, (4, 64, 64, 3))
    media = family.media
    assert media.sample_rate * media.unit_ms == len(reply.media.pcm) * 1000
    assert media.fps * media.unit_ms == media.frames_per_unit * 1000


def test_what_is_emitted_is_the_callers_own(tiny_family: BuildFamily) -> None:
    replies = list(reply_to(tiny_family(), 7, users(3)))
    first = (replies[0].media.pcm.copy(), replies[0].media.frames.copy())
    assert np.array_equal(replies[0].media.pcm, first[0])
    for one, two in itertools.combinations(replies, 2):
        assert not np.shares_memory(one.media.frames, two.media.frames)
        assert not np.shares_memory(one.media.pcm, two.media.pcm)


def test_the_cache_stays_where_and_as_large_as_it_is(tiny_family: BuildFamily) -> None:
    family = tiny_family()
    state = alone(family)
    cache = (state.cache.kv_L2SNKD.data_ptr(), state.cache.kv_L2SNKD.nbytes)
    assert cache[1] + state.cache.hidden_SN.nbytes == family.memory_bytes()
    for unit, user in enumerate(users(20)):
        family.state_pass([state], [unit], [user], family.encode([state], [user]))
        latents = family.solve([state], [unit])
        family.decode([state], latents)
        family.commit([state], [unit], latents)
        sizes = (state.audio_in.tail_BN.numel(), state.audio_out.tail_BN.numel(), state.video_out.numel())
        assert sizes == (240, 480, 2 * 16 * 4 * 4)
    assert (state.cache.kv_L2SNKD.data_ptr(), state.cache.kv_L2SNKD.nbytes) == cache


def test_loading_by_name_gives_the_same_random_weights_everywhere() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = model_builder("pocket", TINY)(weights=None, device=CPU)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    two = model_builder("pocket", TINY)(weights=None, device=CPU)
    assert one.digest == two.digest
    observations = users(3)
    assert all(
        same(a, b)
        for a, b in zip(reply_to(one, 7, observations), reply_to(two, 7, observations), strict=True)
    )


def test_weights_from_a_folder(tmp_path: Path, tiny_family: BuildFamily) -> None:
    trained = tiny_family()
    digest = config_digest(trained.config)
    save_weights(trained.weights, tmp_path, digest, dtype=torch.float32)
    loaded = model_builder("pocket", TINY)(weights=tmp_path, device=CPU)
    assert loaded.digest not in {digest, model_builder("pocket", TINY)(weights=None, device=CPU).digest}
    observations = users(3)
    for a, b in zip(reply_to(trained, 7, observations), reply_to(loaded, 7, observations), strict=True):
        torch.testing.assert_close(a.latents, b.latents, atol=1e-4, rtol=1e-4)  # layers are packed


def test_weights_of_another_config_are_refused(tmp_path: Path) -> None:
    config = from_table(PocketConfig, TINY | {"solver_steps": 3}, "model")
    save_weights(PocketWeights(config), tmp_path, config_digest(config))
    with pytest.raises(CheckpointError, match="was made for config"):
        model_builder("pocket", TINY)(weights=tmp_path, device=CPU)


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(ConfigError, match=r"family='giant' is not installed; there are: .*pocket"):
        model_builder("giant", {})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"solver_step": 4}, "model.solver_step is not a setting"),
        ({"solver_steps": 0}, "solver_steps=0 must be at least 1"),
        ({"spans": {"text": 0}}, "text=0 must be at least 1"),
        ({"audio": {"hop": 320}}, "1280 samples a latent are not 40 ms"),
        ({"video": {"height": 100}}, "height=100 is not a multiple"),
        ({"listener": {"width": 100}}, "width=100 is not a multiple"),
        ({"listener": {"sample_rate": 8000}}, "hop=160 is not 10 ms at sample_rate=8000"),
        ({"listener": {"window": 80}}, "window=80 is shorter than hop=160"),
        ({"history": "full"}, "model.history is not a setting"),
    ],
)
def test_a_wrong_setting_is_a_config_error_in_one_line(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        model_builder("pocket", table)
    assert "\n" not in str(caught.value)


def test_a_unit_that_is_cut_short_fades_and_is_silent_as_far_as_the_phones_ran_ahead(
    tiny_family: BuildFamily,
) -> None:
    family = tiny_family()
    observations = users(6, {0: "hello there"})
    one = list(reply_to(family, 7, observations))
    two = list(reply_to(family, 7, with_another_unit(observations, 4, interrupted=True)))
    assert all(same(a, b) for a, b in zip(one[:4], two[:4], strict=True))
    cut_short = two[4].media.pcm
    assert np.abs(one[4].media.pcm[640:1280]).max() > 0
    assert np.abs(cut_short[:80]).max() > 0
    assert not cut_short[159:1280].any()
    assert np.abs(cut_short[1280:]).max() > 0  # random weights are never silent by themselves
