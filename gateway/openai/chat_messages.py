"""The messages of a chat as OpenAI's clients write them. Knows roles, text parts and tool calls; no other field."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from gateway.json_fields import JsonFields
from slipstream.text.chat_template import ChatMessage


class TextPart(JsonFields):
    type: Literal["text"]
    text: str


class CalledFunction(JsonFields):
    name: str
    arguments: str  # JSON, as the model wrote it


class ToolCall(JsonFields):
    id: str
    type: Literal["function"]
    function: CalledFunction
    index: int | None = None  # in what a stream told


def _as_parts(value: Any) -> Any:
    """A text is one part, null is none."""
    if value is None:
        return []
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class MessageFields(JsonFields):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[TextPart], BeforeValidator(_as_parts)] = []  # noqa: RUF012 -- pydantic copies it
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    # An answer of ours or OpenAI's may be sent back as it came.
    refusal: None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

    def message(self) -> ChatMessage:
        role = "system" if self.role == "developer" else self.role  # templates know no other word for it
        return ChatMessage(role, "\n".join(part.text for part in self.content), self._details())

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = self.model_dump(
            include={"name", "tool_call_id", "reasoning_content"}, exclude_none=True
        )
        if self.tool_calls:
            details["tool_calls"] = [_for_template(call) for call in self.tool_calls]
        return details


def _for_template(call: ToolCall) -> dict[str, Any]:
    """Templates write arguments out themselves, so they want them as values."""
    try:
        arguments = json.loads(call.function.arguments)
    except ValueError:
        arguments = call.function.arguments
    return {"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": arguments}}
