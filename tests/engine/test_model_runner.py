from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slipstream.config import EngineConfig, default_model_dir
from slipstream.engine.batch import Chunk
from slipstream.engine.loading import make_runner
from slipstream.engine.model_runner import ModelRunner
from slipstream.models.widen import SHAPES, Shape
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck, Verdict
from tests.models.reference import reference_greedy
from tests.tiny_models import make_checkpoint

PROMPTS = ([1, 40, 41, 42], [1] + [50] * 48, [60, 61], list(range(3, 103)))


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    return EngineConfig(model=make_checkpoint(tmp_path, seed=5), dtype="float32", num_kv_blocks=80)


def greedy(runner: ModelRunner, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
    """All prompts together, one token a pass."""
    tables = [list(range(i * 20, (i + 1) * 20)) for i in range(len(prompts))]
    fed, sequences = [0] * len(prompts), [list(prompt) for prompt in prompts]
    for _ in range(num_tokens):
        chunks = [Chunk(ids[start:], start, table, 1) for ids, start, table in zip(sequences, fed, tables, strict=True)]
        fed = [len(ids) for ids in sequences]
        for ids, token in zip(sequences, runner.forward(chunks).argmax(-1).tolist(), strict=True):
            ids.append(token)
    return [ids[len(prompt) :] for ids, prompt in zip(sequences, prompts, strict=True)]


def until_end(token_ids: list[int], end: int) -> list[int]:
    return token_ids[: token_ids.index(end) + 1] if end in token_ids else token_ids


def test_greedy_tokens_equal_those_of_transformers_generate(config: EngineConfig) -> None:
    outputs = greedy(make_runner(config), list(map(list, PROMPTS)), 40)
    expected = [reference_greedy(config.model, prompt, 40) for prompt in PROMPTS]
    assert [until_end(output, 2) for output in outputs] == expected


@pytest.mark.model
def test_greedy_tokens_of_the_real_model_equal_those_of_transformers_generate() -> None:
    config = EngineConfig(
        model=default_model_dir() / "smollm2-135m-instruct", dtype="float32", num_kv_blocks=40, max_model_len=320
    )
    prompts = [[1, 4093, 198, 26843, 2, 198, 1, 520, 9531, 198], [504, 3575, 282, 4649, 314]]
    outputs = greedy(make_runner(config), prompts, 24)
    expected = [reference_greedy(config.model, prompt, 24) for prompt in prompts]
    assert [until_end(output, 2) for output in outputs] == expected


def test_logits_come_in_fp32_for_the_wanted_tokens_in_chunk_order(config: EngineConfig) -> None:
    runner = make_runner(config)
    both = runner.forward([Chunk([5, 6, 7], 0, [0], 2), Chunk([8], 0, [1], 1), Chunk([9, 9], 0, [2], 0)])
    first, second = runner.forward([Chunk([5, 6, 7], 0, [3], 2)]), runner.forward([Chunk([8], 0, [4], 1)])
    assert (both.dtype, both.shape) == (torch.float32, (3, 320))
    torch.testing.assert_close(both, torch.cat([first, second]), atol=1e-5, rtol=0)


def test_a_pass_that_wants_no_logits_still_writes_its_keys(config: EngineConfig) -> None:
    runner = make_runner(config)
    assert runner.forward([Chunk([5, 6, 7], 0, [0], 0)]).shape == (0, 320)
    after, whole = runner.forward([Chunk([8], 3, [0], 1)]), runner.forward([Chunk([5, 6, 7, 8], 0, [1], 1)])
    torch.testing.assert_close(after, whole, atol=1e-5, rtol=0)


def test_bfloat16_is_close_to_float32(config: EngineConfig) -> None:
    chunk = Chunk(list(range(3, 60)), 0, [0, 1, 2, 3], 57)
    exact = make_runner(config).forward([chunk])
    rounded = make_runner(replace(config, dtype="bfloat16")).forward([chunk])
    assert rounded.dtype == torch.float32
    assert (rounded - exact).abs().mean() < 0.02 * exact.std()


def test_packing_weights_changes_nothing_but_speed(config: EngineConfig) -> None:
    chunk = Chunk([5, 6, 7], 0, [0], 3)
    packed = make_runner(config).forward([chunk])
    plain = make_runner(config, pack_weights=False).forward([chunk])
    torch.testing.assert_close(packed, plain, atol=1e-5, rtol=0)


def test_copied_blocks_continue_the_sequence(config: EngineConfig) -> None:
    runner = make_runner(config)
    runner.forward([Chunk([5, 6, 7], 0, [0], 0)])
    runner.copy_blocks([(0, 9)])
    torch.testing.assert_close(runner.forward([Chunk([8], 3, [9], 1)]), runner.forward([Chunk([8], 3, [0], 1)]))


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


def test_a_whole_step_feeds_and_verifies(config: EngineConfig) -> None:
    runner = make_runner(config)
    greedy = SamplingParams(temperature=0.0)
    check = SequenceCheck(draft=(), base=3, sampling=greedy, mode=VerificationMode.RATIO)
    chunks = [Chunk([5, 6, 7], 0, [0], 1), Chunk([9], 0, [1], 0)]
    expected = int(runner.forward(chunks[:1]).argmax())
    assert runner.verify(chunks, [check]) == [Verdict((expected,), 0)]
    assert runner.verify(chunks[1:], []) == []
