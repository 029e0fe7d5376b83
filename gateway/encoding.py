"""From a prompt as it was asked to token ids. Knows text, chats and a model's tools for them; no bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.completion import Prompt
from gateway.peers.tokenizer_store import TextTools
from slipstream.errors import InvalidRequest
from slipstream.text.chat_template import ChatMessage

MAX_PROMPT_CHARS = 4_000_000  # about a million tokens; the tokenizer needs 100 bytes and more for each
LONG_PROMPT_CHARS = 20_000  # encoded in another thread, so that other requests go on meanwhile


async def encode(tools: TextTools, prompt: Prompt, offered: Sequence[Mapping[str, Any]] = ()) -> tuple[int, ...]:
    """`encode_prompt`, and nobody waits for a long one but who asked."""
    if _num_chars(prompt, offered) > LONG_PROMPT_CHARS:
        return await asyncio.to_thread(encode_prompt, tools, prompt, offered)
    return encode_prompt(tools, prompt, offered)


def encode_prompt(tools: TextTools, prompt: Prompt, offered: Sequence[Mapping[str, Any]] = ()) -> tuple[int, ...]:
    """Token ids of a prompt, in a chat with the tools `offered`; BOS and the like only as tokenizer or template say."""
    if not prompt:
        raise InvalidRequest("prompt is empty; give text, chat messages or token ids")
    if (chars := _num_chars(prompt, offered)) > MAX_PROMPT_CHARS:
        raise InvalidRequest(f"prompt has {chars} characters; it must be <= {MAX_PROMPT_CHARS}")
    if isinstance(prompt, str):
        return tools.tokenizer.encode(prompt)
    messages = [message for message in prompt if isinstance(message, ChatMessage)]
    if messages:
        return _encode_chat(tools, messages, offered)
    return tuple(token_id for token_id in prompt if isinstance(token_id, int))


def _num_chars(prompt: Prompt, offered: Sequence[Mapping[str, Any]] = ()) -> int:
    """How much text there is to encode; every chat message counts for one more, for the template's own."""
    if isinstance(prompt, str):
        return len(prompt)
    messages = [message for message in prompt if isinstance(message, ChatMessage)]
    written = sum(len(message.role) + len(message.content) + 1 for message in messages)
    return written + sum(len(str(extra)) for extra in (*(m.details for m in messages if m.details), *offered))


def _encode_chat(
    tools: TextTools, messages: Sequence[ChatMessage], offered: Sequence[Mapping[str, Any]]
) -> tuple[int, ...]:
    if isinstance(tools.template, InvalidRequest):
        raise InvalidRequest(str(tools.template))
    return tools.tokenizer.encode(tools.template.render(messages, offered), add_special_tokens=False)
