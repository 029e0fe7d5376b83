"""From ModelInferRequest to a completion. Knows tensors and parameters by name; ranges are checked elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.completion import Completion
from gateway.json_fields import parse_json
from gateway.kserve import model
from gateway.kserve.tensors import ReadRegion, read_tensors
from gateway.sampling_fields import SamplingFields
from slipstream.errors import InvalidRequest, quoted

TIMEOUT: Final = "timeout"  # microseconds
_KNOWN_PARAMETERS: Final = (TIMEOUT, "triton_enable_empty_final_response")


@dataclass(frozen=True, kw_only=True, slots=True)
class InferRequest:
    id: str
    completion: Completion
    stream: bool
    prefix: str  # what stands before the output in a whole answer
    timeout_seconds: float | None


def read_infer_request(request: Any, read_region: ReadRegion) -> InferRequest:
    """Raises InvalidRequest naming tensor or parameter, and value."""
    model.check_version(request.model_version)
    _check_parameters(request)
    _check_outputs(request)
    values = read_tensors(request, model.INPUTS, read_region)
    prompt = _text(model.TEXT_INPUT, values)
    stream = bool(values.get(model.STREAM, False))
    completion = Completion(prompt=prompt, model=request.model_name, request_id=request.id, **_sampling(values))
    if stream and completion.n > 1:
        raise InvalidRequest(f"n is {completion.n}; with `stream` it must be 1")
    return InferRequest(
        id=request.id,
        completion=completion,
        stream=stream,
        prefix=prompt if _includes_input(values, stream) else "",
        timeout_seconds=_timeout(request),
    )


def _sampling(values: Mapping[str, bytes | bool]) -> dict[str, Any]:
    """Numbers may be written as strings, as clients of other backends do."""
    if model.SAMPLING not in values:
        return {}
    text = _text(model.SAMPLING, values) or "{}"
    return parse_json(SamplingFields, text, strict=False, name=model.SAMPLING).sampling()


def _text(name: str, values: Mapping[str, bytes | bool]) -> str:
    value = values[name]
    assert isinstance(value, bytes)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"input {quoted(name)} is not UTF-8: {error.reason} at byte {error.start}") from error


def _includes_input(values: Mapping[str, bytes | bool], stream: bool) -> bool:
    """A whole answer begins with the prompt unless told otherwise; a stream never does."""
    exclude = values.get(model.EXCLUDE_INPUT, stream)
    if stream and not exclude:
        raise InvalidRequest(f"{model.EXCLUDE_INPUT} is False; with `stream` it must be True")
    return not exclude


def _check_parameters(request: Any) -> None:
    for name in request.parameters:
        if name not in _KNOWN_PARAMETERS:
            raise InvalidRequest(f"parameter {quoted(name)} is not known; known are {', '.join(_KNOWN_PARAMETERS)}")


def _check_outputs(request: Any) -> None:
    for output in request.outputs:
        if output.name != model.TEXT_OUTPUT:
            raise InvalidRequest(f"output {quoted(output.name)} is not known; it must be {model.TEXT_OUTPUT}")
        if output.parameters:
            name = next(iter(output.parameters))
            raise InvalidRequest(
                f"output parameter {quoted(name)} is not served; outputs come in the response as they are"
            )


def _timeout(request: Any) -> float | None:
    if TIMEOUT not in request.parameters:
        return None
    microseconds = request.parameters[TIMEOUT].int64_param
    if microseconds < 0:
        raise InvalidRequest(f"timeout is {microseconds}; it must be >= 0 microseconds (0 is none)")
    return microseconds * 1e-6 if microseconds else None
