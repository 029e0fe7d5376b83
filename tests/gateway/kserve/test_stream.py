"""Many requests on one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as pb

from gateway.kserve.stream import InferStream
from slipstream.errors import InvalidRequest

REFUSED = "refused"


class Service:
    """Answers each request twice, the second time when it is told to."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.ended: list[str] = []

    async def answer(self, request: Any) -> AsyncGenerator[Any, None]:
        if request.id == REFUSED:
            raise InvalidRequest("no")
        try:
            yield pb.ModelInferResponse(id=request.id)
            await self.release.wait()
            yield pb.ModelInferResponse(id=request.id)
        finally:
            self.ended.append(request.id)


async def requests(*ids: str) -> AsyncIterator[Any]:
    for request_id in ids:
        yield pb.ModelInferRequest(id=request_id)


async def test_requests_run_together_and_the_stream_ends_with_the_last() -> None:
    service, seen = Service(), []
    async for response in InferStream(service.answer, asyncio.Event()).responses(requests("a", "b")):
        seen.append(response.infer_response.id)
        if len(seen) == 2:
            assert sorted(seen) == ["a", "b"]
            service.release.set()
    assert sorted(seen) == ["a", "a", "b", "b"]


async def test_one_that_fails_is_told_so_by_id_and_the_others_go_on() -> None:
    service = Service()
    service.release.set()
    seen = [one async for one in InferStream(service.answer, asyncio.Event()).responses(requests(REFUSED, "a"))]
    failures = [(one.infer_response.id, one.error_message) for one in seen if one.error_message]
    assert failures == [(REFUSED, "no")]
    assert [one.infer_response.id for one in seen if not one.error_message] == ["a", "a"]


async def test_leaving_ends_all_that_run() -> None:
    service = Service()
    stream = InferStream(service.answer, asyncio.Event()).responses(requests("a", "b", "c"))
    await anext(stream)
    await asyncio.sleep(0.01)
    await asyncio.wait_for(stream.aclose(), 5)
    assert sorted(service.ended) == ["a", "b", "c"]


async def test_a_request_that_cannot_be_parsed_ends_the_stream() -> None:
    async def broken() -> AsyncIterator[Any]:
        raise InvalidRequest("no message")
        yield

    with pytest.raises(InvalidRequest, match="no message"):
        await anext(InferStream(Service().answer, asyncio.Event()).responses(broken()))


async def test_a_stream_without_requests_ends() -> None:
    assert [one async for one in InferStream(Service().answer, asyncio.Event()).responses(requests())] == []


async def test_a_closing_stream_answers_what_it_was_asked_refuses_more_and_ends_without_its_caller() -> None:
    service, closing, asked, seen = Service(), asyncio.Event(), asyncio.Queue[str](), []

    async def endless() -> AsyncIterator[Any]:
        while True:
            yield pb.ModelInferRequest(id=await asked.get())

    asked.put_nowait("a")
    async for response in InferStream(service.answer, closing).responses(endless()):
        seen.append((response.infer_response.id, bool(response.error_message)))
        if len(seen) == 1:
            closing.set()
            asked.put_nowait("late")
        elif seen[-1] == ("late", True):
            service.release.set()
    assert seen == [("a", False), ("late", True), ("a", False)]


async def test_a_closing_stream_that_nobody_uses_ends_at_once() -> None:
    closing = asyncio.Event()

    async def silent() -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    closing.set()
    async with asyncio.timeout(5):
        assert [one async for one in InferStream(Service().answer, closing).responses(silent())] == []
