"""Greedy text through all three services equals transformers' own, whoever drafts, alone and eight at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from slipstream.models.derive import round_weights
from tests.e2e.cluster import Cluster, request
from tests.e2e.conftest import PROPOSERS, tenants

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

CHATS = (
    "What is the capital of France?",
    "Repeat this sentence three times: the quick brown fox jumps over the lazy dog.",
    "Name three primary colours and say where each is found in nature.",
    "Write a short Python function that adds two numbers.",
)
MORE_CHATS = tuple(
    f"{task} {subject}."
    for task in (
        "Explain in two sentences what is",
        "Write a limerick about",
        "List four facts about",
        "Say why one likes",
    )
    for subject in ("the moon", "a bicycle", "bread", "the sea")
)


@pytest.fixture(scope="module")
def cluster(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("greedy")
    draft = folder / "draft"
    round_weights(smollm2, draft, bits=4, group=64)
    with Cluster(folder) as cluster:
        cluster.verifier(smollm2, "--max-model-len", "1024")
        cluster.drafter(draft, "--max-model-len", "1024")
        cluster.gateway(tenants("ratio", num_draft_tokens=3, fan_out=2, max_wait_ms=200))
        yield cluster


@cache
def reference(model: Path, chat: str, num_tokens: int) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(model)
    messages = [{"role": "user", "content": chat}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = _load(model).generate(**prompt, max_new_tokens=num_tokens, do_sample=False)
    return output[0, prompt["input_ids"].shape[1] :].tolist()


@cache
def _load(model: Path) -> AutoModelForCausalLM:
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)


async def check(cluster: Cluster, model: Path, tenant: str, chats: tuple[str, ...], num_tokens: int) -> int:
    """Asks for all chats alone, then eight at a time; returns how many tokens were drafted."""
    expected = [reference(model, chat, num_tokens) for chat in chats]
    num_drafted = 0
    for at_once in (1, 8):
        async with cluster.client(tenant) as client:
            requests = [request(chat, temperature=0, max_tokens=num_tokens) for chat in chats]
            answers = await client.generate_all(requests * (2 if at_once == 8 else 1), at_once)
        for index, answer in enumerate(answers):
            assert answer.token_ids == expected[index % len(chats)], (tenant, at_once, chats[index % len(chats)])
            num_drafted += sum(answer.drafted)
    return num_drafted


@pytest.mark.parametrize("tenant", PROPOSERS)
async def test_four_chats_read_as_transformers_writes_them(cluster: Cluster, smollm2: Path, tenant: str) -> None:
    num_drafted = await check(cluster, smollm2, tenant, CHATS, 24)
    assert (num_drafted > 0) == (tenant != "none")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tenant", PROPOSERS)
async def test_twenty_longer_chats_read_as_transformers_writes_them(
    cluster: Cluster, smollm2: Path, tenant: str
) -> None:
    await check(cluster, smollm2, tenant, CHATS + MORE_CHATS, 64)
