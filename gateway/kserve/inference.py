"""Runs what KServe requests ask and makes responses of it. Knows the gateway and messages; knows no gRPC."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from tritonclient.grpc import service_pb2

from gateway.completion import Delta
from gateway.gateway import Gateway, Running
from gateway.kserve import model
from gateway.kserve.infer_request import InferRequest
from gateway.kserve.statistics import Statistics
from gateway.kserve.tensors import output_tensor
from gateway.policy.tenants import Tenant
from slipstream.errors import InvalidRequest
from slipstream.request import FinishReason

FINAL: Final = "triton_final_response"


class Inference:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.statistics = Statistics()

    async def once(self, tenant: Tenant, request: InferRequest, deadline: float | None) -> Any:
        """The one response of a request that wants no stream."""
        if request.stream:
            raise InvalidRequest(f"{model.STREAM} is True; ModelInfer has one response, ask by ModelStreamInfer")
        async with aclosing(self.responses(tenant, request, deadline)) as responses:
            response = await anext(responses)
        del response.parameters[FINAL]  # says nothing where there is but one
        return response

    async def responses(
        self, tenant: Tenant, request: InferRequest, deadline: float | None
    ) -> AsyncGenerator[Any, None]:
        """With `stream` one for each piece of the text, else one; the last says that it is."""
        name, began = self._gateway.catalog.find(request.completion.model).info.name, time.monotonic()
        deadline = _earlier(deadline, request.timeout_seconds, began)
        try:
            async with self._gateway.complete(tenant, request.completion, deadline) as running:
                if request.stream:
                    async for delta in running.deltas:
                        if delta.text or delta.finish_reason is not FinishReason.NONE:  # else a part of a character
                            yield self._response(name, request, [delta])
                else:
                    yield self._response(name, request, await _samples(running))
        except Exception:
            self.statistics.record_failed(name, time.monotonic() - began)
            raise

    def _response(self, name: str, request: InferRequest, samples: Sequence[Delta]) -> Any:
        is_final = samples[0].finish_reason is not FinishReason.NONE
        if is_final and samples[0].timings is not None:
            self.statistics.record_done(name, samples[0].timings)
        tensor, raw = output_tensor(model.TEXT_OUTPUT, [(request.prefix + one.text).encode() for one in samples])
        return service_pb2.ModelInferResponse(
            model_name=name,
            model_version=model.VERSION,
            id=request.id,
            parameters={FINAL: service_pb2.InferParameter(bool_param=is_final)},
            outputs=[tensor],
            raw_output_contents=[raw],
        )


async def _samples(running: Running) -> list[Delta]:
    """The whole of each."""
    samples: dict[int, Delta] = defaultdict(Delta)
    async for delta in running.deltas:
        samples[delta.index].append(delta)
    return [samples[index] for index in sorted(samples)]


def _earlier(deadline: float | None, seconds: float | None, now: float) -> float | None:
    """Both by time.monotonic(), if there are any."""
    if seconds is None:
        return deadline
    return now + seconds if deadline is None else min(deadline, now + seconds)
