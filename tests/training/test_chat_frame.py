"""The frame's parts put together are what the template renders."""

from __future__ import annotations

import pytest

from slipstream.text.chat_template import ChatMessage, ChatTemplate
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.chat_frame import ChatFrame
from tests.tiny_models import EOS_TOKEN_ID


def test_a_framed_question_is_the_rendered_prompt(tokenizer: Tokenizer, frame: ChatFrame) -> None:
    rendered = ChatTemplate.from_tokenizer(tokenizer).render([ChatMessage("user", "Hi there")])
    assert frame.question(tokenizer.encode("Hi there")) == tokenizer.encode(rendered)


def test_a_second_turn_is_the_rendered_one(tokenizer: Tokenizer, frame: ChatFrame) -> None:
    chat = [ChatMessage("user", "Hi"), ChatMessage("assistant", "Hello"), ChatMessage("user", "Why")]
    parts = (
        frame.question(tokenizer.encode("Hi")) + tokenizer.encode("Hello") + frame.to_question + tokenizer.encode("Why")
    )
    assert parts + frame.to_answer == tokenizer.encode(ChatTemplate.from_tokenizer(tokenizer).render(chat))


def test_both_bridges_begin_with_the_end_token(frame: ChatFrame) -> None:
    assert frame.end_token == frame.to_answer[0] == frame.to_question[0] == EOS_TOKEN_ID


def test_a_template_whose_turns_end_differently_is_refused(tokenizer: Tokenizer) -> None:
    template = (
        "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + '<|im_end|>'[:m['content']|length] }}{% endfor %}"
    )
    config = b'{"chat_template": "' + template.replace('"', "'").encode() + b'"}'
    odd = Tokenizer.from_files({"tokenizer.json": tokenizer.files["tokenizer.json"], "tokenizer_config.json": config})
    with pytest.raises(ValueError, match="one end token"):
        ChatFrame.of(odd)
