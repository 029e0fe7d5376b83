"""A tritonserver that says what a test tells it to, on a real port in this process; it can die and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway.peers.tritonserver import TritonServerConfig
from slipstream.wire.tls import ServerTls

MODEL = "draft"

Say = Callable[[tuple[int, ...], int], Sequence[int]]  # prefix and how many tokens are wanted -> those that follow


class Script:
    """Knows one text, and what follows each beginning of it."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = tuple(token_ids)

    def __call__(self, prefix: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
        if self._token_ids[: len(prefix)] != prefix:
            return ()
        return self._token_ids[len(prefix) : len(prefix) + num_tokens]


class FakeTritonServer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # made without types
    def __init__(self, say: Say, tls: ServerTls | None = None) -> None:
        self.say = say
        self._tls = tls
        self.calls: list[tuple[tuple[int, ...], int]] = []
        self.num_at_once = 0  # calls that are being answered
        self.most_at_once = 0
        self.has_model = True
        self.error: grpc.StatusCode | None = None  # every call fails with it
        self.output = "output_ids"
        self.dtype: Any = np.int32
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.port = 0
        self._server = grpc.aio.server()

    @property
    def config(self) -> TritonServerConfig:
        return TritonServerConfig(address=f"127.0.0.1:{self.port}", model=MODEL)

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        address = f"127.0.0.1:{self.port}"
        if self._tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self._tls.credentials())
        await self._server.start()

    async def die(self) -> None:
        await self._server.stop(None)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ModelReadyResponse(ready=self.has_model and request.name == MODEL)

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        tensors = zip(request.inputs, request.raw_input_contents, strict=True)
        given = {tensor.name: np.frombuffer(raw, np.int32).reshape(tensor.shape) for tensor, raw in tensors}
        prefix, num_tokens = tuple(given["input_ids"][0].tolist()), int(given["request_output_len"][0, 0])
        assert given["input_lengths"].tolist() == [[len(prefix)]]
        self.calls.append((prefix, num_tokens))
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        try:
            await self.may_answer.wait()
        finally:
            self.num_at_once -= 1
        if self.error is not None:
            await context.abort(self.error, "as it was told to\nand a traceback")
        return self._answer(request, self.say(prefix, num_tokens))

    def _answer(self, request: Any, token_ids: Sequence[int]) -> Any:
        response = service_pb2.ModelInferResponse(model_name=request.model_name)
        kind = "FP32" if self.dtype is np.float32 else "INT32"
        response.outputs.add(name=self.output, datatype=kind, shape=[1, len(token_ids)])
        response.raw_output_contents.append(np.array(token_ids, self.dtype).tobytes())
        return response
