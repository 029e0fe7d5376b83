"""What chats and plain completions may both ask over HTTP. Knows OpenAI's field names; ranges are checked elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from gateway.completion import Completion
from gateway.json_fields import JsonFields
from gateway.sampling_fields import SamplingFields


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request body in the gateway's words."""

    completions: tuple[Completion, ...]  # one for each prompt
    stream: bool
    include_usage: bool  # in a stream; a whole reply always has it


class StreamOptions(JsonFields):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class RequestFields(SamplingFields):
    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # These change no answer; OpenAI's clients may send them.
    user: Any = None
    metadata: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    service_tier: Literal["auto", "default"] | None = None
    store: Literal[False] | None = None

    @field_validator("stream_options")
    @classmethod
    def _only_with_stream(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None and not info.data.get("stream"):
            raise ValueError("it needs `stream` to be true")
        return value

    def asked(self, *completions: Completion) -> Asked:
        include_usage = self.stream_options is not None and bool(self.stream_options.include_usage)
        return Asked(completions=completions, stream=bool(self.stream), include_usage=include_usage)
