"""ModelInferRequests as tests need them, by the client's own classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tritonclient.grpc import InferInput, service_pb2


def tensor(name: str, value: str | bytes | bool) -> InferInput:
    """An input of one element."""
    is_bool = isinstance(value, bool)
    found = InferInput(name, [1], "BOOL" if is_bool else "BYTES")
    element = value.encode() if isinstance(value, str) else value
    return found.set_data_from_numpy(np.array([element], dtype=bool if is_bool else np.object_))


def infer_request(model: str = "tiny", **values: str | bytes | bool) -> Any:
    """As the client sends it: contents apart from the tensors."""
    inputs = [tensor(name, value) for name, value in values.items()]
    return service_pb2.ModelInferRequest(
        model_name=model,
        id="r1",
        inputs=[one._get_tensor() for one in inputs],
        raw_input_contents=[one._get_content() for one in inputs],
    )
