"""A schema that passes is kept to by every output, and one that would not be is refused by name."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from slipstream.errors import InvalidRequest
from slipstream.grammar.compiler import GrammarCompiler
from slipstream.grammar.schema_check import check_schema
from slipstream.request import Grammar, GrammarKind
from tests.grammar.random_schemas import RandomOutputs, random_schema
from tests.tiny_models import EOS_TOKEN_ID

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
ENFORCED: list[Any] = [
    True,
    {},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "pattern": "[^a]{1,3}"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "enum": ["a", "b"]},
    {"type": ["integer", "string"], "minimum": 5, "maxLength": 3},
    {"type": ["object", "null"], "properties": {"a": {"type": ["string", "null"], "maxLength": 3}}, "required": ["a"]},
    {"type": "object", "properties": {"a": INTEGER, "b": STRING}, "minProperties": 1, "maxProperties": 1},
    {"type": "object", "patternProperties": {"^[a-c]$": INTEGER}},
    {"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": INTEGER},
    {"properties": {"title": INTEGER}, "required": ["title"], "title": "typeless"},
    {"type": "array", "prefixItems": [INTEGER, STRING], "items": {"type": "boolean"}, "minItems": 1},
    {"oneOf": [INTEGER, STRING]},
    {"allOf": [{"type": "integer", "minimum": 5}], "description": "one"},
    {"type": "array", "items": INTEGER, "uniqueItems": False},
    {"type": "object", "properties": {"a": INTEGER, "b": {"$ref": "#/properties/a"}}, "required": ["a", "b"]},
    {"$ref": "#/$defs/list", "$defs": {"list": {"anyOf": [{"type": "null"}, {"type": "array", "items": INTEGER}]}}},
]
REFUSED: list[tuple[Any, str]] = [
    ({"type": "array", "uniqueItems": True}, "'uniqueItems', which is not enforced"),
    ({"not": STRING}, "'not' without 'type'"),
    ({"type": "string", "not": STRING}, "'not', which is not enforced"),
    ({"if": STRING, "then": {}, "type": "string"}, "'if', which is not enforced"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "'dependentRequired', which is not enforced"),
    ({"minimum": 5}, "'minimum' without 'type'"),
    ({"type": "string", "minimum": 5}, "'minimum', which is not enforced here for type string"),
    ({"type": "integer", "multipleOf": 7}, "'multipleOf', which is not enforced"),
    ({"type": "string", "pattern": "a", "maxLength": 3}, "'pattern' beside 'maxLength'"),
    ({"type": "string", "pattern": 'a"'}, "whose '\"' is not enforced"),
    ({"type": "string", "pattern": "a(?=b)"}, r"whose '\(\?' is not enforced"),
    ({"type": "object", "properties": {"a": INTEGER}, "additionalProperties": STRING}, "'properties' beside"),
    ({"type": "object", "properties": {"a": INTEGER}, "patternProperties": {"^a$": STRING}}, "'properties' beside"),
    ({"type": "object", "properties": {"a": INTEGER}, "required": ["b"]}, "requires 'b'"),
    ({"allOf": [INTEGER, {"minimum": 5}]}, "'allOf' of 2 schemas"),
    ({"oneOf": [INTEGER, {"type": "number"}]}, "write 'anyOf'"),
    ({"anyOf": [INTEGER], "type": "integer"}, "'type' beside 'anyOf'"),
    ({"$ref": "#/$defs/n", "$defs": {"n": STRING}, "maxLength": 1}, "'maxLength' beside '\\$ref'"),
    ({"$ref": "https://example.com/schema"}, "which is no schema inside this one"),
    (
        {"type": "array", "items": {"$ref": "#/default"}, "default": {"uniqueItems": True}},
        "/items has the '\\$ref' '#/def",
    ),
    ({"$ref": "#/$defs/m", "$defs": {"n": STRING}}, "'#/\\$defs/m', which is no schema"),
    ({"enum": ["aaa"], "maxLength": 1}, "'maxLength' beside 'enum'"),
    ({"type": "integer", "enum": [1, "a"]}, "lists 'a', which is not of type 'integer'"),
    ({"type": "object", "properties": {"x": {"type": "array", "contains": {}}}}, "/properties/x has 'contains'"),
    ({"type": "text"}, "has type 'text'"),
    (
        {"type": "object", "properties": {f"p{i}": STRING for i in range(514)}, "required": ["p1"]},
        "has 513 properties that may be left out; it must be <= 512",
    ),
    (
        {"type": "object", "properties": {f"p{i}": STRING for i in range(65)}, "minProperties": 1},
        "has 65 properties that may be left out beside a bound on their number; it must be <= 64",
    ),
    ([1], "must be an object or true"),
]


@pytest.mark.parametrize("schema", ENFORCED, ids=str)
def test_every_output_of_an_enforced_schema_validates(
    schema: Any, compiler: GrammarCompiler, token_bytes: list[bytes]
) -> None:
    check_outputs(schema, compiler, token_bytes, num_outputs=12)


@pytest.mark.parametrize("schema, reason", REFUSED, ids=lambda value: str(value)[:60])
def test_what_would_not_be_enforced_is_refused_by_name(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^grammar: the JSON schema at #.*{reason}"):
        check_schema(schema)


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = INTEGER
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidRequest, match="more than 64 levels deep"):
        check_schema(schema)


@pytest.mark.parametrize("seed", range(20))
def test_outputs_of_random_schemas_validate(seed: int, compiler: GrammarCompiler, token_bytes: list[bytes]) -> None:
    check_outputs(random_schema(random.Random(seed)), compiler, token_bytes, num_outputs=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 400))
def test_outputs_of_many_random_schemas_validate(
    seed: int, compiler: GrammarCompiler, token_bytes: list[bytes]
) -> None:
    check_outputs(random_schema(random.Random(seed)), compiler, token_bytes, num_outputs=10)


def check_outputs(schema: Any, compiler: GrammarCompiler, token_bytes: list[bytes], num_outputs: int) -> None:
    grammar = compiler.compile(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema)))
    outputs = RandomOutputs(token_bytes, EOS_TOKEN_ID)
    texts = [text for _ in range(num_outputs) if (text := outputs.one(grammar)) is not None]
    assert texts, "no output came to an end"
    for text in texts:
        jsonschema.validate(json.loads(text.decode()), schema)
