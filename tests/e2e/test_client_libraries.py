"""Clients that others wrote, unmodified, against the real services: `openai` over HTTP, `tritonclient` over gRPC."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import openai
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, shared_memory

from bench.ghz_config import Step, load_config
from bench.load import run_load
from tests.e2e.cluster import Cluster
from tests.tiny_models import make_checkpoint

MODEL = "target"
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ tools | tojson if tools else '' }}assistant: "
)
HI: Any = [{"role": "user", "content": "hi"}]
KEY = {"authorization": "Bearer someone"}
LOAD_FILES = sorted((Path(__file__).parents[2] / "loadtest").glob("*.json"))
GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("clients")
    with Cluster(folder) as cluster:
        model = make_checkpoint(folder / MODEL)
        (model / "chat_template.jinja").write_text(TEMPLATE)
        cluster.verifier(model, "--max-model-len", "512")
        cluster.gateway([{"name": "someone", "proposers": ["ngram"]}], "--http-listen", "127.0.0.1:0")
        yield cluster


@pytest.fixture
def openai_client(cluster: Cluster) -> Iterator[openai.OpenAI]:
    url = f"http://{cluster.http_address()}/v1"
    with openai.OpenAI(base_url=url, api_key="someone", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def triton_client(cluster: Cluster) -> Iterator[InferenceServerClient]:
    client = InferenceServerClient(cluster.address("gateway"))
    yield client
    client.close()


def tensor(name: str, value: str | bool) -> InferInput:
    found = InferInput(name, [1], "BOOL" if isinstance(value, bool) else "BYTES")
    element = value.encode() if isinstance(value, str) else value
    return found.set_data_from_numpy(np.array([element], dtype=bool if isinstance(value, bool) else np.object_))


def settings(**values: Any) -> InferInput:
    return tensor("sampling_parameters", json.dumps(GREEDY | values))


def greedy_text(client: openai.OpenAI, prompt: str) -> str:
    extra = {"ignore_eos": True}
    choice = client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=12, extra_body=extra)
    return choice.choices[0].text


def test_a_seeded_chat_is_the_same_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": HI, "seed": 3, "max_tokens": 20}
    whole = openai_client.chat.completions.create(**asked)
    stream = openai_client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    pieces = list(stream)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert whole.choices[0].message.content == text
    assert whole.usage is not None
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_samples_differ_and_are_told_with_log_probabilities(openai_client: openai.OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model=MODEL, messages=HI, n=3, seed=1, max_tokens=8, logprobs=True, top_logprobs=2
    )
    assert len({choice.message.content for choice in answer.choices}) > 1
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        for token in choice.logprobs.content:
            assert token.logprob <= 0
            assert len(token.top_logprobs) == 2
            assert token.top_logprobs[0].logprob >= max(token.logprob, token.top_logprobs[1].logprob)


def test_an_echo_stands_before_every_choice_and_is_scored(openai_client: openai.OpenAI) -> None:
    answer = openai_client.completions.create(model=MODEL, prompt="abc", max_tokens=2, echo=True, logprobs=1, n=2)
    for choice in answer.choices:
        assert choice.text.startswith("abc")
        assert choice.logprobs is not None
        assert choice.logprobs.tokens is not None
        assert choice.logprobs.token_logprobs is not None
        assert choice.logprobs.tokens[:3] == ["a", "b", "c"]
        assert [logprob is None for logprob in choice.logprobs.token_logprobs] == [True, False, False, False, False]


def test_settings_reach_the_model(openai_client: openai.OpenAI) -> None:
    def text(**fields: Any) -> str:
        asked: dict[str, Any] = {"model": MODEL, "prompt": "a", "temperature": 0, "max_tokens": 6} | fields
        return openai_client.completions.create(**asked).choices[0].text

    assert text(logit_bias={"70": 100}) == text(extra_body={"allowed_token_ids": [70]}) != text()
    assert text(logit_bias={"70": 100}, stop=[text(logit_bias={"70": 100})[:2]]) == ""


def test_an_answer_keeps_to_its_schema(openai_client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    answer = openai_client.chat.completions.create(model=MODEL, messages=HI, response_format=form, max_tokens=100)
    assert isinstance(json.loads(answer.choices[0].message.content or "")["ok"], bool)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "paint"}}])
def test_a_call_that_is_demanded_is_made_whole_and_streamed(openai_client: openai.OpenAI, choice: Any) -> None:
    colours = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    tools: Any = [{"type": "function", "function": {"name": "paint", "parameters": colours}}]
    asked: dict[str, Any] = {"model": MODEL, "messages": HI, "tools": tools, "tool_choice": choice, "max_tokens": 200}
    message = openai_client.chat.completions.create(**asked).choices[0].message
    pieces = [piece.choices[0].delta for piece in openai_client.chat.completions.create(**asked, stream=True)]
    whole = [call for call in message.tool_calls or () if call.type == "function"]
    streamed = [call for piece in pieces for call in piece.tool_calls or ()]
    for found in (whole[0].function, streamed[0].function):
        assert found is not None
        assert found.name == "paint"
        assert json.loads(found.arguments or "")["colour"] in {"red", "blue"}


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"model": "other"}, openai.NotFoundError, "model 'other' is not served here"),
        ({"temperature": -1}, openai.BadRequestError, "temperature is -1.0; it must be >= 0"),
        ({"max_tokens": 5000}, openai.BadRequestError, "max_tokens is 5000"),
        ({"prompt": "a" * 600}, openai.BadRequestError, "prompt has 600 tokens"),
    ],
)
def test_what_cannot_be_asked_has_a_status_and_a_reason(
    openai_client: openai.OpenAI, fields: dict[str, Any], kind: type[Exception], text: str
) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": "a"} | fields
    with pytest.raises(kind, match=text):
        openai_client.completions.create(**asked)


def test_tritonclient_gets_the_text_that_openais_client_gets(
    openai_client: openai.OpenAI, triton_client: InferenceServerClient
) -> None:
    inputs = [tensor("text_input", "hello"), settings(), tensor("exclude_input_in_output", True)]
    result = triton_client.infer(MODEL, inputs, headers=KEY)
    assert result.as_numpy("text_output")[0].decode() == greedy_text(openai_client, "hello")


def test_tritonclient_streams_several_requests_at_one_time(
    openai_client: openai.OpenAI, triton_client: InferenceServerClient
) -> None:
    results: queue.Queue[tuple[Any, Any]] = queue.Queue()
    triton_client.start_stream(lambda result, error: results.put((result, error)), headers=KEY)
    prompts = {"a": "hello", "b": "world"}
    for request_id, prompt in prompts.items():
        inputs = [tensor("text_input", prompt), tensor("stream", True), settings()]
        triton_client.async_stream_infer(MODEL, inputs, request_id=request_id)
    texts, num_running = dict.fromkeys(prompts, ""), len(prompts)
    while num_running:
        result, error = results.get(timeout=60)
        assert error is None
        response = result.get_response()
        texts[response.id] += result.as_numpy("text_output")[0].decode()
        num_running -= response.parameters["triton_final_response"].bool_param
    triton_client.stop_stream()
    assert texts == {request_id: greedy_text(openai_client, prompt) for request_id, prompt in prompts.items()}


def test_tritonclient_gives_its_text_in_shared_memory(
    openai_client: openai.OpenAI, triton_client: InferenceServerClient
) -> None:
    data = serialize_byte_tensor(np.array([b"hello"], dtype=np.object_)).item()
    handle = shared_memory.create_shared_memory_region("prompt", f"/slipstream_{id(triton_client)}", len(data))
    try:
        shared_memory.set_shared_memory_region(handle, [np.frombuffer(data, dtype=np.uint8)])
        triton_client.register_system_shared_memory("prompt", handle._shm_key, len(data), headers=KEY)
        text = InferInput("text_input", [1], "BYTES").set_shared_memory("prompt", len(data))
        result = triton_client.infer(MODEL, [text, settings()], headers=KEY)
        triton_client.unregister_system_shared_memory(headers=KEY)
    finally:
        shared_memory.destroy_shared_memory_region(handle)
    assert result.as_numpy("text_output")[0].decode() == "hello" + greedy_text(openai_client, "hello")


def test_tritonclients_errors_have_a_status_and_a_reason(triton_client: InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="top_p is 3") as refused:
        triton_client.infer(MODEL, [tensor("text_input", "a"), settings(top_p=3)], headers=KEY)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_what_a_load_generator_asks_first_is_answered(triton_client: InferenceServerClient) -> None:
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready(MODEL, headers=KEY)
    names = {one.name for one in triton_client.get_model_metadata(MODEL, headers=KEY).inputs}
    assert names == {one.name for one in triton_client.get_model_config(MODEL, headers=KEY).config.input}
    assert triton_client.get_inference_statistics(MODEL, headers=KEY).model_stats[0].name == MODEL


@pytest.mark.parametrize(
    "symbol",
    [
        "slipstream.v1.Generation",
        "slipstream.v1.Generation.Generate",
        "inference.GRPCInferenceService.ModelStreamInfer",
    ],
)
def test_reflection_lists_both_services_and_finds_their_methods(cluster: Cluster, symbol: str) -> None:
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services="*"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol),
    ]
    with grpc.insecure_channel(cluster.address("gateway")) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        listed, described = stub.ServerReflectionInfo(iter(asked), timeout=10)
    names = {one.name for one in listed.list_services_response.service}
    assert {"slipstream.v1.Generation", "inference.GRPCInferenceService"} <= names
    assert described.file_descriptor_response.file_descriptor_proto


@pytest.mark.parametrize("file", LOAD_FILES, ids=lambda file: file.stem)
async def test_every_load_file_is_served(cluster: Cluster, file: Path) -> None:
    config = load_config(file)
    config = replace(
        config,
        host=cluster.address("gateway"),
        metadata=tuple(KEY.items()),
        total=4,
        concurrency=2,
        steps=(Step(20, 0.1), Step(20, 0.1)) if config.steps else (),
    )
    tallies = await run_load(config, lambda line: None)
    assert [dict(tally.statuses) for tally in tallies] == [{"OK": 4 // len(tallies)}] * len(tallies)
