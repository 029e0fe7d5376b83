"""Choices of /v1/completions, whole and piece by piece. Knows deltas and OpenAI's JSON; no HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.completion import Delta, PromptPart
from gateway.openai.logprobs import CompletionLogprobs
from gateway.openai.reply import finish_name
from slipstream.request import FinishReason
from slipstream.text.tokenizer import Tokenizer


class CompletionReply:
    id_prefix = "cmpl"
    whole_kind = "text_completion"
    piece_kind = "text_completion"

    def __init__(self, tokenizer: Tokenizer, *, logprobs: bool, echo: bool) -> None:
        self._tokenizer = tokenizer
        self._wants_logprobs = logprobs
        self._echo = echo
        self._logprobs: dict[int, CompletionLogprobs] = {}

    def whole(self, index: int, delta: Delta) -> dict[str, Any]:
        prompt = delta.prompt if self._echo else None
        logprobs = [self._logprobs_of(index, prompt), self._logprobs_of(index, delta)]
        return {
            "index": index,
            "text": (prompt.text if prompt else "") + delta.text,
            "logprobs": _joined([one for one in logprobs if one is not None]),
            "finish_reason": finish_name(delta.finish_reason),
        }

    def pieces(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        if delta.prompt is not None and self._echo:
            yield _piece(index, delta.prompt.text, self._logprobs_of(index, delta.prompt))
        if delta.text or delta.token_ids or delta.finish_reason is not FinishReason.NONE:
            finish = finish_name(delta.finish_reason)
            yield _piece(index, delta.text, self._logprobs_of(index, delta), finish)

    def _logprobs_of(self, index: int, part: Delta | PromptPart | None) -> dict[str, Any] | None:
        if part is None or not self._wants_logprobs:
            return None
        logprobs = self._logprobs.setdefault(index, CompletionLogprobs(self._tokenizer))
        return logprobs.add(part.token_ids, part.logprobs)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not parts:
        return None
    return {name: [entry for part in parts for entry in part[name]] for name in parts[0]}


def _piece(index: int, text: str, logprobs: dict[str, Any] | None, finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
