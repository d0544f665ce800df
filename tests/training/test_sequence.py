"""Training sees exactly what serving sees: a masked sequence against the cache with its rings."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from shared.config import load_config
from shared.devices import Device
from shared.models.cache import KVCache
from shared.models.layout import STEPS_PER_UNIT, KVBlock, Tower
from shared.models.pocket.config import FRAMES_PER_UNIT, GESTURES, PocketConfig
from shared.models.pocket.family import PocketFamily
from shared.models.pocket.network.passes import Pass
from shared.models.pocket.network.streamer import StreamerNetwork
from shared.models.pocket.network.weights import PocketWeights
from shared.models.pocket.state import PocketState
from shared.models.solver import unit_noise
from shared.models.transformer import Attend
from shared.tables import from_table
from training.performer import AgentBatch, remember, velocity, velocity_loss
from training.sequence import Past, Sequence, lay_sequence, reader, writer

UNITS = 11
SPANS = {"picture": 2, "sound": 3, "text": 4}  # all shorter than UNITS, so that every ring has wrapped twice
# fp32: the mask leaves keys out of long sums in another order than the cache.
ROUNDING = 2e-5


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
    return PocketFamily(config, weights, digest="tiny", device=Device(dtype="float32"))


def speaking(config: PocketConfig) -> Sequence:
    return lay_sequence(config.layout(), Tower.SPEAKING, UNITS)


def for_grouped_heads(attend: Attend, group: int) -> Attend:
    return lambda layer, q, k, v: attend(
        layer, q, k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    )


def tokens_of(config: PocketConfig, sequence: Sequence) -> tuple[Tensor, Tensor, Tensor]:
    """Anything at all: kept [1, R, C] and noisy [1, Q, C] tokens, and modulations of the noisy ones."""
    dim = config.transformer.dim
    kept, noisy = len(sequence.kept_steps_R), len(sequence.noisy_steps_Q)
    return torch.randn(1, kept, dim), torch.randn(1, noisy, dim), 0.3 * torch.randn(1, noisy, 6, dim)


def trained(
    network: StreamerNetwork, sequence: Sequence, tokens: tuple[Tensor, Tensor, Tensor], *, group: int
) -> tuple[Tensor, Tensor]:
    """Outputs of the kept and of the noisy tokens under the mask."""
    kept_BRC, noisy_BQC, modulation = tokens
    past: Past = []
    write = for_grouped_heads(writer(sequence, past), group)
    kept = network.run(kept_BRC, sequence.kept_steps_R, torch.zeros(1, 1, 6, kept_BRC.shape[-1]), write)
    read = for_grouped_heads(reader(sequence, past), group)
    return kept, network.run(noisy_BQC, sequence.noisy_steps_Q, modulation, read)


def served(family: PocketFamily, units: int, tokens: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The same tokens as the runtime runs them: state, solve, remember, unit by unit, through the rings."""
    network, layout = family.weights.network, family.layout
    cache = KVCache(layout, family.config.transformer, dtype=torch.float32, device="cpu")
    kept, noisy = [], []
    nothing = torch.zeros(1, 1, 6, tokens[0].shape[-1])
    for unit in range(units):
        kept_BTC, noisy_BTC, modulation = (x.view(1, units, -1, *x.shape[2:])[:, unit] for x in tokens)
        slots, own = torch.split(kept_BTC, [layout.tokens(block, Tower.SPEAKING) for block in KVBlock], dim=1)
        steps = [layout.steps(block, unit, Tower.SPEAKING) for block in KVBlock]
        kept.append(
            network.run(slots, steps[0], nothing, cache.attend(cache.writing(KVBlock.STATE, [0], [unit])))
        )
        noisy.append(network.run(noisy_BTC, steps[1], modulation, cache.attend(cache.solving([0], [unit]))))
        kept.append(
            network.run(own, steps[1], nothing, cache.attend(cache.writing(KVBlock.COMMIT, [0], [unit])))
        )
    return torch.cat(kept, dim=1), torch.cat(noisy, dim=1)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@torch.no_grad()
def test_the_masked_sequence_equals_the_cache(kv_heads: int) -> None:
    config = tiny_config(transformer={"heads": 4, "kv_heads": kv_heads}, listener={"heads": 4})
    family = tiny_family(config)
    sequence = speaking(config)
    tokens = tokens_of(config, sequence)
    expected = trained(family.weights.network, sequence, tokens, group=4 // kv_heads)
    for made, wanted in zip(served(family, UNITS, tokens), expected, strict=True):
        torch.testing.assert_close(made, wanted, atol=ROUNDING, rtol=1e-4)


@pytest.mark.parametrize("stream", SPANS)
@torch.no_grad()
def test_that_comparison_would_notice_a_span_of_one_more(stream: str) -> None:
    config = tiny_config(transformer={"kv_heads": 2})
    family = tiny_family(config)
    tokens = tokens_of(config, speaking(config))
    longer = speaking(tiny_config(spans={**SPANS, stream: SPANS[stream] + 1}))
    _, expected = trained(family.weights.network, longer, tokens, group=1)
    _, made = served(family, UNITS, tokens)
    error_U = (made - expected).abs().view(UNITS, -1).amax(1)
    assert error_U[-1] > 1e-3
    assert error_U[0] < ROUNDING  # until the shorter ring is full there is no difference


@torch.no_grad()
def test_the_listening_tower_is_laid_out_likewise() -> None:
    config = tiny_config(transformer={"kv_heads": 2})
    family = tiny_family(config)
    layout, listener = family.layout, family.weights.network.listener
    sequence = lay_sequence(layout, Tower.LISTENING, UNITS)
    assert len(sequence.noisy_steps_Q) == 0
    tokens = torch.randn(1, len(sequence.kept_steps_R), config.listener.dim)
    expected = listener.run(tokens, sequence.kept_steps_R, writer(sequence, []))
    cache = KVCache(layout, config.transformer, dtype=torch.float32, device="cpu")
    made = [
        listener.run(
            tokens.view(1, UNITS, -1, config.listener.dim)[:, unit],
            layout.steps(KVBlock.STATE, unit, Tower.LISTENING),
            cache.attend(cache.writing(KVBlock.STATE, [0], [unit], Tower.LISTENING)),
        )
        for unit in range(UNITS)
    ]
    torch.testing.assert_close(torch.cat(made, dim=1), expected, atol=ROUNDING, rtol=1e-4)


def random_batch(config: PocketConfig) -> AgentBatch:
    return AgentBatch(
        picture=torch.randn(1, UNITS, config.picture_tokens, config.video.latent_dim),
        sound=torch.randn(1, UNITS, STEPS_PER_UNIT, config.audio.latent_dim),
        phones=torch.randint(0, 40, (1, UNITS, STEPS_PER_UNIT)),
        words=torch.randint(0, 2, (1, UNITS, 1)),
        gestures=torch.randn(1, UNITS, FRAMES_PER_UNIT * GESTURES),
    )


def write_slots(family: PocketFamily, state: PocketState, unit: int, batch: AgentBatch) -> None:
    network = family.weights.network
    words, phones = network.text_tokens(batch.words[:, unit], batch.phones[:, unit])
    gesture = network.gesture_token(batch.gestures[:, unit : unit + 1])
    state.passes.run(Pass.STATE, [0], [unit], torch.cat([words, phones, gesture], dim=1))


def flat(picture: Tensor, sound: Tensor, unit: int) -> Tensor:
    return torch.cat([picture[:, unit].flatten(), sound[:, unit].flatten()])


@torch.no_grad()
def test_the_trained_velocity_is_the_served_one() -> None:
    """With one solver step the runtime's answer is noise minus velocity at flow time 1."""
    config = tiny_config(transformer={"kv_heads": 2}, solver_steps=1)
    family, seed = tiny_family(config), 3
    network, sequence, batch = family.weights.network, speaking(config), random_batch(config)
    sizes = [config.picture_tokens * config.video.latent_dim, STEPS_PER_UNIT * config.audio.latent_dim]
    drawn = torch.stack([unit_noise(seed, unit, (sum(sizes),)) for unit in range(UNITS)])
    picture, sound = torch.split(drawn, sizes, dim=1)
    noise = picture.view_as(batch.picture), sound.view_as(batch.sound)
    past = remember(network, sequence, batch, batch.latents)
    made = velocity(network, sequence, past, noise, torch.ones(1, UNITS))
    state = family.init_state(family.allocate(1), 0, seed)
    for unit in range(UNITS):
        write_slots(family, state, unit, batch)
        expected = flat(*noise, unit) - family.solve([state], [unit])[0]
        torch.testing.assert_close(flat(*made, unit), expected, atol=ROUNDING, rtol=1e-4)
        family.commit([state], [unit], [flat(*batch.latents, unit)])


@torch.no_grad()
def test_the_loss_is_the_error_of_that_velocity() -> None:
    config = tiny_config(transformer={"kv_heads": 2})
    network, sequence, batch = tiny_family(config).weights.network, speaking(config), random_batch(config)
    torch.manual_seed(5)
    losses = velocity_loss(network, sequence, batch, history_noise=0.0)
    torch.manual_seed(5)  # the same draws again, in the same order
    tau_BU = torch.sigmoid(torch.randn(1, UNITS))
    noise = [torch.randn_like(z) for z in batch.latents]
    tau = tau_BU[:, :, None, None]
    noisy = [(1 - tau) * z + tau * eps for z, eps in zip(batch.latents, noise, strict=True)]
    past = remember(network, sequence, batch, batch.latents)
    made = velocity(network, sequence, past, (noisy[0], noisy[1]), tau_BU)
    for loss, v, z, eps in zip(losses.values(), made, batch.latents, noise, strict=True):
        torch.testing.assert_close(loss, (v - (eps - z)).square().mean(), atol=ROUNDING, rtol=1e-4)


def test_the_loss_reaches_every_weight_but_the_listener() -> None:
    config = tiny_config(transformer={"kv_heads": 2})
    network = tiny_family(config).weights.network.requires_grad_(True)
    losses = velocity_loss(network, speaking(config), random_batch(config), history_noise=0.2)
    sum(losses.values(), start=torch.zeros(())).backward()  # type: ignore[no-untyped-call]
    missed = {name for name, weight in network.named_parameters() if weight.grad is None}
    assert missed == {f"listener.{name}" for name, _ in network.listener.named_parameters()}


def test_a_unit_keeps_its_tokens_in_the_order_in_which_training_lays_them() -> None:
    layout = tiny_config().layout()
    names = [stream.name for block in KVBlock for stream in layout.of(block, Tower.SPEAKING)]
    assert names == ["word", "phones", "gesture", "agent picture", "agent sound"]


def ages_seen(sequence: Sequence, bias: Tensor, query: int, key: int, unit: int) -> list[int]:
    """How many units ago the tokens were that stand `key`-th among those kept of their unit."""
    keys = bias.view(sequence.units, -1, sequence.units, bias.shape[1] // sequence.units)[unit, query, :, key]
    return (unit - (keys == 0).nonzero().flatten()).tolist()


def test_who_sees_what() -> None:
    sequence = speaking(tiny_config())
    phone, gesture, own_picture, own = 1, 5, 6, -1  # places among the tokens that a unit keeps
    kept, noisy = sequence.kept_bias_RR, sequence.noisy_bias_QR
    # The state pass sees itself; the agent's last unit is the newest of its kind.
    assert ages_seen(sequence, kept, phone, phone, 8) == [3, 2, 1, 0]
    assert ages_seen(sequence, kept, phone, gesture, 8) == [3, 2, 1, 0]
    assert ages_seen(sequence, kept, phone, own, 8) == [3, 2, 1]
    assert ages_seen(sequence, kept, phone, own_picture, 8) == [2, 1]
    # So does the solve, which must not see the unit that it makes.
    assert ages_seen(sequence, noisy, -1, phone, 8) == [3, 2, 1, 0]
    assert ages_seen(sequence, noisy, -1, own, 8) == [3, 2, 1]
    # Remembering writes the unit itself.
    assert ages_seen(sequence, kept, own, own, 8) == [2, 1, 0]
    assert ages_seen(sequence, kept, own, phone, 8) == [3, 2, 1, 0]
    # In the beginning there is less.
    assert ages_seen(sequence, noisy, 0, own, 0) == []
    assert ages_seen(sequence, noisy, 0, phone, 0) == [0]
