"""Admission, places and the log of whole requests."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from gateway import gateway as gateway_module
from gateway.completion import Completion
from gateway.tenants import Tenant
from slipstream.errors import Exhausted, InvalidRequest
from slipstream.logs import fields_of
from slipstream.text.chat_template import ChatMessage
from tests.gateway.fakes import TENANT, Client, FakeVerifier, eventually, running_gateway

SINGLE = Tenant(name="single", anonymous=True, proposers=("none",), max_concurrent=1)


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier([])


@pytest.fixture
def long_at_ten_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "LONG_PROMPT_CHARS", 10)


async def test_a_place_is_free_again_when_a_request_ends_however_it_ends(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        for number in range(3):
            client = Client(gateway, SINGLE)
            await eventually(lambda number=number: len(verifier.opens) == number + 1)
            with pytest.raises(Exhausted, match="tenant 'single' has 1 requests running, its limit"):
                await Client(gateway, SINGLE).task
            sequence = verifier.opens[-1].sequence_id
            if number == 0:
                verifier.finish(sequence, 3, [1])
                await client.task
            elif number == 1:
                client.task.cancel()
                await eventually(lambda sequence=sequence: sequence in verifier.closes)
            else:
                verifier.fail(sequence, InvalidRequest("no"))
                with pytest.raises(InvalidRequest):
                    await client.task
        last = Client(gateway, SINGLE)
        await eventually(lambda: len(verifier.opens) == 4)
        last.task.cancel()


async def test_each_request_leaves_one_line_in_the_log(
    verifier: FakeVerifier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.requests")
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway, request_id="r-7")
        await eventually(lambda: verifier.opens)
        verifier.finish(verifier.opens[0].sequence_id, 3, [1])
        await client.task
        with pytest.raises(InvalidRequest):
            await Client(gateway, request_id="r-8", top_p=7).task
    told = [fields_of(record) for record in caplog.records if record.name == "gateway.requests"]
    assert [(line["request"], line["tenant"], line["end"]) for line in told] == [
        ("r-7", "test", "LENGTH"),
        ("r-8", "test", "INVALID_ARGUMENT"),
    ]
    assert [gateway.metrics.requests.value("test", end) for end in ("LENGTH", "INVALID_ARGUMENT")] == [1, 1]


async def test_an_unseeded_request_gets_a_seed_of_its_own(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        clients = [Client(gateway) for _ in range(16)]
        await eventually(lambda: len(verifier.opens) == 16)
        for client in clients:
            client.task.cancel()
    assert len({request.seed for request in verifier.opens}) == 16
    assert max(request.seed for request in verifier.opens) > 1 << 60


@pytest.mark.usefixtures("long_at_ten_characters")
async def test_a_long_prompt_is_encoded_beside_the_loop_with_the_same_result(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        ids, tokens = await gateway.tokenize("", "a text of many characters")
        assert (ids[:2], tokens[:2]) == (gateway.catalog.find("").text.tokenizer.encode("a "), ["a", "Ġ"])
        with pytest.raises(InvalidRequest, match="prompt is empty"):
            await gateway.tokenize("", "")


async def test_a_long_chat_does_not_hold_up_the_loop(verifier: FakeVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def encode(tools: object, prompt: object, offered: object) -> tuple[int, ...]:
        threads.add(threading.current_thread())
        return (1,)

    monkeypatch.setattr(gateway_module, "encode_prompt", encode)
    async with running_gateway([verifier]) as gateway:
        await gateway.tokenize("", (ChatMessage("user", "x" * 20_000),))
    assert threading.main_thread() not in threads


async def test_leaving_the_block_ends_a_request_that_nobody_read(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        async with gateway.complete(TENANT, Completion(prompt=(1,)), None):
            await eventually(lambda: verifier.opens)
        await eventually(lambda: verifier.closes)
        await asyncio.sleep(0)


async def test_who_finds_no_place_waits_and_the_verifier_hears_of_it_later(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier], max_running=1, max_queued=1) as gateway:
        first = Client(gateway)
        await eventually(lambda: verifier.opens)
        second = Client(gateway, request_id="second")
        await asyncio.sleep(0.05)
        assert len(verifier.opens) == 1
        with pytest.raises(Exhausted, match="1 requests run and 1 wait, the most allowed"):
            await Client(gateway).task
        verifier.finish(verifier.opens[0].sequence_id, 3, [1])
        await first.task
        await eventually(lambda: len(verifier.opens) == 2)
        assert verifier.opens[1].request_id == "second"
        verifier.finish(verifier.opens[1].sequence_id, 3, [1])
        await second.task
    assert gateway.metrics.requests.value("test", "RESOURCE_EXHAUSTED") == 1
    assert gateway.metrics.admission_seconds.count("test") == 2


async def test_a_client_that_leaves_the_line_is_counted_and_never_opened(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier], max_running=1) as gateway:
        first = Client(gateway)
        await eventually(lambda: verifier.opens)
        second = Client(gateway)
        await asyncio.sleep(0.05)
        second.task.cancel()
        await eventually(lambda: gateway.metrics.requests.value("test", "CANCELLED") == 1)
        first.task.cancel()
        await eventually(lambda: gateway.metrics.requests.value("test", "CANCELLED") == 2)
        third = Client(gateway)
        await eventually(lambda: len(verifier.opens) == 2)
        third.task.cancel()
