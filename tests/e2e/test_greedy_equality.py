"""Greedy text through all three services equals transformers' own, whoever drafts, alone and eight at a time.

The drafter is the shipped one, on the model that it was made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.e2e.cluster import Cluster, request
from tests.e2e.conftest import PROPOSERS, tenants

DRAFTER = Path(__file__).parents[2] / "drafters" / "smollm2-135m-instruct-draft"
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
    with Cluster(tmp_path_factory.mktemp("greedy")) as cluster:
        cluster.verifier(smollm2, "--max-model-len", "1024")
        cluster.drafter(DRAFTER, "--target-model", str(smollm2), "--max-model-len", "1024")
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


async def check(
    cluster: Cluster, model: Path, tenant: str, chats: tuple[str, ...], num_tokens: int, at_once: int
) -> int:
    """Asks for all chats; returns how many tokens of the answers were drafted."""
    async with cluster.client(tenant) as client:
        asked = [request(chat, temperature=0, max_tokens=num_tokens) for chat in chats]
        answers = await client.generate_all(asked, at_once)
    for chat, answer in zip(chats, answers, strict=True):
        assert answer.token_ids == reference(model, chat, num_tokens), (tenant, at_once, chat)
    return sum(sum(answer.drafted) for answer in answers)


@pytest.mark.parametrize("tenant", PROPOSERS)
async def test_four_chats_read_as_transformers_writes_them(cluster: Cluster, smollm2: Path, tenant: str) -> None:
    alone = CHATS[list(PROPOSERS).index(tenant) % len(CHATS)]
    num_drafted = await check(cluster, smollm2, tenant, (alone,), 24, at_once=1)
    num_drafted += await check(cluster, smollm2, tenant, CHATS * 2, 24, at_once=8)
    assert (num_drafted > 0) == (tenant != "none")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tenant", PROPOSERS)
async def test_twenty_longer_chats_read_as_transformers_writes_them(
    cluster: Cluster, smollm2: Path, tenant: str
) -> None:
    for at_once in (1, 8):
        await check(cluster, smollm2, tenant, CHATS + MORE_CHATS, 64, at_once)
