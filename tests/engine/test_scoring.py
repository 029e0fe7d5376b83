"""Prompt tokens are scored as their logits say, a bounded number at a time, and their KV is there afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.scoring import ScoredChunk, divided
from slipstream.exchange import TokenLogprobs
from slipstream.kernels.batch import Chunk
from slipstream.sampling.logprobs import ROWS_AT_ONCE
from tests.tiny_models import make_checkpoint

LONG = [3 + i * i % 300 for i in range(2 * ROWS_AT_ONCE + 12)]


@pytest.fixture
def runner(tmp_path: Path) -> ModelRunner:
    return make_runner(EngineConfig(model=make_checkpoint(tmp_path, seed=5), dtype="float32", num_kv_blocks=40))


def scored(token_ids: list[int], start: int, end: int, first_block: int, num_top: int = 0) -> ScoredChunk:
    blocks = range(first_block, first_block + 10)
    return ScoredChunk(Chunk(token_ids[start:end], start, blocks, end - start), token_ids[start + 1 : end + 1], num_top)


def test_scores_are_the_log_softmax_of_the_logits_whatever_is_scored_together(runner: ModelRunner) -> None:
    short = LONG[5:25]
    first, second = runner.score([scored(LONG, 0, len(LONG) - 1, 0, 2), scored(short, 0, 19, 10)])()
    for told, token_ids in ((first, LONG), (second, short)):
        num_scored = len(token_ids) - 1
        expected = runner.forward([Chunk(token_ids[:-1], 0, range(20, 30), num_scored)]).log_softmax(-1)
        np.testing.assert_allclose(told.logprobs, expected[range(num_scored), token_ids[1:]], atol=1e-4)
    assert first.top_logprobs.shape == (len(LONG) - 1, 2)
    assert second.top_logprobs.shape == (19, 0)


def test_the_kv_of_scored_tokens_is_there_for_what_follows(runner: ModelRunner) -> None:
    runner.score([scored(LONG, 0, 30, 0)])
    runner.score([scored(LONG, 30, 50, 0)])
    after = runner.forward([Chunk(LONG[50:52], 50, range(10), 1)])
    torch.testing.assert_close(after, runner.forward([Chunk(LONG[:52], 0, range(10, 20), 1)]), atol=1e-4, rtol=0)


def test_logits_of_a_long_prompt_are_never_there_all_at_once(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    logits = runner.model.logits

    def measured(hidden: torch.Tensor) -> torch.Tensor:
        sizes.append(len(hidden))
        return logits(hidden)

    monkeypatch.setattr(runner.model, "logits", measured)
    runner.score([scored(LONG, 0, len(LONG) - 1, 0)])()
    assert max(sizes) <= ROWS_AT_ONCE
    assert sum(sizes) == len(LONG) - 1


def test_what_is_told_of_all_chunks_is_divided_in_their_order() -> None:
    values = np.arange(5, dtype=np.float32)
    told = TokenLogprobs(values, np.zeros((5, 3), np.int32), np.zeros((5, 3), np.float32))
    first, second = divided(told, [scored([7] * 4, 0, 2, 0, 3), scored([7] * 4, 0, 3, 0, 1)])
    assert (first.logprobs.tolist(), second.logprobs.tolist()) == ([0, 1], [2, 3, 4])
    assert (first.top_logprobs.shape, second.top_logprobs.shape) == ((2, 3), (3, 1))
