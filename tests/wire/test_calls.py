"""Calls in flight are counted and new ones refused, of the services named and of no others."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from slipstream.wire.calls import REFUSAL, Calls


class Refused(Exception):
    pass


class Context:
    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        assert (code, text) == (grpc.StatusCode.UNAVAILABLE, REFUSAL)
        raise Refused


class Details:
    def __init__(self, method: str) -> None:
        self.method = method


async def intercepted(calls: Calls, method: str, behaviour: Any) -> Any:
    async def continuation(details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(behaviour)

    handler = await calls.intercept_service(continuation, Details(method))  # type: ignore[arg-type]
    return handler.unary_unary


async def test_it_is_finished_when_the_last_call_is_done_however_it_ends() -> None:
    calls, gate = Calls(("a.Service",)), asyncio.Event()

    async def behaviour(request: str, context: Any) -> str:
        await gate.wait()
        if request == "fail":
            raise ValueError
        return request

    call = await intercepted(calls, "/a.Service/Do", behaviour)
    running = [asyncio.create_task(call(request, Context())) for request in ("ok", "fail")]
    await asyncio.sleep(0)
    calls.refuse()
    finished = asyncio.create_task(calls.finished())
    await asyncio.sleep(0)
    assert not finished.done()
    gate.set()
    await asyncio.wait_for(finished, 5)
    assert await running[0] == "ok"
    with pytest.raises(ValueError):
        await running[1]


async def test_new_calls_are_refused_and_health_is_answered_to_the_end() -> None:
    calls = Calls(("a.Service",))

    async def behaviour(request: str, context: Any) -> str:
        return request

    calls.refuse()
    with pytest.raises(Refused):
        await (await intercepted(calls, "/a.Service/Do", behaviour))("x", Context())
    assert await (await intercepted(calls, "/grpc.health.v1.Health/Check", behaviour))("x", Context()) == "x"
    await asyncio.wait_for(calls.finished(), 5)


async def test_a_method_that_is_not_there_stays_so() -> None:
    async def continuation(details: Any) -> None:
        return None

    assert await Calls(()).intercept_service(continuation, Details("/a.Service/None")) is None  # type: ignore[arg-type]
