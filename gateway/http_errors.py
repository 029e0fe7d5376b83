"""What a failed request gets over HTTP: a status, and a body as OpenAI's clients read it. Knows no request."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from aiohttp import web

from gateway.json_fields import InvalidField
from slipstream.errors import Exhausted
from slipstream.wire.status import retry_advice, to_status

_CODE = grpc.StatusCode

_KINDS: Final = {
    _CODE.INVALID_ARGUMENT: (400, "invalid_request_error", None),
    _CODE.UNAUTHENTICATED: (401, "authentication_error", "invalid_api_key"),
    _CODE.NOT_FOUND: (404, "invalid_request_error", "model_not_found"),
    _CODE.RESOURCE_EXHAUSTED: (429, "rate_limit_error", "rate_limit_exceeded"),
    _CODE.UNAVAILABLE: (503, "server_error", "unavailable"),
    _CODE.DEADLINE_EXCEEDED: (504, "server_error", "timeout"),
}
_INTERNAL: Final = (500, "server_error", "internal_error")


@dataclass(frozen=True, slots=True)
class ErrorReply:
    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        return web.json_response(self.body, status=self.status, headers=self.headers)

    @property
    def is_ours(self) -> bool:
        """A fault of this gateway, to be looked at by whoever runs it."""
        return self.status == _INTERNAL[0]

    @property
    def event(self) -> str:
        """For a stream that has begun."""
        return json.dumps(self.body)


def error_reply(error: Exception) -> ErrorReply:
    if isinstance(error, web.HTTPException):
        return _of_http(error)
    code, text = to_status(error)
    status, kind, name = _KINDS.get(code, _INTERNAL)
    param = error.field if isinstance(error, InvalidField) else None
    return ErrorReply(status, _body(text, kind, name, param), _advice(error))


def _of_http(error: web.HTTPException) -> ErrorReply:
    """What aiohttp itself refuses: an unknown path or method, a body too long."""
    allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    unknown = isinstance(error, web.HTTPNotFound)
    text = "there is no such path here; docs/api.md names those that there are" if unknown else error.text
    return ErrorReply(error.status, _body(text or error.reason, "invalid_request_error", None, None), allowed)


def _body(text: str, kind: str, code: str | None, param: str | None) -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "param": param, "code": code}}


def _advice(error: Exception) -> dict[str, str]:
    """Headers that say when to try again."""
    if not isinstance(error, Exhausted):
        return {}
    return {"Retry-After": str(max(1, math.ceil(error.retry_after_seconds))), **dict(retry_advice(error))}
