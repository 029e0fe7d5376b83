"""What failures become over HTTP."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from gateway.http_errors import error_reply
from gateway.json_fields import InvalidField
from slipstream import errors


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (errors.InvalidRequest("top_p is 2"), 400, "invalid_request_error", None),
        (errors.Unauthenticated("no key"), 401, "authentication_error", "invalid_api_key"),
        (errors.UnknownModel("no model"), 404, "invalid_request_error", "model_not_found"),
        (errors.Exhausted("no room"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (errors.Unavailable("no verifier"), 503, "server_error", "unavailable"),
        (errors.DeadlineExceeded("late"), 504, "server_error", "timeout"),
        (errors.CheckpointError("damaged"), 500, "server_error", "internal_error"),
    ],
)
def test_every_failure_has_a_status_and_says_what_it_is(error: Exception, status: int, kind: str, code: str) -> None:
    reply = error_reply(error)
    told = {"message": str(error), "type": kind, "param": None, "code": code}
    assert (reply.status, reply.body) == (status, {"error": told})
    assert json.loads(reply.event) == reply.body


def test_the_field_of_a_mistake_is_named() -> None:
    assert error_reply(InvalidField("stop.0 is 3", "stop.0")).body["error"]["param"] == "stop.0"


def test_want_of_room_says_when_to_try_again() -> None:
    headers = error_reply(errors.Exhausted("full", retry_after_seconds=2.5)).headers
    assert (headers["Retry-After"], headers["retry-after-ms"]) == ("3", "2500")


def test_a_fault_of_ours_tells_callers_its_type_only() -> None:
    reply = error_reply(KeyError("secret"))
    assert (reply.status, reply.is_ours) == (500, True)
    assert "secret" not in reply.event


def test_what_the_http_library_refuses_has_the_same_form() -> None:
    reply = error_reply(web.HTTPMethodNotAllowed("GET", ["POST"]))
    assert (reply.status, reply.headers["Allow"], reply.is_ours) == (405, "POST", False)
    assert reply.body["error"]["message"] == "405: Method Not Allowed"
