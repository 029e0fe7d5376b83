"""Chat messages to prompt text, by the model's own Jinja template. Knows the template; knows no token ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from slipstream.errors import InvalidRequest
from slipstream.text.tokenizer import TEMPLATE_FILE, Tokenizer


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: str
    content: str
    details: Mapping[str, Any] = field(default_factory=dict)  # what else a template may read, such as tool calls


class ChatTemplate:
    """Renders a chat so that the model's answer is to be written next."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        self._special_tokens = special_tokens
        self._source = source
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self._takes_tools = "tools" in meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise InvalidRequest(f"the model's chat template is broken ({error}); send the prompt as text") from error

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> ChatTemplate:
        """Raises InvalidRequest if the model has no template, or one that cannot be parsed."""
        try:
            source = _template_source(tokenizer)
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"the model's {TEMPLATE_FILE} is not UTF-8; send the prompt as text") from error
        if not source:
            raise InvalidRequest("the model has no chat template; send the prompt as text or token ids")
        return cls(source, _special_tokens(tokenizer.config))

    def mentions(self, *words: str) -> bool:
        """Whether the template itself says all of them, and so what the model was taught to write."""
        return all(word in self._source for word in words)

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """With the tools offered to the model, as JSON schemas. Raises InvalidRequest if the template has no place."""
        if not messages:
            raise InvalidRequest("chat holds no messages; give at least one")
        if tools and not self._takes_tools:
            raise InvalidRequest("tools are given; the model's chat template has no place for them, leave them out")
        try:
            return self._template.render(
                messages=[{**m.details, "role": m.role, "content": m.content} for m in messages],
                tools=list(tools) or None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except Exception as error:  # a template is a program, and may fail in any way
            raise InvalidRequest(f"the model's chat template refuses these messages: {error}") from error


class _GenerationTag(Extension):
    """Training marks answers with `{% generation %}`; when serving, the block is just its content."""

    tags = {"generation"}  # noqa: RUF012 -- declared so by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _template_source(tokenizer: Tokenizer) -> str:
    if TEMPLATE_FILE in tokenizer.files:
        return tokenizer.files[TEMPLATE_FILE].decode()
    source = tokenizer.config.get("chat_template") or ""
    if isinstance(source, list):  # several named templates
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default") or ""
    return str(source)


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """bos_token, eos_token and so on, which a configuration writes as strings or as objects."""
    tokens = {name: value for name, value in config.items() if name.endswith("_token")}
    contents = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    return {name: content for name, content in contents.items() if isinstance(content, str)}


def _environment() -> ImmutableSandboxedEnvironment:
    """What templates are written for: the names and whitespace rules of transformers' apply_chat_template."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    functions: dict[str, Callable[..., Any]] = {"raise_exception": _raise, "strftime_now": _strftime_now}
    environment.globals.update(functions)
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)  # jinja2's own escapes for HTML


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
