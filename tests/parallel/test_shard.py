"""Which heads, units and tokens each rank holds."""

import pytest

from slipstream.models.config import ModelConfig
from slipstream.parallel.shard import Shard

SMOLLM2 = ModelConfig(
    model_type="llama", vocab_size=49152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9,
    num_kv_heads=3, head_dim=64, max_position_embeddings=8192, rms_norm_eps=1e-5,
)  # fmt: skip


def test_one_rank_holds_the_model() -> None:
    assert Shard().share(SMOLLM2) is SMOLLM2
    assert Shard().tokens(SMOLLM2) == range(49152)


def test_heads_that_do_not_divide_are_padded_and_keep_their_kv_head() -> None:
    share = Shard(0, 2).share(SMOLLM2)
    assert (share.num_kv_heads, share.num_heads, share.head_dim) == (2, 6, 64)
    assert (share.intermediate_size, share.vocab_size, share.hidden_size) == (768, 24576, 576)


@pytest.mark.parametrize("vocab_size", [49152, 128256, 151936, 330, 70])
@pytest.mark.parametrize("size", [2, 3])
def test_tokens_are_held_once_each_from_multiples_of_four_on(vocab_size: int, size: int) -> None:
    entries = {name: getattr(SMOLLM2, name) for name in SMOLLM2.__slots__}
    config = ModelConfig(**entries | {"vocab_size": vocab_size})
    parts = [Shard(rank, size).tokens(config) for rank in range(size)]
    assert [token for part in parts for token in part] == list(range(vocab_size))
    assert all(part.start % 4 == 0 for part in parts)
    assert max(map(len, parts)) <= Shard(0, size).share(config).vocab_size


def test_more_ranks_than_kv_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="tensor_parallel_size is 4, but the model has 3 KV heads; it must be <= 3"):
        Shard(0, 4).share(SMOLLM2)
