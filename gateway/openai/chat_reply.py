"""Choices of /v1/chat/completions, whole and piece by piece. Knows deltas and OpenAI's JSON; no HTTP."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from gateway.completion import Delta
from gateway.openai.logprobs import chat_logprobs
from gateway.openai.reply import finish_name
from gateway.openai.tools import Choice, parsed_call
from slipstream.request import FinishReason
from slipstream.text.tokenizer import Tokenizer


class ChatReply:
    """With a call demanded the output is that call; otherwise it is text, whatever the model meant by it."""

    id_prefix = "chatcmpl"
    whole_kind = "chat.completion"
    piece_kind = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, tool_choice: Choice | None = None) -> None:
        self._tokenizer = tokenizer
        self._tool_choice = tool_choice
        self._demanded = tool_choice not in (None, "none", "auto")
        self._begun: set[int] = set()
        self._texts: dict[int, str] = defaultdict(str)  # of calls: told when whole

    def whole(self, index: int, delta: Delta) -> dict[str, Any]:
        message, finish = self._message(delta.text, delta.finish_reason)
        return {
            "index": index,
            "message": {"role": "assistant", "refusal": None} | message,
            "logprobs": self._logprobs(delta),
            "finish_reason": finish,
        }

    def pieces(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        if index not in self._begun:
            self._begun.add(index)
            yield _piece(index, {"role": "assistant", "content": None if self._demanded else ""})
        if self._demanded:
            self._texts[index] += delta.text
        elif delta.text or delta.logprobs is not None:
            yield _piece(index, {"content": delta.text}, logprobs=self._logprobs(delta))
        if delta.finish_reason is not FinishReason.NONE:
            yield self._last_piece(index, delta)

    def _last_piece(self, index: int, delta: Delta) -> dict[str, Any]:
        if not self._demanded:
            return _piece(index, {}, finish=finish_name(delta.finish_reason))
        message, finish = self._message(self._texts.pop(index), delta.finish_reason)
        calls = [{"index": number} | call for number, call in enumerate(message.get("tool_calls", ()))]
        return _piece(index, message | ({"tool_calls": calls} if calls else {}), finish=finish)

    def _message(self, text: str, reason: FinishReason) -> tuple[dict[str, Any], str | None]:
        finish = finish_name(reason)
        call = parsed_call(self._tool_choice, text)
        if call is None:
            return {"content": text}, finish
        name, arguments = call
        function = {"name": name, "arguments": arguments}
        told = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
        whole_call = finish == "stop" and self._tool_choice == "required"
        return {"content": None, "tool_calls": [told]}, "tool_calls" if whole_call else finish

    def _logprobs(self, delta: Delta) -> dict[str, Any] | None:
        return chat_logprobs(self._tokenizer, delta.token_ids, delta.logprobs)


def _piece(index: int, delta: dict[str, Any], *, logprobs: Any = None, finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
