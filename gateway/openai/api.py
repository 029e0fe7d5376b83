"""The endpoints under /v1: unpack, one call, reply. Knows HTTP and bodies; the gateway does the work."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from aiohttp import web

from gateway.calls import TRACEPARENT
from gateway.gateway import Gateway
from gateway.http_app import REQUEST_ID, read_body
from gateway.http_errors import error_reply
from gateway.json_fields import read_json
from gateway.openai.answers import CLOSE, OPEN, make_reader
from gateway.openai.chat_fields import ChatFields
from gateway.openai.chat_reply import ChatReply
from gateway.openai.choices import run_choices
from gateway.openai.completion_fields import CompletionFields
from gateway.openai.completion_reply import CompletionReply
from gateway.openai.reply import ChoiceFormat, Reply
from gateway.openai.request_fields import Asked
from gateway.peers.tokenizer_store import TextTools
from gateway.policy.tenants import Tenant
from gateway.refusals import refusing
from slipstream.errors import UnknownModel, quoted
from slipstream.exchange import ModelInfo
from slipstream.text.chat_template import ChatTemplate

_LOG = logging.getLogger(__name__)

OWNER: Final = "slipstream"
_EVENT_STREAM: Final = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}

BodyT = TypeVar("BodyT", ChatFields, CompletionFields)
MakeChoices = Callable[[BodyT, TextTools], ChoiceFormat]


@dataclass(frozen=True, slots=True)
class _Call:
    """A request that was read and understood."""

    tenant: Tenant
    asked: Asked
    reply: Reply


class OpenAiApi:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._started = int(time.time())

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/models", self.models),
            web.get("/v1/models/{model:.+}", self.model),
            web.post("/v1/completions", self.completions),
            web.post("/v1/chat/completions", self.chat),
        ]

    async def models(self, request: web.Request) -> web.StreamResponse:
        self._tenant(request)
        models = await self._gateway.models()
        return web.json_response({"object": "list", "data": [self._described(info) for info in models]})

    async def model(self, request: web.Request) -> web.StreamResponse:
        self._tenant(request)
        name = request.match_info["model"]
        for info in await self._gateway.models():
            if info.name == name:
                return web.json_response(self._described(info))
        raise UnknownModel(f"model {quoted(name)} is not served here; GET /v1/models tells which are")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, await self._read(request, ChatFields, _chat_choices))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, await self._read(request, CompletionFields, _completion_choices))

    async def _read(self, request: web.Request, kind: type[BodyT], make_choices: MakeChoices[BodyT]) -> _Call:
        request_id = request[REQUEST_ID]
        with refusing(self._gateway, request_id):
            tenant = self._tenant(request)
        content = await read_body(request)  # one that is too long is no request yet
        with refusing(self._gateway, request_id, tenant.name):
            body = await read_json(kind, content)
            asked = body.read()
            model = self._gateway.catalog.find(body.model)
        traceparent = request.headers.get(TRACEPARENT, "")
        completions = tuple(
            replace(completion, request_id=request_id, traceparent=traceparent) for completion in asked.completions
        )
        reply = Reply(
            make_choices(body, model.text),
            request_id=request_id,
            model=model.info.name,
            num_samples=completions[0].n,
        )
        return _Call(tenant, replace(asked, completions=completions), reply)

    async def _answer(self, request: web.Request, call: _Call) -> web.StreamResponse:
        async with aclosing(run_choices(self._gateway, call.tenant, call.asked.completions)) as parts:
            if not call.asked.stream:
                return web.json_response(await call.reply.whole(parts))
            async with aclosing(call.reply.events(parts, include_usage=call.asked.include_usage)) as events:
                return await _stream(request, events)

    def _tenant(self, request: web.Request) -> Tenant:
        """OpenAI's clients always send a key; where none is known, it says nothing."""
        tenants = self._gateway.tenants
        return tenants.authenticate(request.headers.get("Authorization", "") if tenants.has_keys else "")

    def _described(self, info: ModelInfo) -> dict[str, Any]:
        return {
            "id": info.name,
            "object": "model",
            "created": self._started,
            "owned_by": OWNER,
            "max_model_len": info.max_model_len,
        }


async def _stream(request: web.Request, events: AsyncIterator[str]) -> web.StreamResponse:
    """A request that is refused before its first piece gets a status of its own; later, the error is an event."""
    first = await anext(events)
    response = web.StreamResponse(headers=_EVENT_STREAM)
    await response.prepare(request)
    try:
        await response.write(_event(first))
        async for event in events:
            await response.write(_event(event))
    except ConnectionError:
        raise  # the caller went
    except Exception as error:
        reply = error_reply(error)
        if reply.is_ours:
            _LOG.exception("%s %s failed in its stream", request.method, request.path)
        await response.write(_event(reply.event))
    await response.write_eof()
    return response


def _event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


def _chat_choices(body: ChatFields, text: TextTools) -> ChoiceFormat:
    marked = isinstance(text.template, ChatTemplate) and text.template.mentions(OPEN, CLOSE)
    return ChatReply(text.tokenizer, partial(make_reader, body.tools or [], body.tool_choice, marked=marked))


def _completion_choices(body: CompletionFields, text: TextTools) -> ChoiceFormat:
    return CompletionReply(text.tokenizer, logprobs=body.logprobs is not None, echo=bool(body.echo))
