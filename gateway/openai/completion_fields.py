"""The body of /v1/completions. Knows its fields; knows no reply."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from gateway.completion import Completion
from gateway.json_fields import InvalidField
from gateway.openai.request_fields import Asked, RequestFields
from slipstream.request import MAX_TOP_LOGPROBS

DEFAULT_MAX_TOKENS: Final = 16  # as OpenAI has it
MAX_PROMPTS: Final = 128

_PlainPrompt = str | tuple[int, ...]


def _as_prompts(value: Any) -> tuple[_PlainPrompt, ...]:
    if isinstance(value, str) or (isinstance(value, list) and value and _is_token_ids(value)):
        value = [value]
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PROMPTS or not all(map(_is_prompt, value)):
        raise ValueError(f"it must be a text, a list of token ids, or a list of 1..{MAX_PROMPTS} of these")
    return tuple(prompt if isinstance(prompt, str) else tuple(prompt) for prompt in value)


def _is_prompt(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and _is_token_ids(value))


def _is_token_ids(value: list[Any]) -> bool:
    return all(type(token_id) is int for token_id in value)  # true and false are ints, too


class CompletionFields(RequestFields):
    prompt: Annotated[tuple[_PlainPrompt, ...], BeforeValidator(_as_prompts)]
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = (
        None  # how many of the likeliest tokens beside each
    )
    echo: bool | None = None
    best_of: int | None = None
    suffix: Literal[""] | None = None

    def read(self) -> Asked:
        """Raises InvalidRequest."""
        num_samples = self.n or 1
        if self.best_of not in (None, num_samples):  # samples are not ranked here
            raise InvalidField(f"best_of is {self.best_of}; it must be {num_samples}, n", "best_of")
        settings = {"max_tokens": DEFAULT_MAX_TOKENS} | self.sampling() | self._logprobs()
        prompts = self.prompt
        return self.asked(*(Completion(prompt=p, model=self.model, echo=bool(self.echo), **settings) for p in prompts))

    def _logprobs(self) -> dict[str, Any]:
        if self.logprobs is None:
            return {}
        return {"logprobs": True, "num_top_logprobs": self.logprobs, "prompt_logprobs": bool(self.echo)}
