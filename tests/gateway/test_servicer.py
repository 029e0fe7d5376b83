"""The Generation service over real gRPC, in front of scripted peers."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from gateway.policy.tenants import Tenant
from gateway.servicer import GenerationServicer
from slipstream.request import FinishReason
from slipstream.wire.status import StatusInterceptor
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc
from tests.gateway.fakes import PROMPT, TOKENIZER, FakeDrafter, FakeVerifier, eventually, opened, running_gateway

IDS = pb.Prompt(token_ids=pb.TokenIds(ids=PROMPT))
OPEN_TO_ALL = Tenant(name="all", anonymous=True, proposers=("none",), max_tokens=50)
CODE = grpc.StatusCode
SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536))  # else 4 MB are read ahead


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@asynccontextmanager
async def serving(
    verifier: FakeVerifier, *tenants: Tenant, drafters: tuple[FakeDrafter, ...] = (), **settings: Any
) -> AsyncIterator[generation_pb2_grpc.GenerationAsyncStub]:
    """A stub of a gateway in front of these peers."""
    async with running_gateway([verifier], drafters, tenants or (OPEN_TO_ALL,), **settings) as gateway:
        server = grpc.aio.server(interceptors=(StatusInterceptor(),))
        generation_pb2_grpc.add_GenerationServicer_to_server(GenerationServicer(gateway), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=SMALL_WINDOW) as channel:
            yield generation_pb2_grpc.GenerationStub(channel)
        await server.stop(None)


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asyncio.wait_for(call, 5)
    return raised.value


def commit_text(verifier: FakeVerifier, sequence: int, text: str, **fields: Any) -> None:
    verifier.commit(sequence, 3, TOKENIZER.encode(text), **fields)


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier([])


async def test_text_ids_finish_usage_and_timings_are_told(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        call = stub.Generate(pb.GenerateRequest(prompt=IDS, request_id="r-1"))
        sequence = await opened(verifier)
        verifier.commit(sequence, 3, TOKENIZER.encode("ab"), num_accepted=1, num_draft_tokens=1, num_cached_tokens=2)
        first = await call.read()
        verifier.finish(sequence, 5, TOKENIZER.encode("c"))
        last = await call.read()
        assert await call.read() is grpc.aio.EOF
    assert (first.request_id, first.text, list(first.drafted)) == ("r-1", "ab", [True, False])
    assert first.finish_reason == FinishReason.NONE
    assert not first.HasField("usage")
    assert (last.text, last.finish_reason) == ("c", FinishReason.LENGTH)
    usage = last.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.num_passes) == (3, 3, 2, 2)
    assert 0 < last.timings.first_token_us <= last.timings.total_us
    assert last.timings.verify_us == 2000


async def test_generate_once_tells_all_in_one_message(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        call = stub.GenerateOnce(pb.GenerateRequest(prompt=IDS, seed=5))
        sequence = await opened(verifier)
        commit_text(verifier, sequence, "ab")
        verifier.finish(sequence, 5, TOKENIZER.encode("c"))
        reply = await call
    assert (reply.text, len(reply.token_ids), reply.usage.seed) == ("abc", 3, 5)
    assert reply.request_id


async def test_generate_once_tells_all_samples_in_one_message(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        call = stub.GenerateOnce(pb.GenerateRequest(prompt=IDS, n=2, echo=True))
        await opened(verifier, 2)
        first, second = (request.sequence_id for request in verifier.opens)
        verifier.finish(second, 3, TOKENIZER.encode("xyz"))
        verifier.finish(first, 3, TOKENIZER.encode("ab"))
        reply = await call
    (other,) = reply.samples
    assert (reply.index, reply.text, list(reply.prompt.token_ids)) == (0, "ab", list(PROMPT))
    assert (other.index, other.text, other.HasField("prompt")) == (1, "xyz", False)
    assert (reply.usage.completion_tokens, other.usage.completion_tokens) == (2, 3)
    assert reply.request_id == other.request_id


async def test_a_character_in_two_tokens_is_told_whole(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        call = stub.Generate(pb.GenerateRequest(prompt=IDS))
        sequence = await opened(verifier)
        head, tail = TOKENIZER.encode("é")
        verifier.commit(sequence, 3, [head])
        first = await call.read()
        verifier.finish(sequence, 4, [tail])
        last = await call.read()
    assert (first.text, list(first.token_ids), last.text) == ("", [head], "é")


@pytest.mark.parametrize(("include_stop", "text"), [(False, "one "), (True, "one END")])
async def test_a_stop_string_is_cut_and_its_beginning_never_shown(
    verifier: FakeVerifier, include_stop: bool, text: str
) -> None:
    async with serving(verifier) as stub:
        call = stub.Generate(pb.GenerateRequest(prompt=IDS, stop=["END"], include_stop=include_stop))
        sequence = await opened(verifier)
        commit_text(verifier, sequence, "one EN")
        first = await call.read()
        verifier.commit(sequence, 9, TOKENIZER.encode("D"), finish_reason=FinishReason.STOP, stop_string="END")
        last = await call.read()
    assert first.text == "one "
    assert first.text + last.text == text
    assert last.finish_reason == FinishReason.STOP
    assert verifier.opens[0].sampling.stop_strings == ("END",)


async def test_what_was_held_back_for_a_stop_string_is_told_at_the_end(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        call = stub.GenerateOnce(pb.GenerateRequest(prompt=IDS, stop=["END"]))
        commit_text(verifier, await opened(verifier), "one EN", finish_reason=FinishReason.LENGTH)
        assert (await call).text == "one EN"


async def test_defaults_of_the_request_reach_the_verifier(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        calls = [stub.Generate(pb.GenerateRequest(prompt=IDS))]
        await opened(verifier)
        calls += [stub.Generate(pb.GenerateRequest(prompt=IDS, model="tiny", temperature=0))]
        await opened(verifier, 2)
        del calls  # they are cancelled when nobody holds them
    first, second = verifier.opens
    sampling = first.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1.0, 0, 1.0, 0.0)
    assert sampling.max_tokens == 50  # the tenant's limit; the context would leave 61
    assert first.seed != second.seed
    assert second.sampling.greedy


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"prompt": None}, CODE.INVALID_ARGUMENT, "prompt is missing"),
        ({"prompt": pb.Prompt(text="")}, CODE.INVALID_ARGUMENT, "prompt is empty"),
        ({"prompt": pb.Prompt(token_ids=pb.TokenIds())}, CODE.INVALID_ARGUMENT, "prompt is empty"),
        ({"prompt": pb.Prompt(text="x" * 64)}, CODE.INVALID_ARGUMENT, "prompt has 64 tokens; it must be <= 63"),
        ({"prompt": pb.Prompt(token_ids=pb.TokenIds(ids=[257]))}, CODE.INVALID_ARGUMENT, "token id 257.*0..256"),
        ({"prompt": pb.Prompt(token_ids=pb.TokenIds(ids=[-1]))}, CODE.INVALID_ARGUMENT, "token id -1"),
        ({"prompt": pb.Prompt(chat=pb.ChatMessages(messages=[pb.ChatMessage(role="user")]))},
         CODE.INVALID_ARGUMENT, "no chat template"),
        ({"model": "other"}, CODE.NOT_FOUND, "model 'other' is not served here; it must be one of tiny"),
        ({"temperature": -1.0}, CODE.INVALID_ARGUMENT, "temperature is -1.0; it must be >= 0"),
        ({"temperature": math.nan}, CODE.INVALID_ARGUMENT, "temperature is nan"),
        ({"temperature": math.inf}, CODE.INVALID_ARGUMENT, "temperature is inf"),
        ({"top_p": 0.0}, CODE.INVALID_ARGUMENT, r"top_p is 0.0; it must be in \(0, 1\]"),
        ({"top_p": 1.5}, CODE.INVALID_ARGUMENT, "top_p is 1.5"),
        ({"top_k": 1 << 30}, CODE.INVALID_ARGUMENT, "top_k is 1073741824"),
        ({"min_p": -0.5}, CODE.INVALID_ARGUMENT, "min_p is -0.5"),
        ({"max_tokens": 0}, CODE.INVALID_ARGUMENT, "max_tokens is 0; it must be >= 1"),
        ({"max_tokens": 51}, CODE.INVALID_ARGUMENT, "max_tokens is 51; it must be in 1..50"),
        ({"n": 0}, CODE.INVALID_ARGUMENT, r"n is 0; it must be in 1\.\.16, your tenant's limit"),
        ({"n": 17}, CODE.INVALID_ARGUMENT, r"n is 17; it must be in 1\.\.16"),
        ({"num_top_logprobs": 21}, CODE.INVALID_ARGUMENT, r"num_top_logprobs is 21; it must be in 0\.\.20"),
        ({"stop": [""]}, CODE.INVALID_ARGUMENT, "stop is ''"),
        ({"stop_token_ids": [999]}, CODE.INVALID_ARGUMENT, "stop_token_ids holds token id 999"),
        ({"stop_token_ids": [5] * 2000}, CODE.INVALID_ARGUMENT, "stop_token_ids is 2000; it must be <= 1024 ids"),
        ({"request_id": "a\nb"}, CODE.INVALID_ARGUMENT, r"request_id is 'a\\nb'"),
        ({"request_id": "é"}, CODE.INVALID_ARGUMENT, "request_id is 'é'; it must be <= 128 printable ASCII characters"),
    ],
)  # fmt: skip
async def test_bad_input_gets_a_precise_status_and_changes_nothing(
    verifier: FakeVerifier, fields: dict[str, Any], code: grpc.StatusCode, text: str
) -> None:
    async with serving(verifier) as stub:
        error = await refusal(stub.GenerateOnce(pb.GenerateRequest(**({"prompt": IDS} | fields))))
    assert error.code() is code
    assert re.search(text, error.details() or "")
    assert verifier.opens == []


async def test_two_tenants_have_their_own_keys_proposers_and_limits(verifier: FakeVerifier) -> None:
    plain = Tenant(name="plain", key_sha256=(key_hash("one"),), proposers=("none",), max_concurrent=1)
    ngram = Tenant(name="ngram", key_sha256=(key_hash("two"),), proposers=("ngram",), mode="coupled")
    request = pb.GenerateRequest(prompt=IDS)
    async with serving(verifier, plain, ngram) as stub:
        calls = [stub.Generate(request, metadata=(("authorization", "Bearer one"),))]
        await opened(verifier)
        full = await refusal(stub.GenerateOnce(request, metadata=(("authorization", "Bearer one"),)))
        calls += [stub.Generate(request, metadata=(("authorization", "Bearer two"),))]
        await opened(verifier, 2)
        del calls
        for metadata in ((), (("authorization", "Bearer three"),)):
            assert (await refusal(stub.GenerateOnce(request, metadata=metadata))).code() is CODE.UNAUTHENTICATED
            assert (await refusal(stub.ListModels(pb.ListModelsRequest(), metadata=metadata))).code() is (
                CODE.UNAUTHENTICATED
            )
    assert full.code() is CODE.RESOURCE_EXHAUSTED
    assert "tenant 'plain' has 1 requests running or waiting; its limit" in (full.details() or "")
    first, second = verifier.opens
    assert (first.tenant, first.proposers, first.num_draft_tokens) == ("plain", (), 0)
    assert (second.tenant, second.proposers, second.num_draft_tokens) == ("ngram", ("ngram",), 4)


@pytest.mark.parametrize(("given", "expected"), [("r-1", "r-1"), ("", r"[0-9a-f]{32}")])
async def test_the_request_id_is_in_the_initial_metadata_before_anything_is_computed(
    verifier: FakeVerifier, given: str, expected: str
) -> None:
    async with serving(verifier) as stub:
        call = stub.Generate(pb.GenerateRequest(prompt=IDS, request_id=given))
        echoed = str(dict(await call.initial_metadata())["request-id"])
        assert re.fullmatch(expected, echoed)
        sequence = await opened(verifier)
        assert verifier.opens[0].request_id == echoed
        verifier.finish(sequence, 3, [1])
        assert (await call.read()).request_id == echoed


async def test_a_refusal_for_want_of_room_says_when_to_try_again(verifier: FakeVerifier) -> None:
    async with serving(verifier, Tenant(name="one", anonymous=True, max_concurrent=1)) as stub:
        call = stub.Generate(pb.GenerateRequest(prompt=IDS))
        await opened(verifier)
        refused = await refusal(stub.GenerateOnce(pb.GenerateRequest(prompt=IDS)))
        call.cancel()
    assert refused.code() is CODE.RESOURCE_EXHAUSTED
    assert int(str(dict(refused.trailing_metadata())["retry-after-ms"])) >= 100


@pytest.mark.parametrize("method", ["Generate", "GenerateOnce"])
async def test_a_cancelled_call_closes_the_sequence_everywhere(verifier: FakeVerifier, method: str) -> None:
    drafter = FakeDrafter([])
    tenant = Tenant(name="drafted", anonymous=True, proposers=("draft_model",))
    async with serving(verifier, tenant, drafters=(drafter,)) as stub:
        call = getattr(stub, method)(pb.GenerateRequest(prompt=IDS))
        sequence = await opened(verifier)
        await eventually(lambda: drafter.opens)
        call.cancel()
        await eventually(lambda: verifier.closes == drafter.closes == [sequence])


async def test_a_deadline_that_passes_closes_the_sequence(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        error = await refusal(stub.GenerateOnce(pb.GenerateRequest(prompt=IDS), timeout=0.3))
        await eventually(lambda: verifier.closes)
    assert error.code() is CODE.DEADLINE_EXCEEDED
    assert 0 < verifier.opens[0].deadline_ms <= 300


async def test_without_a_deadline_none_is_sent(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        call = stub.Generate(pb.GenerateRequest(prompt=IDS))
        await opened(verifier)
        call.cancel()
    assert verifier.opens[0].deadline_ms == 0


async def test_a_slow_client_is_cancelled_alone(verifier: FakeVerifier) -> None:
    """It reads nothing until gRPC's own buffers are full; a call beside it goes on all the time."""
    async with serving(verifier, max_unsent_tokens=1000) as stub:
        slow = stub.Generate(pb.GenerateRequest(prompt=IDS))
        slow_sequence = await opened(verifier)
        quick = stub.Generate(pb.GenerateRequest(prompt=IDS))
        quick_sequence = await opened(verifier, 2)
        for number in range(200):
            verifier.commit(slow_sequence, 3 + number * 5000, [65] * 5000)
            verifier.commit(quick_sequence, 3 + number, [66])
            assert (await quick.read()).text == TOKENIZER.token_bytes(66).decode()
            if verifier.closes:
                break
        await eventually(lambda: verifier.closes == [slow_sequence])
        with pytest.raises(grpc.aio.AioRpcError, match="the client is too slow") as raised:
            async for _ in slow:
                pass
        verifier.finish(quick_sequence, 4 + number, [67])
        assert (await quick.read()).finish_reason == FinishReason.LENGTH
    assert raised.value.code() is CODE.RESOURCE_EXHAUSTED


async def test_tokenize_shows_ids_and_entries(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        reply = await stub.Tokenize(pb.TokenizeRequest(prompt=pb.Prompt(text="hé")))
    assert tuple(reply.token_ids) == TOKENIZER.encode("hé")
    assert list(reply.tokens) == ["h", "Ã", "©"]


@pytest.mark.parametrize("bad", [-1, 2**31 - 1])
async def test_tokenize_names_an_id_that_is_no_token(verifier: FakeVerifier, bad: int) -> None:
    async with serving(verifier) as stub:
        request = pb.TokenizeRequest(prompt=pb.Prompt(token_ids=pb.TokenIds(ids=[5, bad])))
        error = await refusal(stub.Tokenize(request))
    assert error.code() is CODE.INVALID_ARGUMENT
    assert f"token id {bad}" in (error.details() or "")


async def test_models_are_listed_with_their_present_load(verifier: FakeVerifier) -> None:
    async with serving(verifier) as stub:
        (before,) = (await stub.ListModels(pb.ListModelsRequest())).models
        object.__setattr__(verifier.info, "num_sequences", 7)
        (after,) = (await stub.ListModels(pb.ListModelsRequest())).models
    assert (before.name, before.max_model_len, before.num_sequences) == ("tiny", 64, 0)
    assert after.num_sequences == 7
