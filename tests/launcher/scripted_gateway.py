"""A gateway that says the same to everyone, for tests of those who call one. Knows the API; no services."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from slipstream.wire.v1 import exchange_pb2
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

MESSAGES = (
    pb.GenerateResponse(text="Hello ", token_ids=[1], drafted=[False], text_lengths=[6]),
    pb.GenerateResponse(
        text="you",
        token_ids=[2, 3],
        drafted=[True, False],
        text_lengths=[2, 1],
        finish_reason=exchange_pb2.FINISH_REASON_STOP,
        usage=pb.Usage(completion_tokens=3, num_passes=2, num_drafts=1, num_draft_tokens=2, accepted_tokens=1),
        timings=pb.Timings(first_token_us=1000, total_us=3000),
    ),
)


class ScriptedGateway(rpc.GenerationServicer):
    """Refuses prompts of "refuse"; answers those of "endless" until they are cancelled."""

    def __init__(self) -> None:
        self.requests: list[pb.GenerateRequest] = []
        self.most_at_once = 0
        self.cancelled = threading.Event()
        self._at_once = 0
        self._lock = threading.Lock()

    def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        return pb.ListModelsResponse()

    def Generate(self, request: pb.GenerateRequest, context: Any) -> Iterator[pb.GenerateResponse]:
        with self._lock:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        last = request.prompt.chat.messages[-1].content if request.prompt.HasField("chat") else request.prompt.text
        if last == "refuse":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room now")
        if last == "endless":
            context.add_callback(self.cancelled.set)
            yield MESSAGES[0]
            self.cancelled.wait(10)
        else:
            yield from MESSAGES
        with self._lock:
            self._at_once -= 1


@contextmanager
def serving() -> Iterator[tuple[ScriptedGateway, str]]:
    gateway, checks = ScriptedGateway(), health.HealthServicer()
    server = grpc.server(futures.ThreadPoolExecutor(8))
    rpc.add_GenerationServicer_to_server(gateway, server)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    checks.set("slipstream.v1.Generation", health_pb2.HealthCheckResponse.SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield gateway, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait(5)
