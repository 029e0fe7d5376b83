"""The runner's greedy text is that of transformers, whatever the chunks."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slipstream.config import EngineConfig, default_model_dir
from slipstream.engine.loading import make_runner
from slipstream.engine.model_runner import ModelRunner
from slipstream.kernels.batch import Chunk
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


def test_copied_blocks_continue_the_sequence(config: EngineConfig) -> None:
    runner = make_runner(config)
    runner.forward([Chunk([5, 6, 7], 0, [0], 0)])
    runner.copy_blocks([(0, 9)])
    torch.testing.assert_close(runner.forward([Chunk([8], 3, [9], 1)]), runner.forward([Chunk([8], 3, [0], 1)]))


def test_a_whole_step_feeds_and_verifies(config: EngineConfig) -> None:
    runner = make_runner(config)
    greedy = SamplingParams(temperature=0.0)
    check = SequenceCheck(draft=(), base=3, sampling=greedy, mode=VerificationMode.RATIO)
    chunks = [Chunk([5, 6, 7], 0, [0], 1), Chunk([9], 0, [1], 0)]
    expected = int(runner.forward(chunks[:1]).argmax())
    assert runner.verify(chunks, [check]) == [Verdict((expected,), 0)]
    assert runner.verify(chunks[1:], []) == []
