"""Functions that a chat offers to the model, and whether it must call one. Knows JSON schemas; no reply."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.json_fields import InvalidField, JsonFields
from slipstream.errors import quoted
from slipstream.request import Grammar, GrammarKind

NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"


class Function(JsonFields):
    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(JsonFields):
    type: Literal["function"]
    function: Function


class NamedFunction(JsonFields):
    name: str


class NamedTool(JsonFields):
    type: Literal["function"]
    function: NamedFunction


Choice = Literal["none", "auto", "required"] | NamedTool


def forced_grammar(tools: list[Tool], choice: Choice | None) -> Grammar | None:
    """What the output must be for a call that the caller demands; None if the model may write as it likes.

    One named function is called with its arguments alone; of several, the model writes which, too.
    """
    if isinstance(choice, NamedTool):
        return _grammar(_parameters(_named(tools, choice.function.name)))
    if choice != "required":
        return None
    if not tools:
        raise InvalidField("tool_choice is 'required'; it needs `tools`", "tool_choice")
    calls = [_call_schema(tool.function, f"#/anyOf/{index}") for index, tool in enumerate(tools)]
    return _grammar({"anyOf": calls})


def parsed_call(choice: Choice | None, text: str) -> tuple[str, str] | None:
    """Name and arguments of the call that the output is; None if it is none, or was cut before its end."""
    if isinstance(choice, NamedTool):
        return choice.function.name, text
    if choice != "required":
        return None
    try:
        call = json.loads(text)
        return call["name"], json.dumps(call["arguments"], ensure_ascii=False)
    except (ValueError, KeyError, TypeError):
        return None


def _named(tools: list[Tool], name: str) -> Function:
    for tool in tools:
        if tool.function.name == name:
            return tool.function
    known = ", ".join(tool.function.name for tool in tools) or "none"
    raise InvalidField(f"tool_choice names {quoted(name)}; the functions in `tools` are: {known}", "tool_choice")


def _call_schema(function: Function, place: str) -> dict[str, Any]:
    arguments = _moved(_parameters(function), f"{place}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"const": function.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """A schema whose root now lies elsewhere: what it refers to in itself is found there."""
    if isinstance(schema, list):
        return [_moved(part, place) for part in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: _moved(part, place) for name, part in schema.items()}
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith("#"):
        moved["$ref"] = place + target[1:]
    return moved


def _parameters(function: Function) -> dict[str, Any]:
    return function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}


def _grammar(schema: dict[str, Any]) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
