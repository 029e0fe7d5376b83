"""The KServe service over real gRPC, by tritonclient's own asynchronous client, in front of a scripted verifier."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import InferInput, service_pb2_grpc
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, shared_memory

from gateway.kserve.servicer import KServeServicer
from gateway.policy.tenants import Tenant
from slipstream.wire.status import StatusInterceptor
from tests.gateway.fakes import TOKENIZER, FakeVerifier, eventually, running_gateway
from tests.gateway.kserve.infer_requests import tensor

TENANT = Tenant(name="one", key_sha256=(hashlib.sha256(b"one").hexdigest(),), proposers=("none",))
KEY = {"authorization": "Bearer one"}


@asynccontextmanager
async def serving(verifier: FakeVerifier) -> AsyncIterator[Any]:
    """A client of a gateway in front of the verifier."""
    async with running_gateway([verifier], (), (TENANT,)) as gateway:
        server = grpc.aio.server(interceptors=(StatusInterceptor(),))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(KServeServicer(gateway), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with InferenceServerClient(f"127.0.0.1:{port}") as client:
            yield client
        await server.stop(None)


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier([])


async def finish(verifier: FakeVerifier, text: str) -> None:
    await eventually(lambda: verifier.opens)
    request = verifier.opens[-1]
    verifier.finish(request.sequence_id, len(request.token_ids), TOKENIZER.encode(text))


async def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as refused:
        await asyncio.wait_for(call, 5)
    return str(refused.value.status()), refused.value.message()


async def test_the_server_says_what_it_is_and_whether_it_is_ready_without_a_key(verifier: FakeVerifier) -> None:
    async with serving(verifier) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        metadata = await client.get_server_metadata(as_json=True)
        assert metadata["name"] == "slipstream"
        assert "system_shared_memory" in metadata["extensions"]
        await verifier.die()
        async with asyncio.timeout(5):
            while await client.is_server_ready():
                await asyncio.sleep(0.01)
        assert await client.is_server_live()


async def test_a_model_is_described(verifier: FakeVerifier) -> None:
    async with serving(verifier) as client:
        assert await client.is_model_ready("tiny", headers=KEY)
        assert not await client.is_model_ready("other", headers=KEY)
        assert not await client.is_model_ready("tiny", "2", headers=KEY)
        assert (await client.get_model_metadata("tiny", headers=KEY)).inputs[0].name == "text_input"
        assert (await client.get_model_config("tiny", headers=KEY)).config.name == "tiny"
        index = await client.get_model_repository_index(headers=KEY)
        assert [one.name for one in index.models] == ["tiny"]
        status, text = await refusal(client.get_model_metadata("other", headers=KEY))
    assert status == "StatusCode.NOT_FOUND"
    assert "model 'other' is not served here" in text


async def test_an_inference_is_answered_and_counted(verifier: FakeVerifier) -> None:
    async with serving(verifier) as client:
        call = asyncio.ensure_future(client.infer("tiny", [tensor("text_input", "ask")], request_id="7", headers=KEY))
        await finish(verifier, "ed")
        result = await call
        statistics = await client.get_inference_statistics("tiny", headers=KEY)
        of_all = await client.get_inference_statistics(headers=KEY)
    assert list(result.as_numpy("text_output")) == [b"asked"]
    assert (result.get_response().id, verifier.opens[0].request_id) == ("7", "7")
    assert statistics.model_stats[0].inference_count == of_all.model_stats[0].inference_count == 1


async def test_a_stream_tells_pieces_and_failures_by_id(verifier: FakeVerifier) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for request_id, settings in (("bad", '{"top_p": 3}'), ("good", "{}")):
            inputs = [tensor("text_input", "ask"), tensor("stream", True), tensor("sampling_parameters", settings)]
            yield {"model_name": "tiny", "inputs": inputs, "request_id": request_id}

    async with serving(verifier) as client:
        writing = asyncio.create_task(finish(verifier, "ed"))
        answers = [one async for one in client.stream_infer(requests(), headers=KEY)]
        await writing
    failures = [error.message() for _, error in answers if error]
    texts = [result.as_numpy("text_output")[0] for result, error in answers if not error]
    assert failures == ["top_p is 3.0; it must be in (0, 1]"]
    assert b"".join(texts) == b"ed"


async def test_a_stream_that_is_cancelled_frees_what_it_held(verifier: FakeVerifier) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "tiny", "inputs": [tensor("text_input", "ask"), tensor("stream", True)]}
        await asyncio.Event().wait()

    async with serving(verifier) as client:
        answers = client.stream_infer(requests(), headers=KEY)
        await eventually(lambda: verifier.opens)
        answers.cancel()
        await eventually(lambda: verifier.closes)


async def test_text_in_shared_memory_is_read_where_it_lies(verifier: FakeVerifier) -> None:
    data = serialize_byte_tensor(np.array([b"ask"], dtype=np.object_)).item()
    handle = shared_memory.create_shared_memory_region("mine", f"/slipstream_test_{id(verifier)}", 64)
    try:
        shared_memory.set_shared_memory_region(handle, [np.frombuffer(data, dtype=np.uint8)])
        async with serving(verifier) as client:
            await client.register_system_shared_memory("mine", handle._shm_key, 64, headers=KEY)
            status = await client.get_system_shared_memory_status(headers=KEY)
            text = InferInput("text_input", [1], "BYTES").set_shared_memory("mine", len(data))
            call = asyncio.ensure_future(client.infer("tiny", [text], headers=KEY))
            await finish(verifier, "ed")
            result = await call
            await client.unregister_system_shared_memory("mine", headers=KEY)
            refused = await refusal(client.infer("tiny", [text], headers=KEY))
    finally:
        shared_memory.destroy_shared_memory_region(handle)
    assert (status.regions["mine"].key, status.regions["mine"].byte_size) == (handle._shm_key, 64)
    assert list(result.as_numpy("text_output")) == [b"asked"]
    assert refused == (
        "StatusCode.INVALID_ARGUMENT",
        "region 'mine' is not registered; SystemSharedMemoryRegister does it",
    )


async def test_without_a_key_nothing_is_told_or_done(verifier: FakeVerifier) -> None:
    async with serving(verifier) as client:
        for call in (
            client.infer("tiny", [tensor("text_input", "a")]),
            client.is_model_ready("tiny"),
            client.get_model_metadata("tiny"),
            client.get_model_config("tiny"),
            client.get_inference_statistics(),
            client.get_model_repository_index(),
            client.get_system_shared_memory_status(),
            client.register_system_shared_memory("a", "/a", 1),
            client.unregister_system_shared_memory("a"),
        ):
            assert (await refusal(call))[0] == "StatusCode.UNAUTHENTICATED"
    assert verifier.opens == []


async def test_what_a_gateway_does_not_do_is_unimplemented(verifier: FakeVerifier) -> None:
    async with serving(verifier) as client:
        for call in (
            client.load_model("tiny"),
            client.unload_model("tiny"),
            client.get_trace_settings("tiny"),
            client.get_log_settings(),
            client.get_cuda_shared_memory_status(),
        ):
            assert (await refusal(call))[0] == "StatusCode.UNIMPLEMENTED"
