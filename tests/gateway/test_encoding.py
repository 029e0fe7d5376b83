"""Prompts as token ids."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.encoding import encode_prompt
from gateway.peers.tokenizer_store import TextTools
from slipstream.errors import InvalidRequest
from slipstream.text.chat_template import ChatMessage, ChatTemplate
from tests.text.tiny_tokenizers import metaspace

TOKENIZER = metaspace()
TEXT = TextTools(TOKENIZER, ChatTemplate("{{ bos_token }}{{ messages[0].content }}", {"bos_token": "<s>"}))


def test_bos_comes_from_the_tokenizer_for_text_and_from_the_template_for_chats() -> None:
    bos = 1
    assert encode_prompt(TEXT, "hello").count(bos) == 1
    assert encode_prompt(TEXT, (ChatMessage("user", "hello"),)).count(bos) == 1
    assert encode_prompt(TEXT, (7, 8)) == (7, 8)


@pytest.mark.parametrize("prompt", ["x" * 4_000_001, (ChatMessage("user", "x" * 3_999_999), ChatMessage("user", "y"))])
def test_a_text_that_no_context_holds_is_refused_before_it_is_encoded(prompt: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"prompt has 40000\d\d characters; it must be <= 4000000"):
        encode_prompt(TEXT, prompt)


def test_a_model_without_a_template_says_so() -> None:
    with pytest.raises(InvalidRequest, match="no template"):
        encode_prompt(TextTools(TOKENIZER, InvalidRequest("no template")), (ChatMessage("user", "hi"),))
