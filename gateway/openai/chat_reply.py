"""Choices of /v1/chat/completions, whole and piece by piece. Knows deltas and OpenAI's JSON; no HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gateway.completion import Delta
from gateway.openai.answers import AnswerReader, Call, MakeReader, PlainText
from gateway.openai.logprobs import chat_logprobs
from gateway.openai.reply import finish_name
from slipstream.request import FinishReason
from slipstream.text.tokenizer import Tokenizer


@dataclass(slots=True)
class _Choice:
    """How far the stream of one choice has come."""

    reader: AnswerReader
    num_calls: int = 0


class ChatReply:
    id_prefix = "chatcmpl"
    whole_kind = "chat.completion"
    piece_kind = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, make_reader: MakeReader = PlainText) -> None:
        self._tokenizer = tokenizer
        self._make_reader = make_reader
        self._choices: dict[int, _Choice] = {}

    def whole(self, index: int, delta: Delta) -> dict[str, Any]:
        reader = self._make_reader()
        parts = [*reader.feed(delta.text), *reader.finish()]
        text = "".join(one for one in parts if isinstance(one, str))
        calls = [_tool_call(one) for one in parts if isinstance(one, Call)]
        message = {"content": text.strip() or None, "tool_calls": calls} if calls else {"content": text}
        return {
            "index": index,
            "message": {"role": "assistant", "refusal": None} | message,
            "logprobs": self._logprobs(delta),
            "finish_reason": _finish(delta.finish_reason, reader, len(calls)),
        }

    def pieces(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(self._make_reader())
            yield _piece(index, {"role": "assistant", "content": ""})
        is_last = delta.finish_reason is not FinishReason.NONE
        parts = [*choice.reader.feed(delta.text), *(choice.reader.finish() if is_last else ())]
        logprobs = self._logprobs(delta)
        for content in _contents(parts, choice) or ([{"content": ""}] if logprobs else []):
            yield _piece(index, content, logprobs=logprobs)
            logprobs = None  # once, with the first
        if is_last:
            yield _piece(index, {}, finish=_finish(delta.finish_reason, choice.reader, choice.num_calls))

    def _logprobs(self, delta: Delta) -> dict[str, Any] | None:
        return chat_logprobs(self._tokenizer, delta.token_ids, delta.logprobs)


def _contents(parts: Iterable[str | Call], choice: _Choice) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    for one in parts:
        if isinstance(one, str):
            contents.append({"content": one})
        else:
            contents.append({"tool_calls": [{"index": choice.num_calls} | _tool_call(one)]})
            choice.num_calls += 1
    return contents


def _tool_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


def _finish(reason: FinishReason, reader: AnswerReader, num_calls: int) -> str | None:
    by_calls = num_calls > 0 and reader.ends_with_calls and reason is FinishReason.STOP
    return "tool_calls" if by_calls else finish_name(reason)


def _piece(index: int, delta: dict[str, Any], *, logprobs: Any = None, finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
