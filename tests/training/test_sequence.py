"""Training sees exactly what serving sees: a masked sequence against the cache with its rings."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shared.config import load_config
from shared.models.cache import KVCache
from shared.models.family import Observation
from shared.models.layout import STEPS_PER_UNIT, Block
from shared.models.pocket.config import PocketConfig, Token
from shared.models.pocket.family import PocketFamily, PocketState, PocketWeights
from shared.models.pocket.phones import SILENCE
from shared.models.pocket.speech import Speech, duration_draws
from shared.models.solver import unit_noise
from shared.models.transformer import Attend
from shared.tables import from_table
from training.performer import AGENT, NOISY, Batch, Sequence, crop, lay_sequence, masked, velocity_loss
from training.tracks import Track

UNITS = 11
SPANS = {"picture": 2, "sound": 3, "text": 4}  # all shorter than UNITS, so that every ring has wrapped twice
# fp32: the mask leaves keys out of long sums in another order than the cache.
ROUNDING = {"atol": 2e-5, "rtol": 1e-4}
PASSES = ((Block.STATE, Block.STATE), (NOISY, Block.REMEMBER), (Block.REMEMBER, Block.REMEMBER))


@pytest.fixture(autouse=True)
def calm() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def tiny_config(**changes: Any) -> PocketConfig:
    table = load_config("tiny").model
    merged: dict[str, Any] = table | {"spans": SPANS}
    for name, change in changes.items():
        merged[name] = table.get(name, {}) | change if isinstance(change, Mapping) else change
    return from_table(PocketConfig, merged, "model")


@torch.no_grad()
def tiny_family(config: PocketConfig) -> PocketFamily:
    weights = PocketWeights(config)
    for parameter in weights.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return PocketFamily(config, weights, digest="tiny", device="cpu")


def for_grouped_heads(attend: Attend, group: int) -> Attend:
    return lambda layer, q, k, v: attend(
        layer, q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    )


def served(family: PocketFamily, sequence: Sequence, x_BTC: Tensor, modulation: Tensor) -> Tensor:
    """The same tokens as the runtime runs them: state, solve, remember, unit by unit, through the rings."""
    cache = KVCache(family.layout, family.config.transformer, dtype=torch.float32, device="cpu")
    out = torch.empty_like(x_BTC)
    for unit in range(sequence.units):
        for part, block in PASSES:
            streams = [token for token in Token if family.layout.streams[token].block is block]
            index = torch.cat([sequence.places[token, int(part)][unit] for token in streams])
            steps_T = family.layout.steps(block, unit)
            assert torch.equal(steps_T, sequence.steps_T[index])
            attend = cache.reader() if part == NOISY else cache.writer(block, unit)
            out[:, index] = family.weights.network.run(x_BTC[:, index], steps_T, modulation[:, index], attend)
    return out


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@torch.no_grad()
def test_the_masked_sequence_equals_the_cache(kv_heads: int) -> None:
    config = tiny_config(transformer={"heads": 4, "kv_heads": kv_heads})
    family = tiny_family(config)
    sequence = lay_sequence(config, UNITS, tuple(Token))
    x_BTC = torch.randn(1, len(sequence.steps_T), config.transformer.dim)
    modulation = 0.3 * torch.randn(1, len(sequence.steps_T), 6, config.transformer.dim)
    attend = for_grouped_heads(masked(sequence), 4 // kv_heads)
    trained = family.weights.network.run(x_BTC, sequence.steps_T, modulation, attend)
    torch.testing.assert_close(served(family, sequence, x_BTC, modulation), trained, **ROUNDING)


@pytest.mark.parametrize("stream", SPANS)
@torch.no_grad()
def test_that_comparison_would_notice_a_span_of_one_more(stream: str) -> None:
    config = tiny_config(transformer={"kv_heads": 2})
    family = tiny_family(config)
    sequence = lay_sequence(config, UNITS, tuple(Token))
    longer = lay_sequence(tiny_config(spans={**SPANS, stream: SPANS[stream] + 1}), UNITS, tuple(Token))
    x_BTC = torch.randn(1, len(sequence.steps_T), config.transformer.dim)
    modulation = torch.zeros(1, len(sequence.steps_T), 6, config.transformer.dim)
    trained = family.weights.network.run(x_BTC, sequence.steps_T, modulation, masked(longer))
    error = (served(family, sequence, x_BTC, modulation) - trained).abs().amax((0, 2))
    assert error[sequence.places[Token.AGENT_SOUND, NOISY][-1]].min() > 1e-3
    # Until the shorter ring is full there is no difference.
    assert error[sequence.places[Token.AGENT_SOUND, NOISY][0]].max() < ROUNDING["atol"]


def user(*texts: str) -> Observation:
    pcm = 0.1 * torch.randn(2560).numpy()
    frames = torch.randint(0, 256, (4, 64, 64, 3), dtype=torch.uint8).numpy()
    return Observation(pcm=pcm.astype(np.float32), frames=frames, texts=texts)


def slots_of(family: PocketFamily, seed: int, text: str, units: int) -> tuple[Tensor, Tensor]:
    """What a session of that seed says in its text slots: words [1, U, 1], phones [1, U, 4]."""
    speech = Speech()
    assert speech.say(text)
    slots = [speech.advance(family.weights.timer, duration_draws(seed, unit)) for unit in range(units)]
    words = torch.tensor([[[int(slot.speaking)] for slot in slots]])
    return words, torch.tensor([[slot.phones for slot in slots]])


def served_velocity(
    family: PocketFamily, state: PocketState, unit: int, x: tuple[Tensor, Tensor], tau: Tensor
) -> tuple[Tensor, Tensor]:
    network = family.weights.network
    tokens = torch.cat(network.agent_tokens(*x), dim=1) + network.noisy
    modulation = network.transformer.flow_time(tau)[None, None]
    out = network.run(tokens, family.layout.steps(Block.REMEMBER, unit), modulation, state.cache.reader())
    pictures = family.config.picture_tokens
    return network.velocity_head(out[:, :pictures], out[:, pictures:])


@torch.no_grad()
def test_the_training_loss_is_the_error_of_the_served_velocity() -> None:
    config = tiny_config(transformer={"kv_heads": 2}, senses={"gate": 0.0})  # trained on closed senses
    family = tiny_family(config)
    family.weights.network.sense_gate.zero_()
    words, phones = slots_of(family, seed=3, text="hello, world", units=UNITS)
    picture = torch.randn(1, UNITS, config.picture_tokens, config.video.latent_dim)
    sound = torch.randn(1, UNITS, STEPS_PER_UNIT, config.audio.latent_dim)
    batch = Batch(picture=picture, sound=sound, phones=phones, words=words)
    sequence = lay_sequence(config, UNITS, tuple(Token))
    torch.manual_seed(5)
    losses = velocity_loss(family.weights.network, sequence, batch, history_noise=0.0)

    torch.manual_seed(5)  # the same draws again, in the same order
    tau_U = torch.sigmoid(torch.randn(1, UNITS))[0]
    noise = (torch.randn_like(picture), torch.randn_like(sound))
    state = family.init_state(3)
    errors: dict[str, list[Tensor]] = {"picture": [], "sound": []}
    for unit, tau in enumerate(tau_U):
        seen = user("hello, world") if unit == 0 else user()
        family.state_pass(state, unit, seen, family.encode(state, seen))
        clean = (picture[:, unit], sound[:, unit])
        noisy = tuple((1 - tau) * z + tau * eps[:, unit] for z, eps in zip(clean, noise, strict=True))
        made = served_velocity(family, state, unit, noisy, tau)
        for name, velocity, z, eps in zip(errors, made, clean, noise, strict=True):
            errors[name].append((velocity - (eps[:, unit] - z)).square().mean())
        family.remember(state, unit, torch.cat([z.flatten() for z in clean]))
    for name, loss in losses.items():
        torch.testing.assert_close(torch.stack(errors[name]).mean(), loss, **ROUNDING)


@torch.no_grad()
def test_a_whole_session_equals_one_masked_forward() -> None:
    """With open senses, text, its own latents as history, and one solver step: noise minus velocity."""
    config = tiny_config(transformer={"kv_heads": 2}, solver_steps=1)
    family = tiny_family(config)
    network, seed, text = family.weights.network, 3, "one two three four"
    sequence = lay_sequence(config, UNITS, tuple(Token))
    x_BTC = torch.zeros(1, len(sequence.steps_T), config.transformer.dim)

    def put(part: int, unit: int, streams: tuple[Token, ...], tokens: Tensor) -> None:
        x_BTC[:, torch.cat([sequence.places[token, part][unit] for token in streams])] = tokens

    words, phones = slots_of(family, seed, text, UNITS)
    state, replies = family.init_state(seed), []
    for unit in range(UNITS):
        seen = user(text) if unit == 0 else user()
        tokens = family.encode(state, seen)
        family.state_pass(state, unit, seen, tokens)
        latents = family.solve(state, unit)
        family.remember(state, unit, latents)
        replies.append(latents)
        put(Block.STATE, unit, (Token.USER_PICTURE, Token.USER_SOUND), tokens)
        put(
            Block.STATE,
            unit,
            (Token.WORD, Token.PHONE),
            torch.cat(network.text_tokens(words[:, unit], phones[:, unit]), dim=1),
        )
        noise = unit_noise(seed, unit, tuple(latents.shape))
        put(Block.REMEMBER, unit, AGENT, torch.cat(network.agent_tokens(*family._split(latents)), dim=1))
        put(NOISY, unit, AGENT, torch.cat(network.agent_tokens(*family._split(noise)), dim=1) + network.noisy)

    noisy = torch.cat([sequence.places[token, NOISY].flatten() for token in AGENT])
    tau_T = torch.zeros(len(sequence.steps_T))
    tau_T[noisy] = 1
    out = network.run(x_BTC, sequence.steps_T, network.transformer.flow_time(tau_T)[None], masked(sequence))
    for unit, latents in enumerate(replies):
        velocity = network.velocity_head(*(out[:, sequence.places[token, NOISY][unit]] for token in AGENT))
        noise = unit_noise(seed, unit, tuple(latents.shape))
        torch.testing.assert_close(noise - torch.cat([v.flatten() for v in velocity]), latents, **ROUNDING)


def ages_seen(sequence: Sequence, query: tuple[Token, int], key: tuple[Token, int], unit: int) -> list[int]:
    """How many units ago the tokens of one stream were that another sees at `unit`."""
    row = sequence.mask_TR[sequence.places[query][unit, 0]]
    seen = row[sequence.places[key][:, 0]].nonzero().flatten()
    return (unit - seen).tolist()


def test_who_sees_what() -> None:
    sequence = lay_sequence(tiny_config(), UNITS, tuple(Token))
    state, remember = int(Block.STATE), int(Block.REMEMBER)
    phone, heard = (Token.PHONE, state), (Token.USER_SOUND, state)
    own, noisy = (Token.AGENT_SOUND, remember), (Token.AGENT_SOUND, NOISY)
    # The state pass sees itself; the agent's last unit is the newest of its kind.
    assert ages_seen(sequence, phone, phone, 8) == [3, 2, 1, 0]
    assert ages_seen(sequence, phone, heard, 8) == [2, 1, 0]
    assert ages_seen(sequence, phone, own, 8) == [3, 2, 1]
    # So does the solve, which must not see the unit that it makes.
    assert ages_seen(sequence, noisy, phone, 8) == [3, 2, 1, 0]
    assert ages_seen(sequence, noisy, own, 8) == [3, 2, 1]
    # Remembering writes the unit itself.
    assert ages_seen(sequence, own, own, 8) == [2, 1, 0]
    assert ages_seen(sequence, own, phone, 8) == [3, 2, 1, 0]
    # In the beginning there is less.
    assert ages_seen(sequence, noisy, own, 0) == []
    assert ages_seen(sequence, noisy, phone, 0) == [0]


def test_every_place_belongs_to_one_stream_and_part() -> None:
    for streams in (tuple(Token), (Token.WORD, Token.PHONE, *AGENT)):
        sequence = lay_sequence(tiny_config(), 5, streams)
        places = torch.cat([place.flatten() for place in sequence.places.values()])
        assert sorted(places.tolist()) == list(range(len(sequence.steps_T)))
        assert {token for token, _ in sequence.places} == set(streams)


def test_a_crop_keeps_frames_together() -> None:
    frames = torch.arange(100)
    track = Track(
        picture=frames.view(-1, 1, 1).float(), sound=frames.view(-1, 1).float(), phones=frames.clamp(max=1)
    )
    batch = crop(track, track.words(), [3, 50], 4)
    assert batch.picture.shape == (2, 4, 4, 1)
    assert batch.sound[0].flatten().tolist() == list(range(3, 19))
    assert batch.picture[1].flatten().tolist() == list(range(50, 66))
    assert batch.words.shape == (2, 4, 1)


def test_a_word_slot_says_whether_its_unit_has_a_phone() -> None:
    phones = torch.full((16,), SILENCE)
    phones[7] = 5
    track = Track(picture=torch.zeros(16, 1, 1), sound=torch.zeros(16, 1), phones=phones)
    assert crop(track, track.words(), [0], 3).words.flatten().tolist() == [0, 1, 0]
