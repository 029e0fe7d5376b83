"""The body of /v1/chat/completions. Knows its fields; knows no reply."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.completion import Completion
from gateway.json_fields import InvalidField
from gateway.openai.chat_messages import MessageFields
from gateway.openai.request_fields import Asked, RequestFields
from gateway.openai.response_format import ResponseFormat, grammar_of
from gateway.openai.tools import Choice, Tool, forced_grammar
from slipstream.request import MAX_TOP_LOGPROBS


class ChatFields(RequestFields):
    messages: list[MessageFields]
    max_completion_tokens: int | None = None  # the newer name of max_tokens
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[Literal["text"]] | None = None

    def read(self) -> Asked:
        """Raises InvalidRequest."""
        return self.asked(
            Completion(
                prompt=tuple(message.message() for message in self.messages),
                model=self.model,
                tools=self._offered(),
                **self._settings(),
            )
        )

    def _settings(self) -> dict[str, Any]:
        settings = self.sampling()
        if self.max_completion_tokens is not None:
            if self.max_tokens not in (None, self.max_completion_tokens):
                raise InvalidField("max_tokens and max_completion_tokens differ; give one of them", "max_tokens")
            settings["max_tokens"] = self.max_completion_tokens
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidField(f"top_logprobs is {self.top_logprobs}; it needs `logprobs` to be true", "top_logprobs")
        settings |= {"logprobs": bool(self.logprobs), "num_top_logprobs": self.top_logprobs or 0}
        return settings | self._form(settings.get("grammar") is not None)

    def _form(self, has_grammar: bool) -> dict[str, Any]:
        forced = forced_grammar(self.tools or [], self.tool_choice)
        grammar = grammar_of(self.response_format)
        if (forced is not None) + (grammar is not None) + has_grammar > 1:
            raise InvalidField("more than one of response_format, tool_choice and grammar shape the output; give one",
                               "response_format")  # fmt: skip
        found = forced or grammar
        return {"grammar": found} if found is not None else {}

    def _offered(self) -> tuple[dict[str, Any], ...]:
        if self.tool_choice == "none":
            return ()
        return tuple(tool.model_dump(exclude_unset=True) for tool in self.tools or ())
