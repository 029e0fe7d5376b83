"""Which call a caller demands, and what is read from the output that is one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.openai.tools import Choice, Function, NamedFunction, NamedTool, Tool, forced_grammar, parsed_call
from slipstream.errors import InvalidRequest
from slipstream.grammar.schema_check import check_schema

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = Tool(type="function", function=Function(name="add", parameters=SCHEMA))
NOW = Tool(type="function", function=Function(name="now"))
NAMED = NamedTool(type="function", function=NamedFunction(name="add"))


def schema(tools: list[Tool], choice: Choice) -> Any:
    grammar = forced_grammar(tools, choice)
    assert grammar is not None
    return json.loads(grammar.text)


@pytest.mark.parametrize("choice", [None, "none", "auto"])
def test_without_a_demand_the_model_writes_what_it_likes(choice: Choice | None) -> None:
    assert forced_grammar([ADD], choice) is None
    assert parsed_call(choice, '{"name": "add", "arguments": {}}') is None


def test_a_named_function_is_called_with_its_arguments_alone() -> None:
    assert schema([NOW, ADD], NAMED) == SCHEMA
    assert parsed_call(NAMED, '{"a": 1}') == ("add", '{"a": 1}')


def test_of_several_functions_the_model_writes_which() -> None:
    kinds = [one["properties"]["name"]["const"] for one in schema([NOW, ADD], "required")["anyOf"]]
    assert kinds == ["now", "add"]
    assert parsed_call("required", '{"name": "add", "arguments": {"a": 1}}') == ("add", '{"a": 1}')


def test_what_a_functions_schema_refers_to_is_found_where_it_lies_then() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "size": {"$ref": "#/$defs/n"}}}
    function = Function(name="plant", parameters={**tree, "$defs": {"n": {"type": "integer"}}})
    asked = schema([ADD, Tool(type="function", function=function)], "required")
    check_schema(asked)
    properties = asked["anyOf"][1]["properties"]["arguments"]["properties"]
    root = "#/anyOf/1/properties/arguments"
    assert properties == {"left": {"$ref": root}, "size": {"$ref": f"{root}/$defs/n"}}


@pytest.mark.parametrize("text", ["", '{"name": "add", "argu', "[]", '{"name": "add"}', "3"])
def test_a_call_that_was_cut_is_none(text: str) -> None:
    assert parsed_call("required", text) is None


def test_a_function_that_is_not_offered_cannot_be_demanded() -> None:
    with pytest.raises(InvalidRequest, match="tool_choice names 'add'; the functions in `tools` are: now"):
        forced_grammar([NOW], NAMED)
    with pytest.raises(InvalidRequest, match="tool_choice is 'required'; it needs `tools`"):
        forced_grammar([], "required")
