import math

import pytest
import torch
from torch import Tensor

from shared.models.cache import KVCache
from shared.models.layout import KVBlock, Layout, Stream
from shared.models.transformer import TransformerConfig

LAYOUT = Layout(
    (
        Stream(name="seen", block=KVBlock.STATE, offsets=(3, 3), span=2),
        Stream(name="said", block=KVBlock.STATE, offsets=(0,), span=3),
        Stream(name="shown", block=KVBlock.COMMIT, offsets=(0, 1), span=2),
    ),
    scratch=2,
)
CONFIG = TransformerConfig(dim=16, layers=2, heads=4, kv_heads=2, head_dim=4, ffn=16, time_dim=8)


def new_cache(config: TransformerConfig = CONFIG, slots: int = 1) -> KVCache:
    return KVCache(LAYOUT, config, slots=slots, dtype=torch.float32, device="cpu")


def qkv(tokens: int, config: TransformerConfig = CONFIG, batch: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    heads = (config.heads, config.kv_heads, config.kv_heads)
    q, k, v = (torch.randn(batch, tokens, number, config.head_dim) for number in heads)
    return q, k, v


def attention(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Written out, one query head at a time; [1, T, H, D]."""
    group = q.shape[2] // keys.shape[2]
    heads = []
    for head in range(q.shape[2]):
        score = q[0, :, head] @ keys[0, :, head // group].T / math.sqrt(q.shape[-1])
        heads.append(score.softmax(-1) @ values[0, :, head // group])
    return torch.stack(heads, dim=1)[None]


def numbers_of(block: KVBlock) -> int:
    return KVCache.slice_numbers(LAYOUT, CONFIG, block)


def write(cache: KVCache, block: KVBlock, unit: int, slot: int = 0) -> None:
    attend = cache.attend(cache.writing(block, [slot], [unit]))
    for layer in range(CONFIG.layers):
        attend(layer, *qkv(LAYOUT.tokens(block)))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_block_sees_the_past_and_itself_and_no_empty_place(kv_heads: int) -> None:
    config = TransformerConfig(dim=16, layers=2, heads=4, kv_heads=kv_heads, head_dim=4, ffn=16, time_dim=8)
    cache = new_cache(config)
    cache.kv_L2SNKD.fill_(1e4)  # what lies in places that were never written must not matter
    q1, k1, v1 = qkv(3, config)
    first = cache.attend(cache.writing(KVBlock.STATE, [0], [0]))(1, q1, k1, v1)
    torch.testing.assert_close(first, attention(q1, k1, v1))
    q2, k2, v2 = qkv(2, config)
    second = cache.attend(cache.writing(KVBlock.COMMIT, [0], [0]))(1, q2, k2, v2)
    keys, values = torch.cat([k1, k2], dim=1), torch.cat([v1, v2], dim=1)
    torch.testing.assert_close(second, attention(q2, keys, values))


def test_what_a_slot_sees_is_the_same_to_the_bit_whoever_is_old_in_its_batch() -> None:
    """Where more places are looked at, attention adds up in another order, though they are hidden."""
    layout = Layout((Stream(name="all", block=KVBlock.STATE, offsets=(0, 1, 2), span=64),), scratch=2)
    shared, own = (
        KVCache(layout, CONFIG, slots=slots, dtype=torch.float32, device="cpu") for slots in (2, 1)
    )
    for unit in range(40):
        shared.attend(shared.writing(KVBlock.STATE, [0], [unit]))(0, *qkv(3))
    for unit in range(6):
        both = qkv(3, batch=2)
        made = shared.attend(shared.writing(KVBlock.STATE, [0, 1], [40 + unit, unit]))(0, *both)
        q, k, v = (x[1:] for x in both)
        alone = own.attend(own.writing(KVBlock.STATE, [0], [unit]))(0, q, k, v)
        assert torch.equal(made[1:], alone)


def test_what_is_older_than_the_span_is_forgotten() -> None:
    cache = new_cache()
    written = [qkv(3) for _ in range(4)]
    for unit, (q, k, v) in enumerate(written):
        made = cache.attend(cache.writing(KVBlock.STATE, [0], [unit]))(0, q, k, v)
    # The last pass sees "seen" (the first two tokens) of 2 units and "said" (the third) of 3.
    parts = [(2, slice(0, 2)), (3, slice(0, 2)), (1, slice(2, 3)), (2, slice(2, 3)), (3, slice(2, 3))]
    keys, values = (torch.cat([written[unit][i][:, part] for unit, part in parts], dim=1) for i in (1, 2))
    torch.testing.assert_close(made, attention(written[3][0], keys, values))


def test_a_reader_sees_everything_and_leaves_nothing() -> None:
    cache = new_cache()
    _, k, v = qkv(3)
    cache.attend(cache.writing(KVBlock.STATE, [0], [0]))(0, qkv(3)[0], k, v)
    places = LAYOUT.places(KVBlock.STATE, 0)
    before = [cache.kv_L2SNKD[:, :, :, place].clone() for place in places]
    attend = cache.attend(cache.solving([0], [0]))
    for _ in range(2):  # each step of a solve replaces the noisy tokens of the one before
        q, own_k, own_v = qkv(2)
        made = attend(0, q, own_k, own_v)
        keys, values = torch.cat([k, own_k], dim=1), torch.cat([v, own_v], dim=1)
        torch.testing.assert_close(made, attention(q, keys, values))
    for place, was in zip(places, before, strict=True):
        assert torch.equal(cache.kv_L2SNKD[:, :, :, place], was)
    torch.testing.assert_close(
        cache.attend(cache.writing(KVBlock.COMMIT, [0], [0]))(0, q, own_k, own_v), made
    )


@pytest.mark.parametrize("slots", [[0, 1, 2], [0, 2], [3, 1], [2]], ids=str)
def test_a_batch_gives_each_slot_what_it_gets_alone(slots: list[int]) -> None:
    """To the bit, whichever slots share it, at whatever units."""
    together, alone = new_cache(slots=4), new_cache(slots=4)
    units = [7 * slot + 2 for slot in slots]
    for step in range(5):
        for block in KVBlock:
            q, k, v = qkv(LAYOUT.tokens(block), batch=len(slots))
            now = [unit + step for unit in units]
            made = together.attend(together.writing(block, slots, now))(0, q, k, v)
            for row, (slot, unit) in enumerate(zip(slots, now, strict=True)):
                one = slice(row, row + 1)
                assert torch.equal(
                    alone.attend(alone.writing(block, [slot], [unit]))(0, q[one], k[one], v[one]), made[one]
                )
        q, k, v = qkv(2, batch=len(slots))
        solved = together.attend(together.solving(slots, now))(0, q, k, v)
        for row, (slot, unit) in enumerate(zip(slots, now, strict=True)):
            one = slice(row, row + 1)
            assert torch.equal(
                alone.attend(alone.solving([slot], [unit]))(0, q[one], k[one], v[one]), solved[one]
            )
    assert torch.equal(together.kv_L2SNKD, alone.kv_L2SNKD)
    assert torch.equal(together.hidden_SN, alone.hidden_SN)


def test_append_makes_a_replica() -> None:
    writer, replica = new_cache(slots=2), new_cache(slots=2)
    for unit in range(7):
        for block in (KVBlock.STATE, KVBlock.COMMIT):
            write(writer, block, unit, slot=1)
            flat = torch.full((numbers_of(block),), torch.nan)
            writer.export_kv(block, 1, unit, flat)
            replica.import_kv(block, 1, unit, flat)
            assert torch.equal(replica.kv_L2SNKD, writer.kv_L2SNKD)
            assert torch.equal(replica.hidden_SN, writer.hidden_SN)


def test_pieces_of_layers_are_the_slice_cut_up() -> None:
    cache, replica = new_cache(), new_cache()
    write(cache, KVBlock.STATE, 0)
    whole = torch.empty(numbers_of(KVBlock.STATE))
    cache.export_kv(KVBlock.STATE, 0, 0, whole)
    for layer, piece in enumerate(whole.chunk(CONFIG.layers)):
        part = torch.empty_like(piece)
        cache.export_kv(KVBlock.STATE, 0, 0, part, layer)
        assert torch.equal(part, piece)
        replica.import_kv(KVBlock.STATE, 0, 0, part, layer)
    assert torch.equal(replica.kv_L2SNKD, cache.kv_L2SNKD)


def test_a_slice_holds_every_layer_of_the_block_alone() -> None:
    cache = new_cache()
    write(cache, KVBlock.STATE, 0)
    assert numbers_of(KVBlock.STATE) == 2 * 2 * 2 * 3 * 4  # layers, k and v, heads, tokens, dim
    flat = torch.empty(numbers_of(KVBlock.STATE))
    cache.export_kv(KVBlock.STATE, 0, 0, flat)
    write(cache, KVBlock.COMMIT, 0)
    again = torch.empty_like(flat)
    cache.export_kv(KVBlock.STATE, 0, 0, again)
    assert torch.equal(flat, again)


def test_a_slice_of_another_size_is_refused() -> None:
    cache = new_cache()
    with pytest.raises(AssertionError, match="numbers"):
        cache.import_kv(KVBlock.STATE, 0, 0, torch.zeros(numbers_of(KVBlock.STATE) + 1))


def test_a_cleared_slot_is_as_new_and_where_it_was_and_its_neighbour_feels_nothing() -> None:
    cache, fresh = new_cache(slots=2), new_cache(slots=2)
    address = cache.kv_L2SNKD.data_ptr()
    for unit in range(3):
        write(cache, KVBlock.STATE, unit, slot=0)
        write(cache, KVBlock.STATE, unit, slot=1)
    neighbour = cache.kv_L2SNKD[:, :, 1].clone()
    cache.clear(0)
    assert cache.kv_L2SNKD.data_ptr() == address
    assert torch.equal(cache.kv_L2SNKD[:, :, 0], fresh.kv_L2SNKD[:, :, 0])
    assert torch.equal(cache.hidden_SN[0], fresh.hidden_SN[0])
    assert torch.equal(cache.kv_L2SNKD[:, :, 1], neighbour)
    assert not torch.equal(cache.hidden_SN[1], fresh.hidden_SN[1])
