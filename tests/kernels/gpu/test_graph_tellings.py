"""What steps from graphs tell beside tokens is what the CPU tells: log probabilities, masked or not, and features."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.buckets import Bucket
from slipstream.engine.feature_tap import FeatureSpan, make_feature_tap
from slipstream.engine.graph_capture import GraphCapture
from slipstream.engine.graph_runner import GraphRunner
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.scoring import ScoredChunk
from slipstream.exchange import DraftToken, LawKind, TokenLogprobs
from slipstream.kernels.batch import Chunk
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.request import SamplingParams, VerificationMode
from slipstream.sampling.check import SequenceCheck
from tests.models.eagle3_heads import HIDDEN, make_head
from tests.sampling.random_masks import allowing
from tests.tiny_models import make_checkpoint

pytestmark = pytest.mark.gpu
CPU = torch.device("cpu")
BLOCK_SIZE, NUM_BLOCKS = 16, 16
CHUNKS = [Chunk([5, 6, 7], 0, [3], 1), Chunk([8, 9, 5, 5], 0, [4], 3), Chunk([5, 5], 0, [9], 2)]
ASKS = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    folder = make_checkpoint(tmp_path_factory.mktemp("target"), layers=6, seed=3, logit_std=3.0)
    return load_model(folder, torch.float32, CPU)


def runners(model: LlamaModel, device: torch.device) -> tuple[ModelRunner, GraphRunner]:
    """One on the CPU, and one whose steps are replayed."""
    caches = [KVCache(model.config, NUM_BLOCKS, BLOCK_SIZE, torch.float32, where) for where in (CPU, device)]
    capture = GraphCapture(device, 1 << 30)
    on_gpu = GraphRunner(copy.deepcopy(model).to(device), caches[1], 96, buckets=[Bucket(16, 4, 16)], capture=capture)
    return ModelRunner(model, caches[0]), on_gpu


def check(num_drafts: int, sampling: SamplingParams) -> SequenceCheck:
    draft = tuple(DraftToken(5, LawKind.ONE_HOT) for _ in range(num_drafts))
    return SequenceCheck(draft=draft, base=3, sampling=sampling, mode=VerificationMode.RATIO)


def assert_same(told: TokenLogprobs | None, expected: TokenLogprobs | None) -> None:
    assert told is not None
    assert expected is not None
    np.testing.assert_allclose(told.logprobs, expected.logprobs, atol=1e-4)
    np.testing.assert_array_equal(told.top_token_ids, expected.top_token_ids)
    np.testing.assert_allclose(told.top_logprobs, expected.top_logprobs, atol=1e-4)


def test_log_probabilities_are_those_of_the_cpu_also_where_a_grammar_took_tokens_away(
    model: LlamaModel, device: torch.device
) -> None:
    few = allowing([{9, 17, 40}])
    checks = [replace(check(0, ASKS), fill_masks=few), check(2, SamplingParams()), check(1, ASKS)]
    expected, told = (runner.verify(CHUNKS, checks) for runner in runners(model, device))
    assert [verdict.token_ids for verdict in told] == [verdict.token_ids for verdict in expected]
    assert told[0].token_ids[0] in {9, 17, 40}
    assert told[1].logprobs is None
    for index in (0, 2):
        assert_same(told[index].logprobs, expected[index].logprobs)


def test_prompts_are_scored_as_on_the_cpu(model: LlamaModel, device: torch.device) -> None:
    prompts = [
        ScoredChunk(Chunk(range(40, 70), 0, [1, 5], 30), range(41, 71), 3),
        ScoredChunk(replace(CHUNKS[1], num_logits=4), [6, 7, 8, 9], 0),
    ]
    expected, told = (runner.score(prompts)() for runner in runners(model, device))
    for one, right in zip(told, expected, strict=True):
        assert_same(one, right)


def test_features_are_those_of_the_cpu(model: LlamaModel, device: torch.device, tmp_path: Path) -> None:
    head, spans = make_head(tmp_path / "head"), [FeatureSpan([3], 0, 3), FeatureSpan([4], 1, 4)]
    features = []
    for runner in runners(model, device):
        tap = make_feature_tap(head, runner.config, runner.kv_cache, torch.float32)
        runner.tap_features(tap)
        runner.prepare()
        runner.verify([replace(chunk, wants_features=True) for chunk in CHUNKS], [check(k, ASKS) for k in (0, 2, 1)])
        bits = torch.frombuffer(bytearray(b"".join(tap.read(spans))), dtype=torch.bfloat16)
        features.append(bits.view(6, HIDDEN).float())
    torch.testing.assert_close(features[1], features[0], rtol=0.01, atol=0.01)
