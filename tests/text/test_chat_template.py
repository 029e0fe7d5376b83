"""Chat templates, also as transformers renders them."""

from __future__ import annotations

from datetime import datetime

import pytest

from slipstream.errors import InvalidRequest
from slipstream.text.chat_template import ChatMessage, ChatTemplate
from slipstream.text.tokenizer import Tokenizer
from tests.text.tiny_tokenizers import byte_level

CHATML = """{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
USER = ChatMessage("user", "Hi <b>")


def render(template: str, *messages: ChatMessage, config: dict[str, object] | None = None) -> str:
    return ChatTemplate.from_tokenizer(byte_level(template=template, config=config)).render(messages)


def test_messages_are_rendered_with_the_answer_to_come_next() -> None:
    text = render(CHATML, ChatMessage("system", "Be brief."), USER)
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n"
    assert text.replace("\n\n", "\n") == expected


@pytest.mark.parametrize("message", [USER, ChatMessage("user", "{{ messages }} äöü 🙂")])
def test_the_text_is_that_of_transformers(message: ChatMessage) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    plain = [{"role": message.role, "content": message.content}]
    template = CHATML + "{{ messages[0] | tojson }}"
    (expected,), _ = render_jinja_template([plain], chat_template=template, add_generation_prompt=True)
    assert render(template, message) == expected


@pytest.mark.parametrize(
    "config",
    [
        {"chat_template": "{{ bos_token }}x", "bos_token": "<s>"},
        {"chat_template": "{{ bos_token }}x", "bos_token": {"content": "<s>"}},
        {"chat_template": [{"name": "default", "template": "{{ bos_token }}x"}], "bos_token": "<s>"},
    ],
)
def test_template_and_special_tokens_are_found_in_the_configuration(config: dict[str, object]) -> None:
    assert render("", USER, config=config) == "<s>x"


def test_the_tools_that_templates_expect_are_there() -> None:
    assert render("{{ strftime_now('%Y') }}", USER) == str(datetime.now().year)
    assert render("{% generation %}a{% endgeneration %}", USER) == "a"
    assert render("{% for m in messages %}{% break %}{% endfor %}z", USER) == "z"


def test_tools_and_what_else_a_message_holds_reach_the_template() -> None:
    template = ChatTemplate("{{ tools[0].function.name }} {{ messages[0].tool_call_id }} {{ messages[0].content }}", {})
    message = ChatMessage("tool", "42", {"tool_call_id": "c1", "content": "not this"})
    assert template.render([message], [{"function": {"name": "add"}}]) == "add c1 42"


def test_a_template_is_asked_for_the_words_it_teaches() -> None:
    template = ChatTemplate("<a>{{ tools }}</a>", {})
    assert template.mentions("<a>", "</a>")
    assert not template.mentions("<a>", "<b>")


def test_tools_that_a_template_would_leave_out_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="chat template has no place for them"):
        ChatTemplate(CHATML, {}).render([USER], [{"function": {"name": "add"}}])


@pytest.mark.parametrize(
    ("template", "messages", "message"),
    [
        ("", [USER], "the model has no chat template"),
        (CHATML, [], "chat holds no messages"),
        ("{{ raise_exception('roles must alternate') }}", [USER], "roles must alternate"),
        ("{{ messages[0].content + 1 }}", [USER], "refuses these messages"),
        ("{{ 1 / 0 }}", [USER], "refuses these messages: division by zero"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", [USER], "refuses these messages: Range too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", [USER], "refuses these messages: maximum recursion"),
        ("{% if %}", [USER], "chat template is broken"),
        ("{{ ''.__class__.__mro__ }}", [USER], "refuses these messages.*unsafe"),
    ],
)
def test_what_cannot_be_rendered_is_the_callers_error(template: str, messages: list[ChatMessage], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        render(template, *messages)


def test_a_template_file_that_is_no_text_is_told_like_a_broken_one() -> None:
    files = byte_level().files | {"chat_template.jinja": b"\xff\xfe"}
    with pytest.raises(InvalidRequest, match=r"chat_template.jinja is not UTF-8"):
        ChatTemplate.from_tokenizer(Tokenizer.from_files(files))
