"""A configuration's runner has the model, the memory and the limits that it asks for."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.kernels.batch import Chunk
from slipstream.models.widen import SHAPES, Shape
from tests.tiny_models import make_checkpoint


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    return EngineConfig(model=make_checkpoint(tmp_path, seed=5), dtype="float32", num_kv_blocks=80)


def test_packing_weights_changes_nothing_but_speed(config: EngineConfig) -> None:
    chunk = Chunk([5, 6, 7], 0, [0], 3)
    packed = make_runner(config).forward([chunk])
    plain = make_runner(config, pack_weights=False).forward([chunk])
    torch.testing.assert_close(packed, plain, atol=1e-5, rtol=0)


def test_a_context_beyond_the_models_is_refused_with_both_numbers(config: EngineConfig) -> None:
    with pytest.raises(ValueError, match=r"max_model_len is 513, but .* has 512 positions"):
        make_runner(replace(config, max_model_len=513))
    assert make_runner(replace(config, max_model_len=100)).max_model_len == 100
    assert make_runner(config).max_model_len == 512


def test_kv_blocks_follow_from_the_memory_given(config: EngineConfig) -> None:
    block_bytes = 2 * 2 * 16 * 2 * 8 * 4  # keys and values, layers, tokens, heads, head size, fp32
    runner = make_runner(replace(config, num_kv_blocks=0, kv_memory_bytes=10 * block_bytes + 1))
    assert runner.kv_cache.num_blocks == 10
    most = make_runner(replace(config, num_kv_blocks=0, max_num_seqs=2, max_model_len=64))
    assert most.kv_cache.num_blocks == 8
    with pytest.raises(ValueError, match=f"one block of 16 tokens needs {block_bytes}"):
        make_runner(replace(config, num_kv_blocks=0, kv_memory_bytes=block_bytes - 1))


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_named(config: EngineConfig, device: str) -> None:
    with pytest.raises(ValueError, match=f"device is '{device}', which is not to be had here: .+"):
        make_runner(replace(config, device=device))


def test_more_kv_blocks_than_memory_are_refused_with_their_number(config: EngineConfig) -> None:
    with pytest.raises(ValueError, match=r"no memory for 100000000000 KV blocks on cpu: .+"):
        make_runner(replace(config, num_kv_blocks=10**11))


def test_a_widened_model_has_its_kv_in_the_wide_shape_and_says_the_same(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = Shape(hidden_size=64, intermediate_size=80, num_layers=3, num_heads=8, num_kv_heads=4, head_dim=16)
    monkeypatch.setitem(SHAPES, "8b", shape)
    wide = make_runner(replace(config, widen="8b"))
    assert wide.kv_cache.keys[2].shape == (80, 16, 4, 16)
    chunk = Chunk([5, 6, 7], 0, [0], 3)
    torch.testing.assert_close(wide.forward([chunk]), make_runner(config).forward([chunk]), atol=1e-4, rtol=1e-4)
