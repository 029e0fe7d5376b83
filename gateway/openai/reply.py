"""The JSON around choices: identity, usage, and the order of a stream's pieces. Knows parts; knows no HTTP."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

from gateway.completion import Delta, Usage
from gateway.openai.choices import Part
from slipstream.request import FinishReason

_FINISH_NAMES = {FinishReason.NONE: None, FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}


def finish_name(reason: FinishReason) -> str | None:
    return _FINISH_NAMES[reason]


class ChoiceFormat(Protocol):
    """How one endpoint writes its choices."""

    id_prefix: str
    whole_kind: str
    piece_kind: str

    def whole(self, index: int, delta: Delta) -> dict[str, Any]: ...

    def pieces(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]: ...


class Reply:
    def __init__(self, choices: ChoiceFormat, *, request_id: str, model: str, num_samples: int) -> None:
        self._choices = choices
        self._num_samples = num_samples
        self._identity = {
            "id": f"{choices.id_prefix}-{request_id}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": None,
        }

    async def whole(self, parts: AsyncIterator[Part]) -> dict[str, Any]:
        deltas: dict[int, Delta] = defaultdict(Delta)
        async for part in parts:
            deltas[part.choice].append(part.delta)
        usages = [(choice, delta.usage) for choice, delta in deltas.items() if delta.usage is not None]
        return {
            **self._identity,
            "object": self._choices.whole_kind,
            "choices": [self._choices.whole(index, deltas[index]) for index in sorted(deltas)],
            "usage": total_usage(usages, self._num_samples),
        }

    async def events(self, parts: AsyncIterator[Part], *, include_usage: bool) -> AsyncGenerator[str, None]:
        """The data of each event of a stream, up to the mark of its end."""
        usages: list[tuple[int, Usage]] = []
        pending = {"usage": None} if include_usage else {}
        async for part in parts:
            for choice in self._choices.pieces(part.choice, part.delta):
                yield self._piece([choice], pending)
            if part.delta.usage is not None:
                usages.append((part.choice, part.delta.usage))
        if include_usage:
            yield self._piece([], {"usage": total_usage(usages, self._num_samples)})
        yield "[DONE]"

    def _piece(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> str:
        kind = self._choices.piece_kind
        return json.dumps({**self._identity, "object": kind, "choices": choices, **usage}, ensure_ascii=False)


def total_usage(usages: Sequence[tuple[int, Usage]], num_samples: int) -> dict[str, Any]:
    """Of all choices, as OpenAI tells it; the samples of one prompt share it."""
    prompts = {choice // num_samples: usage for choice, usage in usages}.values()
    prompt_tokens = sum(usage.prompt_tokens for usage in prompts)
    completion_tokens = sum(usage.completion_tokens for _, usage in usages)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in prompts)},
    }
