"""The endpoints over real HTTP, by the real `openai` client, in front of a scripted verifier."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest

from gateway.http_app import make_app
from gateway.http_server import HttpServer
from gateway.openai.api import OpenAiApi
from gateway.policy.tenants import Tenant
from slipstream.request import FinishReason
from tests.gateway.fakes import FakeVerifier, eventually, running_gateway
from tests.text.tiny_tokenizers import byte_level

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if tools %}T{{ tools | length }}{% endif %}"
    "{# calls are written <tool_call>...</tool_call> #}"
)
TOKENIZER = byte_level(template=TEMPLATE)
OPEN_TO_ALL = Tenant(name="all", anonymous=True, proposers=("none",), max_tokens=50)
HI: Any = [{"role": "user", "content": "hi"}]


@asynccontextmanager
async def serving(verifier: FakeVerifier, *tenants: Tenant) -> AsyncIterator[str]:
    """The base URL of a gateway in front of the verifier."""
    async with running_gateway([verifier], (), tenants or (OPEN_TO_ALL,)) as gateway:
        server = HttpServer("127.0.0.1:0", make_app(gateway, OpenAiApi(gateway).routes()))
        address = await server.start()
        try:
            yield f"http://{address}/v1"
        finally:
            await server.drain()


def client_of(url: str, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=10)


@asynccontextmanager
async def client(verifier: FakeVerifier) -> AsyncIterator[openai.AsyncOpenAI]:
    key = Tenant(name="one", key_sha256=(hashlib.sha256(b"one").hexdigest(),), proposers=("none",), max_tokens=50)
    async with serving(verifier, key) as url, client_of(url, "one") as found:
        yield found


async def write(verifier: FakeVerifier, *texts: str, reason: FinishReason = FinishReason.LENGTH) -> None:
    """Commits a text each to the newest sequence, the last with the reason."""
    request = verifier.opens[-1]
    base = len(request.token_ids)
    for text in texts:
        token_ids = TOKENIZER.encode(text)
        finish = reason if text is texts[-1] else FinishReason.NONE
        verifier.commit(request.sequence_id, base, token_ids, finish_reason=finish)
        base += len(token_ids)


@pytest.fixture
def verifier() -> FakeVerifier:
    found = FakeVerifier([], tokenizer=TOKENIZER)
    object.__setattr__(found.info, "max_model_len", 256)
    return found


async def test_models_are_listed_and_one_is_found_by_name(verifier: FakeVerifier) -> None:
    async with client(verifier) as ask:
        assert [model.id async for model in ask.models.list()] == ["tiny"]
        assert (await ask.models.retrieve("tiny")).id == "tiny"
        with pytest.raises(openai.NotFoundError, match="model 'other' is not served here"):
            await ask.models.retrieve("other")


async def test_a_chat_goes_through_the_template_and_its_answer_comes_whole(verifier: FakeVerifier) -> None:
    async with client(verifier) as ask:
        call = asyncio.ensure_future(ask.chat.completions.create(model="tiny", messages=HI, seed=7))
        await eventually(lambda: verifier.opens)
        await write(verifier, "an", "swer", reason=FinishReason.STOP)
        answer = await call
    assert verifier.opens[0].token_ids == TOKENIZER.encode("user:hi;")
    assert verifier.opens[0].seed == 7
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "answe", "stop")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (8, 6)


async def test_a_streamed_chat_comes_piece_by_piece_and_ends_with_its_usage(verifier: FakeVerifier) -> None:
    async with client(verifier) as ask:
        call = asyncio.ensure_future(
            ask.chat.completions.create(model="tiny", messages=HI, stream=True, stream_options={"include_usage": True})
        )
        await eventually(lambda: verifier.opens)
        await write(verifier, "a")
        stream = await call
        pieces = [piece async for piece in stream]
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces[:-1]) == "a"
    assert pieces[-2].choices[0].finish_reason == "length"
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == 1
    assert {piece.id for piece in pieces} == {pieces[0].id}


async def test_plain_completions_take_several_prompts(verifier: FakeVerifier) -> None:
    async with client(verifier) as ask:
        call = asyncio.ensure_future(ask.completions.create(model="tiny", prompt=["a", "b"], max_tokens=1))
        await eventually(lambda: len(verifier.opens) == 2)
        for request in verifier.opens:
            verifier.finish(request.sequence_id, 1, [request.token_ids[0]])
        answer = await call
    assert [choice.text for choice in answer.choices] == ["a", "b"]


async def test_tools_are_offered_through_the_template(verifier: FakeVerifier) -> None:
    tool: Any = {"type": "function", "function": {"name": "add"}}
    async with client(verifier) as ask:
        call = asyncio.ensure_future(ask.chat.completions.create(model="tiny", messages=HI, tools=[tool, tool]))
        await eventually(lambda: verifier.opens)
        call.cancel()
    assert verifier.opens[0].token_ids == TOKENIZER.encode("user:hi;T2")


async def test_a_call_written_as_the_template_teaches_is_told_as_one(verifier: FakeVerifier) -> None:
    tool: Any = {"type": "function", "function": {"name": "add"}}
    async with client(verifier) as ask:
        call = asyncio.ensure_future(ask.chat.completions.create(model="tiny", messages=HI, tools=[tool]))
        await eventually(lambda: verifier.opens)
        await write(
            verifier, '<tool_call>{"name": "add", "arg', 'uments": {"a": 1}}</tool_call>!', reason=FinishReason.STOP
        )
        choice = (await call).choices[0]
    (made,) = choice.message.tool_calls or ()
    assert made.type == "function"
    assert (made.function.name, made.function.arguments) == ("add", '{"a": 1}')
    assert choice.finish_reason == "tool_calls"


async def test_a_client_that_goes_away_frees_what_it_held(verifier: FakeVerifier) -> None:
    async with client(verifier) as ask:
        waiting = asyncio.ensure_future(ask.chat.completions.create(model="tiny", messages=HI))
        await eventually(lambda: len(verifier.opens) == 1)
        waiting.cancel()
        await eventually(lambda: len(verifier.closes) == 1)
        streaming = asyncio.ensure_future(ask.chat.completions.create(model="tiny", messages=HI, stream=True))
        await eventually(lambda: len(verifier.opens) == 2)
        verifier.commit(verifier.opens[1].sequence_id, 8, [5])
        await (await streaming).close()
        await eventually(lambda: len(verifier.closes) == 2)


async def test_a_key_is_a_tenants(verifier: FakeVerifier) -> None:
    async with client(verifier) as ask:
        with pytest.raises(openai.AuthenticationError, match="the API key belongs to no tenant"):
            await ask.with_options(api_key="two").models.list()
        call = asyncio.ensure_future(ask.completions.create(model="tiny", prompt="a"))
        await eventually(lambda: verifier.opens)
        call.cancel()
    assert verifier.opens[0].tenant == "one"


async def test_where_no_key_is_known_any_will_do(verifier: FakeVerifier) -> None:
    async with serving(verifier) as url, client_of(url, "whatever") as ask:
        assert [model.id async for model in ask.models.list()] == ["tiny"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_in_the_middle_is_told_in_the_stream_or_as_a_status_and_logged(
    verifier: FakeVerifier, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with client(verifier) as ask:
        call = asyncio.ensure_future(ask.completions.create(model="tiny", prompt="a", stream=stream))
        await eventually(lambda: verifier.opens)
        sequence = verifier.opens[0].sequence_id
        verifier.commit(sequence, 1, [5])
        if not stream:
            verifier.fail(sequence, RuntimeError("broken"))
            with pytest.raises(openai.InternalServerError):
                await call
            assert "POST /v1/completions failed" in caplog.text
            return
        pieces: Any = await call
        verifier.fail(sequence, RuntimeError("broken"))
        with pytest.raises(openai.APIError, match="internal error"):
            async for _ in pieces:
                pass
    assert "POST /v1/completions failed in its stream" in caplog.text


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"model": "other"}, openai.NotFoundError, "model 'other' is not served here; it must be one of tiny"),
        ({"temperature": -1}, openai.BadRequestError, "temperature is -1.0; it must be >= 0"),
        ({"max_tokens": 51}, openai.BadRequestError, "max_tokens is 51; it must be in 1..50"),
        ({"messages": []}, openai.BadRequestError, "prompt is empty"),
        ({"extra_body": {"proposer": "ngram"}}, openai.BadRequestError, "proposer is 'ngram'; there is no such field"),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_the_reason(
    verifier: FakeVerifier, fields: dict[str, Any], kind: type[openai.APIStatusError], text: str
) -> None:
    async with client(verifier) as ask:
        asked: dict[str, Any] = {"model": "tiny", "messages": HI} | fields
        for stream in (False, True):
            with pytest.raises(kind, match=text):
                await ask.chat.completions.create(**asked, stream=stream)
    assert verifier.opens == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is no JSON"),
        (b"{", "the body is no JSON"),
        (b"\xff\xfe", "the body is no JSON"),
        (b"[]", "must be a JSON object"),
        (b"[" * 50_000, "recursion limit"),
        (b'{"model": 3}', "model is 3"),
        (b'{"model": "tiny"}', "prompt is missing"),
        (b'{"model": "tiny", "prompt": {"a": 1}}', "prompt is "),
        (b'{"model": "tiny", "prompt": "a", "temperature": NaN}', "temperature is nan"),
        (b'{"model": "tiny", "prompt": "a", "max_tokens": 1e400}', "max_tokens is inf"),
        (b'{"model": "tiny", "prompt": [99999999999999999999]}', "token id 99999999999999999999"),
        (b'{"model": "tiny", "prompt": [-1]}', "token id -1"),
        (b'{"model": "tiny", "prompt": "a", "stop": [""]}', "stop is ''"),
        (b'{"model": "tiny", "prompt": "a", "n": 1000000000}', "n is 1000000000"),
        (b'{"model": "tiny", "prompt": "\\ud800"}', "the body is no JSON"),
    ],
)
async def test_hostile_bodies_are_refused_in_words_and_change_nothing(
    verifier: FakeVerifier, body: bytes, text: str
) -> None:
    async with (
        serving(verifier) as url,
        aiohttp.ClientSession() as http,
        http.post(f"{url}/completions", data=body) as response,
    ):
        told = json.loads(await response.text())
    assert (response.status, response.content_type) == (400, "application/json")
    assert text in told["error"]["message"]
    assert told["error"]["type"] == "invalid_request_error"
    assert verifier.opens == []


async def test_the_chunks_of_a_stream_are_events_and_it_ends_with_a_mark(verifier: FakeVerifier) -> None:
    body = {"model": "tiny", "prompt": "a", "stream": True}
    async with serving(verifier) as url, aiohttp.ClientSession() as http:
        call = asyncio.ensure_future(http.post(f"{url}/completions", json=body))
        await eventually(lambda: verifier.opens)
        await write(verifier, "x")
        async with await call as response:
            text = await response.text()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    *events, end, rest = text.split("\n\n")
    assert all(event.startswith("data: {") for event in events)
    assert (end, rest) == ("data: [DONE]", "")


async def test_a_callers_trace_goes_on_through_the_gateway(verifier: FakeVerifier) -> None:
    from tests.telemetry.memory import Memory  # skips this test alone where the library is not installed

    memory, trace = Memory(), "1" * 32
    async with running_gateway([verifier], (), (OPEN_TO_ALL,)) as gateway:
        gateway._tracer = memory.tracer
        server = HttpServer("127.0.0.1:0", make_app(gateway, OpenAiApi(gateway).routes()))
        async with client_of(f"http://{await server.start()}/v1") as ask:
            headers = {"traceparent": f"00-{trace}-{'2' * 16}-01"}
            asked = ask.completions.create(model="tiny", prompt="hi", max_tokens=4, extra_headers=headers)
            answer = asyncio.create_task(asked)
            await eventually(lambda: verifier.opens)
            await write(verifier, "yes")
            await answer
        await server.drain()
    (request,) = memory.named("request")
    assert f"{request.context.trace_id:032x}" == verifier.opens[0].traceparent.split("-")[1] == trace
