"""Samples, echo and log probabilities through real services: the target's own numbers, whoever drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from slipstream.wire.v1 import generation_pb2
from tests.e2e.cluster import Cluster, eventually, kv_blocks_used, request
from tests.e2e.conftest import tenants
from tests.models.reference import reference_logits
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

PROMPT = [40 + i * i % 30 for i in range(21)] * 2  # repeats, so that n-grams have something to propose
NUM_TOKENS = 24
BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("target"), logit_std=3.0)


@pytest.fixture(scope="module")
def cluster(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("samples")
    with Cluster(folder) as cluster:
        cluster.verifier(target, "--block-size", str(BLOCK_SIZE))
        cluster.drafter(make_similar_checkpoint(target, folder / "draft"))
        cluster.gateway(tenants("coupled", max_wait_ms=50))
        yield cluster


def asked(**fields: object) -> generation_pb2.GenerateRequest:
    defaults: dict[str, object] = {"temperature": 0.7, "seed": 5, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    return request(PROMPT, **(defaults | fields))


@pytest.mark.parametrize("tenant", ["none", "ngram", "draft_model"])
async def test_log_probabilities_are_the_targets_own_whoever_drafts(
    cluster: Cluster, target: Path, tenant: str
) -> None:
    async with cluster.client(tenant) as client:
        told = await client.stub.GenerateOnce(
            asked(logprobs=True, num_top_logprobs=5, prompt_logprobs=True), metadata=client.metadata
        )
        silent = await client.stub.GenerateOnce(asked(), metadata=client.metadata)
    assert told.token_ids == silent.token_ids
    assert (told.usage.num_draft_tokens > 0) == (tenant != "none")
    assert (told.usage.accepted_tokens > 0) >= (tenant == "draft_model")
    truth = reference_logits(target, [*PROMPT, *told.token_ids]).log_softmax(-1).numpy()
    before = truth[len(PROMPT) - 1 : -1]
    np.testing.assert_allclose(told.logprobs.logprobs, before[np.arange(NUM_TOKENS), told.token_ids], atol=1e-3)
    top_ids = np.array(told.logprobs.top_token_ids).reshape(NUM_TOKENS, 5)
    top = np.array(told.logprobs.top_logprobs).reshape(NUM_TOKENS, 5)
    np.testing.assert_allclose(top, np.take_along_axis(before, top_ids, axis=1), atol=1e-3)
    np.testing.assert_allclose(top, np.sort(before)[:, : -5 - 1 : -1], atol=1e-3)
    assert list(told.prompt.token_ids) == PROMPT
    of_prompt = truth[np.arange(len(PROMPT) - 1), PROMPT[1:]]
    np.testing.assert_allclose(told.prompt.logprobs.logprobs, of_prompt, atol=1e-3)


@pytest.mark.parametrize("tenant", ["none", "both"])
async def test_samples_differ_and_compute_their_prompt_once(cluster: Cluster, tenant: str) -> None:
    prompt = [10 + (tenant == "none"), *PROMPT]
    async with cluster.client(tenant) as client:
        call = asked(n=3, echo=True)
        call.prompt.token_ids.ids[:] = prompt
        told = await client.stub.GenerateOnce(call, metadata=client.metadata)
    samples = [told, *told.samples]
    assert [sample.index for sample in samples] == [0, 1, 2]
    assert len({tuple(sample.token_ids) for sample in samples}) == 3
    assert list(told.prompt.token_ids) == prompt
    assert [len(sample.prompt.token_ids) for sample in told.samples] == [0, 0]
    shared = (len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE
    assert [sample.usage.cached_tokens for sample in told.samples] == [shared, shared]
    assert [sample.usage.completion_tokens for sample in samples] == [NUM_TOKENS] * 3


async def test_the_first_of_several_samples_reads_as_the_only_one_does(cluster: Cluster) -> None:
    async with cluster.client("draft_model") as client:
        several = await client.stub.GenerateOnce(asked(n=2), metadata=client.metadata)
    async with cluster.client("none") as client:
        alone = await client.stub.GenerateOnce(asked(), metadata=client.metadata)
    assert several.token_ids == alone.token_ids
    assert several.samples[0].token_ids != alone.token_ids


async def test_a_client_that_goes_frees_the_kv_of_all_its_samples(cluster: Cluster) -> None:
    async with cluster.client("both") as client:
        call = client.stream(asked(n=4, max_tokens=400))
        await call.read()
        call.cancel()

        async def is_free() -> bool:
            return await kv_blocks_used(cluster.address("verifier")) == 0

        await eventually(is_free, 20)
