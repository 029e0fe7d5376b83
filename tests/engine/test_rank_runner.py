"""Several ranks say what one says: the same logits up to rounding, the same greedy ids, the same verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.rank_runner import RankRunner
from slipstream.engine.rank_steps import SendStep
from slipstream.engine.scoring import ScoredChunk
from slipstream.exchange import DraftToken, LawKind
from slipstream.kernels.batch import Chunk
from slipstream.parallel.ranks import Ranks
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck, Verdict
from tests.engine.stories import GREEDY, RULED, Story
from tests.parallel.rank_threads import led
from tests.tiny_models import make_checkpoint

THREE_KV_HEADS = {"hidden": 48, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 16}
SAMPLED = SamplingParams(temperature=0.8)
LIMITED = SamplingParams(top_k=20, top_p=0.9)
PROMPT = [1, 40, 41, 42, 200, 7, 9]


def config(folder: Path, **options: Any) -> EngineConfig:
    return EngineConfig(model=folder, dtype="float32", num_kv_blocks=96, block_size=4, **options)


def ranks_of(engine: EngineConfig, **options: Any):
    return lambda ranks, send: make_runner(engine, ranks=ranks, send=send, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 9 heads, 3 KV heads and 330 tokens, none of which divides by two."""
    return make_checkpoint(tmp_path_factory.mktemp("model"), seed=3, logit_std=3.0, vocab_size=330, **THREE_KV_HEADS)


def logits(runner: ModelRunner) -> torch.Tensor:
    first = runner.forward([Chunk(PROMPT, 0, [5, 2], 7), Chunk([60, 61], 0, [3], 2)])
    runner.copy_blocks([(5, 8), (2, 9)])
    return torch.cat((first, runner.forward([Chunk([50], 7, [8, 9], 1)])))


@pytest.mark.parametrize(
    "entries",
    [
        THREE_KV_HEADS,
        {"tie_word_embeddings": True, "intermediate_size": 70},
        {"model_type": "qwen3", "vocab_size": 259},
        {"attention_bias": True, "mlp_bias": True},
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_logits_are_those_of_one_rank(tmp_path: Path, entries: dict[str, Any], packed: bool) -> None:
    engine = config(make_checkpoint(tmp_path, seed=4, **entries))
    alone = logits(make_runner(engine))
    with led(2, ranks_of(engine, pack_weights=packed)) as runner:
        torch.testing.assert_close(logits(runner), alone, atol=2e-5, rtol=1e-4)


def test_each_of_three_ranks_holds_a_third_of_weights_and_keys(folder: Path) -> None:
    runners: list[ModelRunner] = []

    def make(ranks: Ranks, send: SendStep) -> ModelRunner:
        runners.append(make_runner(config(folder), ranks=ranks, send=send, pack_weights=False))
        return runners[-1]

    with led(3, make) as runner:
        torch.testing.assert_close(logits(runner), logits(make_runner(config(folder))), atol=2e-5, rtol=1e-4)
    whole = make_runner(config(folder), pack_weights=False)
    for part in runners:
        assert part.kv_cache.keys[0].shape[2] == 1
        names = ("attention.qkv_proj.weight", "attention.o_proj.weight", "mlp.down_proj.weight")
        sizes = [[r.model.get_parameter(f"layers.0.{name}").numel() for name in names] for r in (part, whole)]
        assert sizes[0] == [size // 3 for size in sizes[1]]
        assert part.model.embedding.shape[0] == 128  # 330 tokens, in multiples of 64


@pytest.mark.parametrize("mode", list(VerificationMode))
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, LIMITED, SamplingParams(min_p=0.05), RULED])
def test_sequences_get_the_same_text_with_and_without_drafts(
    folder: Path, sampling: SamplingParams, mode: VerificationMode
) -> None:
    expected = Story(3, 4, sampling, mode).run(make_runner(config(folder)), num_steps=5)
    with led(2, ranks_of(config(folder))) as runner:
        assert Story(3, 4, sampling, mode).run(runner, num_steps=5) == expected


def test_drafts_that_are_right_are_accepted(folder: Path) -> None:
    text = Story(3, 0).run(make_runner(config(folder)), num_steps=14)
    with led(2, ranks_of(config(folder))) as runner:
        drafted = Story(3, 3, known=text).run(runner, num_steps=4)
    assert all(ids == right[: len(ids)] for ids, right in zip(drafted, text, strict=True))
    assert sum(map(len, drafted)) > sum(map(len, text)) - 30, "no draft stood"


def check(base: int, draft: list[int], sampling: SamplingParams = GREEDY) -> SequenceCheck:
    tokens = tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in draft)
    return SequenceCheck(draft=tokens, base=base, sampling=sampling, mode=VerificationMode.RATIO, seed=5)


@pytest.mark.parametrize("short_by", [0, 1, 3, 4, 5])
def test_a_prompt_that_nearly_fills_the_context_is_verified_as_by_one_rank(folder: Path, short_by: int) -> None:
    """K = 4: the drafts reach up to, and would reach beyond, the last position."""
    engine = config(folder, max_model_len=64)
    prompt = [(7 * i) % 300 + 3 for i in range(64 - short_by)]
    drafts = prompt[: min(4, short_by)]

    def verdicts(runner: ModelRunner) -> list[Verdict]:
        blocks = list(range(16))
        found = runner.verify([Chunk(prompt[:40], 0, blocks, 0)], [])
        chunk = Chunk([*prompt[40:], *drafts], 40, blocks, len(drafts) + 1)
        return found + runner.verify([chunk], [check(len(prompt), drafts)])

    with led(2, ranks_of(engine)) as runner:
        assert verdicts(runner) == verdicts(make_runner(engine))


class NoisyRunner(RankRunner):
    """Far more wrong than any rounding that differs between devices."""

    def slice_logits(self, chunks: Any) -> torch.Tensor:
        logits = super().slice_logits(chunks)
        return logits + 4 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, SamplingParams(top_k=20)])
def test_noise_on_one_rank_changes_what_is_said_but_rank_0_decides_for_all_and_nobody_waits(
    folder: Path, sampling: SamplingParams
) -> None:
    def make(ranks: Ranks, send: SendStep) -> ModelRunner:
        runner = make_runner(config(folder), ranks=ranks, send=send)
        if ranks.shard.rank == 0:
            return runner
        return NoisyRunner(runner.model, runner.kv_cache, runner.max_model_len, send=send)

    with led(2, make) as runner:
        noisy = [Story(3, 4, sampling, mode).run(runner, num_steps=6) for mode in VerificationMode]
    right = [Story(3, 4, sampling, mode).run(make_runner(config(folder)), num_steps=6) for mode in VerificationMode]
    assert noisy != right, "the noise did nothing"
    assert all(len(ids) >= 6 for text in noisy for ids in text)


def test_prompt_tokens_are_scored_as_by_one_rank(folder: Path) -> None:
    prompts = [ScoredChunk(Chunk(PROMPT, 0, [5, 2], 7), [*PROMPT[1:], 11], 3)]
    (expected,) = make_runner(config(folder)).score(prompts)()
    with led(2, ranks_of(config(folder))) as runner:
        (found,) = runner.score(prompts)()
    torch.testing.assert_close(torch.tensor(found.logprobs), torch.tensor(expected.logprobs), atol=1e-4, rtol=0)
    assert found.top_token_ids.tolist() == expected.top_token_ids.tolist()


def test_more_ranks_than_kv_heads_are_refused_by_number(folder: Path) -> None:
    with (
        pytest.raises(ValueError, match="tensor_parallel_size is 4, but the model has 3 KV heads"),
        led(4, ranks_of(config(folder))),
    ):
        pass
