"""Every RPC of every service is sent what no client should send: it says what is wrong, and others notice nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.wire.status import number
from slipstream.wire.v1 import drafter_pb2, exchange_pb2, generation_pb2, verifier_pb2
from slipstream.wire.v1.drafter_pb2_grpc import DrafterStub
from slipstream.wire.v1.verifier_pb2_grpc import VerifierStub
from tests.chaos.load import Load, start_load
from tests.chaos.messages import changed, garbage
from tests.chaos.right_messages import right_messages
from tests.e2e.cluster import Cluster, eventually, kv_blocks_used
from tests.e2e.conftest import tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

SECONDS = 20.0  # for one call; one that takes longer hangs
MAX_MODEL_LEN = 64
MAX_SENT = 4  # messages in one stream, between the first and the last
STEP_SECONDS = 0.005
FAULTS_OF_OURS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
FAULTS_BY_NUMBER = {number(status) for status in FAULTS_OF_OURS}
NOT_FOR_CALLS = FAULTS_OF_OURS | {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
SERVERS = {"Generation": "gateway", "Verifier": "verifier", "Drafter": "drafter"}
METHODS = [
    method
    for file in (generation_pb2, verifier_pb2, drafter_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
FEW = pytest.param(40, id="few")
MANY = pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1500)], id="many")


class Target:
    """The services, and streams on the gateway that run beside everything, on a thread of their own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.said: list[str] = []
        self._channels = {name: grpc.insecure_channel(cluster.address(name)) for name in SERVERS.values()}
        self.vocabulary_hash = self._vocabulary_hash()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._load = self._wait(self._start_load())

    def end(self) -> None:
        """Nothing of all that was sent is still held."""
        self._wait(self._load.__aexit__(None, None, None))
        self._wait(eventually(self._is_free))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for channel in self._channels.values():
            channel.close()

    def call(self, method: MethodDescriptor, messages: Sequence[bytes]) -> tuple[list[Message], grpc.StatusCode]:
        """What the method answers, and how the call ends."""
        sides = ["stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming)]
        channel = self._channels[SERVERS[method.containing_service.name]]
        path = f"/{method.containing_service.full_name}/{method.name}"
        send = getattr(channel, "_".join(sides))(path, None, GetMessageClass(method.output_type).FromString)
        request = slowly(messages) if method.client_streaming else messages[0]
        answers = []
        try:
            reply = send(request, timeout=SECONDS, metadata=(("authorization", "Bearer both"),))
            for answer in reply if method.server_streaming else [reply]:
                answers.append(answer)
        except grpc.RpcError as error:
            return answers, error.code()
        return answers, grpc.StatusCode.OK

    def check_others(self) -> None:
        """The streams beside have gone on and read right; nothing is left of what was sent."""
        self._wait(self._load.each_once_more(60.0))
        assert self._load.failures == []
        assert all(self.cluster.alive(name) for name in SERVERS.values())

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(90.0)

    async def _start_load(self) -> Load:
        async with self.cluster.client("none") as calm:
            load = await start_load(calm, lambda: self.cluster.client("both"), MAX_MODEL_LEN // 2, num_streams=2)
        return await load.__aenter__()

    async def _is_free(self) -> bool:
        used = await kv_blocks_used(self.cluster.address("verifier"))
        return used == await kv_blocks_used(self.cluster.address("drafter"), DrafterStub) == 0

    def _vocabulary_hash(self) -> str:
        stub = VerifierStub(self._channels["verifier"])
        return str(stub.GetModel(exchange_pb2.GetModelRequest(), timeout=SECONDS).vocabulary_hash)


def slowly(messages: Sequence[bytes]) -> Iterator[bytes]:
    """With time for a step after each; a service has nothing to do for a stream that has ended."""
    for message in messages:
        yield message
        time.sleep(STEP_SECONDS)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """What the services say."""
    return []


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    model = make_checkpoint(folder / "target", logit_std=3.0)
    options = ("--max-model-len", str(MAX_MODEL_LEN), "--kv-memory-mib", "16")
    with Cluster(folder, lambda name, line: lines.append(f"{name}: {line}")) as cluster:
        cluster.verifier(model, *options)
        cluster.drafter(make_similar_checkpoint(model, folder / "draft"), *options)
        cluster.gateway(tenants("coupled", max_wait_ms=5))
        target = Target(cluster)
        yield target
        target.end()


@pytest.mark.parametrize("num_examples", [FEW, MANY])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name.removeprefix("slipstream.v1."))
def test_no_message_is_a_fault_of_ours_or_harms_another_stream(
    target: Target, lines: list[str], method: MethodDescriptor, num_examples: int
) -> None:
    originals = right_messages(method, target.vocabulary_hash)
    right = changed(originals).map(lambda message: message.SerializeToString())
    first = [originals[0].SerializeToString()] if method.client_streaming else []
    more = st.lists(right, max_size=MAX_SENT) if method.client_streaming else st.just([])

    @settings(max_examples=num_examples, deadline=None, database=None, derandomize=True)
    @given(more=more, last=st.one_of(*[right] * 9, garbage(originals)))
    def fuzz(more: list[bytes], last: bytes) -> None:
        answers, status = target.call(method, [*first, *more, last])
        assert status not in NOT_FOR_CALLS
        assert not {error_code(answer) for answer in answers} & FAULTS_BY_NUMBER

    fuzz()
    target.check_others()
    assert [line for line in lines if "Traceback" in line or "never retrieved" in line] == []


def error_code(answer: Any) -> int:
    return int(answer.error.code) if "error" in answer.DESCRIPTOR.fields_by_name else 0
