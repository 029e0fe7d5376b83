"""Tensors of the KServe protocol, as bytes and as values. Knows the layout; knows no tensor's meaning but its type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tritonclient.grpc import service_pb2

from slipstream.errors import InvalidRequest, quoted

_LENGTH: Final = struct.Struct("<I")  # before each element of a BYTES tensor
_MAX_RANK: Final = 8  # a shape of a million sizes is no shape, and a million numbers to look at

REGION: Final = "shared_memory_region"
REGION_OFFSET: Final = "shared_memory_offset"
REGION_BYTES: Final = "shared_memory_byte_size"

ReadRegion = Callable[[str, int, int], bytes]  # region's name, offset in it, number of bytes


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of one element."""

    name: str
    datatype: str  # BYTES or BOOL
    optional: bool = False


def read_tensors(request: Any, specs: Sequence[TensorSpec], read_region: ReadRegion) -> dict[str, bytes | bool]:
    """The values given, by name. Raises InvalidRequest naming tensor and value."""
    known = {spec.name: spec for spec in specs}
    raw = iter(request.raw_input_contents)
    values: dict[str, bytes | bool] = {}
    for tensor in request.inputs:
        spec = known.get(tensor.name)
        if spec is None:
            raise InvalidRequest(f"input {quoted(tensor.name)} is not known; inputs are {', '.join(known)}")
        if tensor.name in values:
            raise InvalidRequest(f"input {quoted(tensor.name)} is given twice; give it once")
        _check_type(tensor, spec)
        values[tensor.name] = _value(tensor, raw, read_region)
    if next(raw, None) is not None:
        raise InvalidRequest(f"raw_input_contents holds {len(request.raw_input_contents)} entries, more than inputs")
    if missing := [spec.name for spec in specs if not spec.optional and spec.name not in values]:
        raise InvalidRequest(f"input {missing[0]!r} is missing; it is needed")
    return values


def bytes_tensor(values: Sequence[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(value)) + value for value in values)


def output_tensor(name: str, values: Sequence[bytes]) -> tuple[Any, bytes]:
    """A BYTES output and what belongs into raw_output_contents beside it."""
    tensor = service_pb2.ModelInferResponse.InferOutputTensor(name=name, datatype="BYTES", shape=[len(values)])
    return tensor, bytes_tensor(values)


def _check_type(tensor: Any, spec: TensorSpec) -> None:
    if tensor.datatype != spec.datatype:
        raise InvalidRequest(
            f"input {quoted(tensor.name)} has datatype {quoted(tensor.datatype)}; it must be {spec.datatype}"
        )
    if len(tensor.shape) > _MAX_RANK or any(size != 1 for size in tensor.shape):
        sizes = ", ".join(map(str, tensor.shape[:_MAX_RANK])) + ", ..." * (len(tensor.shape) > _MAX_RANK)
        raise InvalidRequest(f"input {quoted(tensor.name)} has shape [{sizes}]; it must hold one element, as [1]")


def _value(tensor: Any, raw: Any, read_region: ReadRegion) -> bytes | bool:
    if REGION in tensor.parameters:
        return _parsed(tensor, _from_region(tensor, read_region))
    if tensor.HasField("contents"):
        return _typed(tensor)
    data = next(raw, None)
    if data is None:
        raise InvalidRequest(f"input {quoted(tensor.name)} has no content, neither its own nor in raw_input_contents")
    return _parsed(tensor, data)


def _from_region(tensor: Any, read_region: ReadRegion) -> bytes:
    offset, size = (tensor.parameters[name].int64_param for name in (REGION_OFFSET, REGION_BYTES))
    return read_region(tensor.parameters[REGION].string_param, offset, size)


def _typed(tensor: Any) -> bytes | bool:
    contents = tensor.contents.bool_contents if tensor.datatype == "BOOL" else tensor.contents.bytes_contents
    if len(contents) != 1:
        raise InvalidRequest(
            f"input {quoted(tensor.name)} has {len(contents)} {tensor.datatype} contents; it must have 1"
        )
    value: bytes | bool = contents[0]
    return value


def _parsed(tensor: Any, data: bytes) -> bytes | bool:
    if tensor.datatype == "BOOL":
        if data not in (b"\0", b"\1"):
            raise InvalidRequest(
                f"input {quoted(tensor.name)} has {len(data)} bytes that are no BOOL; it must be one, 0 or 1"
            )
        return data == b"\1"
    if len(data) < _LENGTH.size or _LENGTH.unpack_from(data)[0] != len(data) - _LENGTH.size:
        raise InvalidRequest(
            f"input {quoted(tensor.name)} has {len(data)} bytes that are no BYTES element; "
            "it must be a length (4 bytes, little-endian) and so many bytes"
        )
    return data[_LENGTH.size :]
