"""What KServe requests get: one response or many, and what is counted."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tritonclient.grpc import InferResult

from gateway.gateway import Gateway
from gateway.kserve.infer_request import read_infer_request
from gateway.kserve.inference import FINAL, Inference
from slipstream.errors import DeadlineExceeded, InvalidRequest, UnknownModel
from tests.gateway.fakes import TENANT, TOKENIZER, FakeVerifier, eventually, running_gateway
from tests.gateway.kserve.infer_requests import infer_request

PROMPT = "ask"


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier([])


def asked(model: str = "tiny", **values: Any) -> Any:
    return read_infer_request(infer_request(model, **{"text_input": PROMPT, **values}), lambda *where: b"")


def texts(response: Any) -> list[bytes]:
    return list(InferResult(response).as_numpy("text_output"))


async def collect(inference: Inference, request: Any, deadline: float | None = None) -> list[Any]:
    return [response async for response in inference.responses(TENANT, request, deadline)]


async def write(verifier: FakeVerifier, *pieces: str) -> None:
    await eventually(lambda: verifier.opens)
    sequence, base = verifier.opens[-1].sequence_id, len(PROMPT)
    for piece in pieces:
        token_ids = TOKENIZER.encode(piece)
        (verifier.finish if piece is pieces[-1] else verifier.commit)(sequence, base, token_ids)
        base += len(token_ids)


async def test_the_one_response_holds_the_whole_text(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        inference = Inference(gateway)
        call = asyncio.create_task(inference.once(TENANT, asked(), None))
        await write(verifier, "an", "swer")
        response = await asyncio.wait_for(call, 5)
    assert texts(response) == [b"askanswer"]
    assert (response.model_name, response.model_version, response.id) == ("tiny", "1", "r1")
    assert FINAL not in response.parameters
    assert inference.statistics.to_wire("tiny").inference_count == 1


async def test_a_stream_has_a_response_for_each_piece_and_marks_the_last(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        responses = Inference(gateway).responses(TENANT, asked(stream=True), None)
        first = asyncio.ensure_future(anext(responses))
        await write(verifier, "a")
        told = [await asyncio.wait_for(first, 5), *[one async for one in responses]]
    assert b"".join(text for one in told for text in texts(one)) == b"a"
    assert [one.parameters[FINAL].bool_param for one in told] == [False] * (len(told) - 1) + [True]


async def test_a_part_of_a_character_is_no_response(verifier: FakeVerifier) -> None:
    head, tail = TOKENIZER.encode("é")
    async with running_gateway([verifier]) as gateway:
        call = asyncio.create_task(collect(Inference(gateway), asked(stream=True)))
        await eventually(lambda: verifier.opens)
        sequence = verifier.opens[0].sequence_id
        verifier.commit(sequence, 3, [head])
        await asyncio.sleep(0.05)
        verifier.finish(sequence, 4, [tail])
        told = await asyncio.wait_for(call, 5)
    assert [texts(one) for one in told] == [["é".encode()]]


async def test_samples_are_elements_of_the_output(verifier: FakeVerifier) -> None:
    request = asked(sampling_parameters='{"n": 2}', exclude_input_in_output=True)
    async with running_gateway([verifier]) as gateway:
        call = asyncio.create_task(collect(Inference(gateway), request))
        await eventually(lambda: len(verifier.opens) == 2)
        for sequence in verifier.opens:
            verifier.finish(sequence.sequence_id, 3, TOKENIZER.encode(str(sequence.sample_index)))
        (response,) = await asyncio.wait_for(call, 5)
    assert texts(response) == [b"0", b"1"]


async def test_a_stream_is_not_asked_for_by_a_call_with_one_response(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        with pytest.raises(InvalidRequest, match="stream is True; ModelInfer has one response"):
            await Inference(gateway).once(TENANT, asked(stream=True), None)


async def test_failures_of_known_models_are_counted_and_others_leave_nothing(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        inference = Inference(gateway)
        with pytest.raises(InvalidRequest, match="top_p is 3"):
            await collect(inference, asked(sampling_parameters='{"top_p": 3}'))
        with pytest.raises(UnknownModel):
            await collect(inference, asked("other"))
    assert inference.statistics.to_wire("tiny").inference_stats.fail.count == 1
    assert inference.statistics.to_wire("other").inference_stats.fail.count == 0


@pytest.mark.parametrize("own", [True, False])
async def test_the_earlier_of_two_deadlines_counts(verifier: FakeVerifier, own: bool) -> None:
    request = infer_request(text_input=PROMPT)
    request.parameters["timeout"].int64_param = 200_000 if own else 60_000_000
    read = read_infer_request(request, lambda *where: b"")
    async with running_gateway([verifier], max_running=1) as gateway:
        holding = asyncio.create_task(hold(gateway))
        await eventually(lambda: verifier.opens)
        with pytest.raises(DeadlineExceeded):
            await collect(Inference(gateway), read, time.monotonic() + (60 if own else 0.2))
        holding.cancel()


async def hold(gateway: Gateway) -> None:
    """Takes the only place there is."""
    await collect(Inference(gateway), asked())
