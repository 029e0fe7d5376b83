"""Tensors of one element, read from wherever a client may put them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from gateway.kserve.tensors import TensorSpec, bytes_tensor, output_tensor, read_tensors
from slipstream.errors import InvalidRequest
from tests.gateway.kserve.infer_requests import infer_request

SPECS = (TensorSpec("text", "BYTES"), TensorSpec("flag", "BOOL", optional=True))


def no_region(name: str, offset: int, num_bytes: int) -> bytes:
    raise AssertionError("no region is asked for")


def read(request: Any) -> dict[str, bytes | bool]:
    return read_tensors(request, SPECS, no_region)


def typed(**contents: Any) -> Any:
    input_tensor = service_pb2.ModelInferRequest.InferInputTensor(name="text", datatype="BYTES", shape=[1])
    input_tensor.contents.CopyFrom(service_pb2.InferTensorContents(**contents))
    return service_pb2.ModelInferRequest(inputs=[input_tensor])


def test_raw_contents_belong_to_the_tensors_in_order() -> None:
    assert read(infer_request(flag=True, text="é")) == {"flag": True, "text": "é".encode()}
    assert read(infer_request(text="")) == {"text": b""}


def test_a_tensor_may_carry_its_own_contents() -> None:
    assert read(typed(bytes_contents=[b"a"])) == {"text": b"a"}


def test_a_tensor_may_lie_in_a_region() -> None:
    request = infer_request(text="in the region", flag=True)
    data = request.raw_input_contents.pop(0)
    parameters = request.inputs[0].parameters
    parameters["shared_memory_region"].string_param = "mine"
    parameters["shared_memory_offset"].int64_param = 8
    parameters["shared_memory_byte_size"].int64_param = len(data)
    asked = []

    def region(*where: Any) -> bytes:
        asked.append(where)
        return bytes(data)

    assert read_tensors(request, SPECS, region) == {"text": b"in the region", "flag": True}
    assert asked == [("mine", 8, len(data))]


def test_outputs_are_what_the_client_reads() -> None:
    values = [b"", "é".encode(), b"abc"]
    tensor, raw = output_tensor("out", values)
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("out", "BYTES", [3])
    assert list(deserialize_bytes_tensor(raw)) == values
    assert bytes_tensor(values) == serialize_byte_tensor(np.array(values, dtype=np.object_)).item()


def altered(**fields: Any) -> Any:
    request = infer_request(text="a")
    for name, value in fields.items():
        if name == "raw":
            request.raw_input_contents[:] = value
        elif name == "shape":
            request.inputs[0].shape[:] = value
        else:
            setattr(request.inputs[0], name, value)
    return request


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (infer_request(), "input 'text' is missing"),
        (infer_request(text="a", odd="b"), "input 'odd' is not known; inputs are text, flag"),
        (infer_request(text=True), "input 'text' has datatype 'BOOL'; it must be BYTES"),
        (altered(shape=[2]), r"input 'text' has shape \[2\]; it must hold one element"),
        (altered(shape=[-1, -1]), r"input 'text' has shape \[-1, -1\]"),
        (altered(shape=[1] * 100_000), r"input 'text' has shape \[1, 1, 1, 1, 1, 1, 1, 1, ...\]"),
        (altered(shape=[1 << 62] * 100_000), r"input 'text' has shape \[4611686018427387904, .*, ...\]"),
        (altered(raw=[]), "input 'text' has no content"),
        (altered(raw=[b"\1\0\0\0a", b"b"]), "raw_input_contents holds 2 entries, more than inputs"),
        (altered(raw=[b"\1\0"]), "input 'text' has 2 bytes that are no BYTES element"),
        (altered(raw=[b"\xff\xff\xff\xffa"]), "input 'text' has 5 bytes that are no BYTES element"),
        (altered(raw=[b"\0\0\0\0a"]), "input 'text' has 5 bytes that are no BYTES element"),
        (typed(bytes_contents=[b"a", b"b"]), "input 'text' has 2 BYTES contents; it must have 1"),
        (typed(int_contents=[1]), "input 'text' has 0 BYTES contents"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_named(request_: Any, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(request_)


def test_a_tensor_given_twice_is_named() -> None:
    request = infer_request(text="a")
    request.inputs.append(request.inputs[0])
    request.raw_input_contents.append(request.raw_input_contents[0])
    with pytest.raises(InvalidRequest, match="input 'text' is given twice"):
        read(request)


def test_a_bool_is_one_byte_of_two() -> None:
    request = infer_request(text="a", flag=True)
    request.raw_input_contents[1] = b"\2"
    with pytest.raises(InvalidRequest, match="input 'flag' has 1 bytes that are no BOOL"):
        read(request)
