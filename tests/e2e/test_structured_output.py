"""Structured output through all three services: what a caller asks for is what comes, with drafts on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import jsonschema
import pytest

from slipstream.models.derive import round_weights
from slipstream.wire.v1 import exchange_pb2, generation_pb2
from tests.e2e.cluster import Cluster, request
from tests.e2e.conftest import tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "grün"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
GRAMMARS = {
    "json": exchange_pb2.Grammar(json_schema=json.dumps(SCHEMA)),
    "regex": exchange_pb2.Grammar(regex="(yes|no), [0-9]{3}"),
    "ebnf": exchange_pb2.Grammar(ebnf='root ::= "<" ("x" | "y") ">"'),
    "choice": exchange_pb2.Grammar(choice='["rot", "grün"]'),
}


def conforms(kind: str, text: str) -> bool:
    if kind == "json":
        return jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text))
    if kind == "regex":
        return text[:-5] in ("yes", "no") and text[-3:].isdigit()
    return text in {"ebnf": ("<x>", "<y>"), "choice": ("rot", "grün")}[kind]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("structured")
    target = make_checkpoint(folder / "target", logit_std=3.0)
    with Cluster(folder) as cluster:
        cluster.verifier(target)
        cluster.drafter(make_similar_checkpoint(target, folder / "draft"))
        cluster.gateway(tenants("ratio", max_wait_ms=50))
        yield cluster


@pytest.mark.parametrize("tenant", ["both", "none"])
async def test_every_kind_of_grammar_is_kept_to_with_and_without_drafts(cluster: Cluster, tenant: str) -> None:
    kinds = [kind for kind in GRAMMARS for _ in range(3)]
    requests = [
        request([5, 6, 7, i], grammar=GRAMMARS[kind], max_tokens=120, temperature=i % 2, seed=i)
        for i, kind in enumerate(kinds)
    ]
    async with cluster.client(tenant) as client:
        answers = await client.generate_all(requests, at_once=6)
    for kind, answer in zip(kinds, answers, strict=True):
        assert answer.last.finish_reason == exchange_pb2.FINISH_REASON_STOP, answer.text
        assert conforms(kind, answer.text), answer.text
    assert any(any(answer.drafted) for answer in answers) == (tenant == "both")


@pytest.mark.parametrize(
    "grammar, reason",
    [
        (exchange_pb2.Grammar(regex="a("), "The parenthesis is not closed"),
        (exchange_pb2.Grammar(json_schema='{"type": "array", "uniqueItems": true}'), "'uniqueItems'"),
        (exchange_pb2.Grammar(choice="a" * 70_000), "grammar is 70000; it must be 1..65536 characters long"),
        (exchange_pb2.Grammar(), "grammar is empty; give one of json_schema, regex, ebnf, choice"),
    ],
)
async def test_a_grammar_that_cannot_be_served_is_the_callers_mistake_by_name(
    cluster: Cluster, grammar: exchange_pb2.Grammar, reason: str
) -> None:
    async with cluster.client("none") as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.generate(request([5, 6], grammar=grammar))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert reason in str(refused.value.details())


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(600)
async def test_a_real_model_fills_in_a_schema(smollm2: Path, tmp_path: Path) -> None:
    round_weights(smollm2, tmp_path / "draft", bits=4, group=64)
    chats = ("Describe a red fox as JSON.", "Invent a person; answer in JSON.")

    def asked(chat: str, temperature: float) -> generation_pb2.GenerateRequest:
        return request(chat, grammar=GRAMMARS["json"], max_tokens=120, temperature=temperature, seed=3)

    with Cluster(tmp_path) as cluster:
        cluster.verifier(smollm2, "--max-model-len", "512")
        cluster.drafter(tmp_path / "draft", "--max-model-len", "512")
        cluster.gateway(tenants("ratio", num_draft_tokens=3, max_wait_ms=200))
        async with cluster.client("both") as client:
            answers = await client.generate_all([asked(chat, t) for chat in chats for t in (0, 1)], at_once=4)
    for answer in answers:
        assert answer.last.finish_reason == exchange_pb2.FINISH_REASON_STOP
        assert conforms("json", answer.text), answer.text
    assert sum(sum(answer.drafted) for answer in answers) > 0
