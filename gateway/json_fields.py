"""JSON objects read strictly: types as declared, no field unknown. Knows how mistakes read; no field by name."""

from __future__ import annotations

import asyncio
import reprlib
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from gateway.request_size import check_json
from slipstream.errors import InvalidRequest

LONG_BODY_BYTES = 100_000  # parsed in another thread, so that other requests go on meanwhile


class JsonFields(BaseModel):
    """What cannot be done is refused by name rather than left out."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class InvalidField(InvalidRequest):
    """A mistake in one field of a JSON document."""

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


FieldsT = TypeVar("FieldsT", bound=JsonFields)


async def read_json(kind: type[FieldsT], body: bytes) -> FieldsT:
    """Raises InvalidRequest naming field and value."""
    if len(body) > LONG_BODY_BYTES:
        return await asyncio.to_thread(parse_json, kind, body)
    return parse_json(kind, body)


def parse_json(kind: type[FieldsT], body: bytes | str, *, strict: bool = True, name: str = "the body") -> FieldsT:
    """Not strict, a number may be written as a string. `name`: of the document, for errors."""
    if len(body) > LONG_BODY_BYTES:
        check_json(body if isinstance(body, bytes) else body.encode(), name)
    try:
        return kind.model_validate_json(body, strict=strict)
    except ValidationError as error:
        raise _in_our_words(error.errors(include_url=False)[0], name) from error


def _in_our_words(error: ErrorDetails, name: str) -> InvalidRequest:
    field = ".".join(str(part) for part in error["loc"])
    value = reprlib.repr(error.get("input"))
    match error["type"]:
        case "json_invalid":
            return InvalidRequest(f"{name} is no JSON: {_reason(error)}")
        case "extra_forbidden":
            return InvalidField(f"{field} is {value}; there is no such field here, leave it out", field)
        case "missing":
            return InvalidField(f"{field} is missing; it is needed", field)
        case _ if not field:
            return InvalidRequest(f"{name} is {value}; it must be a JSON object")
        case _:
            return InvalidField(f"{field} is {value}; {_reason(error)}", field)


def _reason(error: ErrorDetails) -> str:
    context: dict[str, Any] = error.get("ctx", {})
    text = str(context["error"]) if "error" in context else error["msg"]
    return text.replace("Input should be", "it must be")
