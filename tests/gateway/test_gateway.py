"""Admission, places and the log of whole requests."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import numpy as np
import pytest

from gateway import encoding
from gateway.completion import Completion
from gateway.policy.tenants import Tenant
from slipstream.errors import DeadlineExceeded, Exhausted, InvalidRequest
from slipstream.exchange import Commit, CommitBatch, PromptLogprobs, TokenLogprobs
from slipstream.logs import fields_of
from slipstream.request import FinishReason
from slipstream.text.chat_template import ChatMessage
from slipstream.wire.v1 import exchange_pb2
from tests.gateway.fakes import PROMPT, TENANT, TOKENIZER, Client, FakeVerifier, eventually, running_gateway

SINGLE = Tenant(name="single", anonymous=True, proposers=("none",), max_concurrent=1)


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier([])


@pytest.fixture
def long_at_ten_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "LONG_PROMPT_CHARS", 10)


async def test_a_place_is_free_again_when_a_request_ends_however_it_ends(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        for number in range(3):
            client = Client(gateway, SINGLE)
            await eventually(lambda number=number: len(verifier.opens) == number + 1)
            with pytest.raises(Exhausted, match="tenant 'single' has 1 requests running or waiting; its limit"):
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

    monkeypatch.setattr(encoding, "encode_prompt", encode)
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


async def test_a_deadline_ends_the_wait_for_a_place_and_the_place_goes_to_who_comes_later(
    verifier: FakeVerifier,
) -> None:
    async with running_gateway([verifier], max_running=1) as gateway:
        first = Client(gateway)
        await eventually(lambda: verifier.opens)
        with pytest.raises(DeadlineExceeded, match="waited for a place; nothing was computed"):
            await asyncio.wait_for(Client(gateway, deadline=time.monotonic() + 0.05).task, 5)
        verifier.finish(verifier.opens[0].sequence_id, 3, [1])
        await first.task
        third = Client(gateway)
        await eventually(lambda: len(verifier.opens) == 2)
        third.task.cancel()


async def test_what_a_verifier_sends_malformed_is_counted_and_costs_a_reconnection(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway)
        await eventually(lambda: verifier.opens)
        verifier.say(exchange_pb2.Commit(sequence_id=verifier.opens[0].sequence_id, base=3, token_ids=b"123"))
        await eventually(lambda: len(verifier.opens) == 2)
        verifier.finish(verifier.opens[1].sequence_id, 3, [1])
        await client.task
    assert gateway.metrics.malformed_messages.value("verifier") == 1
    assert gateway.metrics.moves.value("test", "lost") == 1


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


def logprobs(*values: float) -> TokenLogprobs:
    ids = np.arange(len(values), dtype=np.int32)[:, None]
    return TokenLogprobs(np.array(values, np.float32), ids, np.array(values, np.float32)[:, None])


async def test_samples_run_on_one_verifier_and_each_is_told_with_its_own_usage(verifier: FakeVerifier) -> None:
    other = FakeVerifier([], "other")
    async with running_gateway([verifier, other]) as gateway:
        client = Client(gateway, n=3, seed=4)
        await eventually(lambda: 3 in (len(verifier.opens), len(other.opens)))
        used = verifier if verifier.opens else other
        assert [one.sample_index for one in used.opens] == [0, 1, 2]
        assert {one.seed for one in used.opens} == {4}
        assert len({one.nonce for one in used.opens}) == 3
        for index, request in enumerate(used.opens):
            used.commit(request.sequence_id, 3, [65 + index] * (index + 1), num_draft_tokens=2, num_accepted=index)
            used.finish(request.sequence_id, 4 + index, [90])
        await client.task
    last = {delta.index: delta for delta in client.deltas if delta.usage}
    assert sorted(last) == [0, 1, 2]
    usages = [last[index].usage for index in range(3)]
    assert [usage and (usage.completion_tokens, usage.accepted_tokens) for usage in usages] == [(2, 0), (3, 1), (4, 2)]


async def test_a_client_that_goes_frees_all_its_samples(verifier: FakeVerifier) -> None:
    four = Tenant(name="four", anonymous=True, proposers=("none",), max_concurrent=4)
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway, four, n=3)
        await eventually(lambda: len(verifier.opens) == 3)
        with pytest.raises(Exhausted, match="tenant 'four' has 3 requests running"):
            await Client(gateway, four, n=2).task
        verifier.finish(verifier.opens[1].sequence_id, 3, [1])
        await eventually(lambda: client.deltas)
        client.task.cancel()
        await eventually(lambda: len(verifier.closes) == 2)
        again = Client(gateway, four, n=4)
        await eventually(lambda: len(verifier.opens) == 7)
        again.task.cancel()


async def test_a_sample_that_fails_ends_the_call_and_the_others(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway, n=2)
        await eventually(lambda: len(verifier.opens) == 2)
        verifier.fail(verifier.opens[1].sequence_id, InvalidRequest("no"))
        with pytest.raises(InvalidRequest):
            await client.task
        await eventually(lambda: verifier.opens[0].sequence_id in verifier.closes)


async def test_prompt_and_log_probabilities_come_before_the_output(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway, prompt=TOKENIZER.encode("abc"), echo=True, prompt_logprobs=True, logprobs=True, n=2)
        await eventually(lambda: len(verifier.opens) == 2)
        first, second = (request.sequence_id for request in verifier.opens)
        assert [request.sampling.prompt_logprobs for request in verifier.opens] == [True, False]
        scores = PromptLogprobs(first, 1, logprobs(-1, -2))
        verifier.send(CommitBatch((Commit(first, 3, (9,), logprobs=logprobs(-3)),), prompt_logprobs=(scores,)))
        for sequence_id, base in ((first, 4), (second, 3)):
            verifier.commit(sequence_id, base, [8], logprobs=logprobs(-4), finish_reason=FinishReason.LENGTH)
        await client.task
    prompt = client.deltas[0].prompt
    assert prompt is not None
    assert (prompt.text, len(prompt.token_ids)) == ("abc", 3)
    assert prompt.logprobs is not None
    assert prompt.logprobs.logprobs.tolist() == [-1, -2]
    assert not any(delta.prompt for delta in client.deltas[1:])
    told = [delta.logprobs for delta in client.deltas if delta.index == 0 and delta.logprobs]
    assert np.concatenate([one.logprobs for one in told]).tolist() == [-3, -4]


async def test_a_prompt_that_was_told_is_not_scored_again_after_a_move(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway, prompt_logprobs=True)
        await eventually(lambda: verifier.opens)
        sequence_id = verifier.opens[0].sequence_id
        verifier.send(CommitBatch((), prompt_logprobs=(PromptLogprobs(sequence_id, 1, logprobs(-1)),)))
        await eventually(lambda: client.deltas)
        await verifier.die()
        await verifier.start()
        await eventually(lambda: len(verifier.opens) == 2)
        assert verifier.opens[1].sampling.prompt_logprobs
        verifier.send(CommitBatch((), prompt_logprobs=(PromptLogprobs(sequence_id, 1, logprobs(-1, -2)),)))
        await eventually(lambda: len(client.deltas) == 2)
        await verifier.die()
        await verifier.start()
        await eventually(lambda: len(verifier.opens) == 3)
        assert not verifier.opens[2].sampling.prompt_logprobs
        verifier.finish(sequence_id, 3, [1])
        await client.task
    parts = [delta.prompt for delta in client.deltas if delta.prompt]
    assert [token_id for part in parts for token_id in part.token_ids] == list(PROMPT)


async def test_text_ids_log_probabilities_and_counts_end_together_at_a_stop_string(verifier: FakeVerifier) -> None:
    async with running_gateway([verifier]) as gateway:
        client = Client(gateway, stop=("END",), logprobs=True)
        await eventually(lambda: verifier.opens)
        ids = TOKENIZER.encode("one END")
        verifier.commit(
            verifier.opens[0].sequence_id,
            3,
            ids,
            num_accepted=len(ids) - 1,
            num_draft_tokens=9,
            logprobs=logprobs(*range(len(ids))),
            finish_reason=FinishReason.STOP,
            stop_string="END",
        )
        await client.task
    (delta,) = client.deltas
    assert (delta.text, len(delta.token_ids), len(delta.drafted)) == ("one ", len(ids), len(ids))
    assert delta.logprobs is not None
    assert len(delta.logprobs) == len(ids) == len(delta.text_lengths)
    assert delta.usage is not None
    assert (delta.usage.completion_tokens, delta.usage.accepted_tokens) == (len(ids), len(ids) - 1)
