"""KV tensors: their layout, their size, and copies of blocks."""

import torch

from slipstream.cache.kv_cache import KVCache, bytes_per_block
from slipstream.models.config import ModelConfig

CONFIG = ModelConfig(
    model_type="llama",
    vocab_size=8,
    hidden_size=8,
    intermediate_size=8,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
)


def make_cache() -> KVCache:
    return KVCache(CONFIG, 5, 4, torch.float32, torch.device("cpu"))


def test_every_layer_has_its_own_blocks_that_start_as_zeros() -> None:
    cache = make_cache()
    assert [tuple(keys.shape) for keys in (*cache.keys, *cache.values)] == [(5, 4, 2, 6)] * 6
    cache.keys[1][2] = 1
    assert [float(keys.sum()) for keys in (*cache.keys, *cache.values)] == [0, 4 * 2 * 6, 0, 0, 0, 0]


def test_copying_blocks_copies_keys_and_values_of_every_layer() -> None:
    cache = make_cache()
    for number, tensor in enumerate((*cache.keys, *cache.values)):
        tensor[0], tensor[3] = number + 1, -number - 1
    cache.copy_blocks([(0, 4), (3, 1)])
    for number, tensor in enumerate((*cache.keys, *cache.values)):
        assert tensor.mean((1, 2, 3)).tolist() == [number + 1, -number - 1, 0, -number - 1, number + 1]


def test_copying_nothing_is_allowed() -> None:
    make_cache().copy_blocks([])


def test_a_blocks_size_is_what_it_takes_in_memory() -> None:
    cache = make_cache()
    total = sum(tensor.numel() * tensor.itemsize for tensor in (*cache.keys, *cache.values))
    assert bytes_per_block(CONFIG, torch.float32, 4) * 5 == total
