"""The form that a chat's answer must have, as OpenAI names it. Knows JSON schemas as texts; judges none of them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.json_fields import JsonFields
from slipstream.request import Grammar, GrammarKind


class Text(JsonFields):
    type: Literal["text"]


class JsonObject(JsonFields):
    type: Literal["json_object"]


class SchemaFields(JsonFields):
    name: str
    description: str | None = None
    wanted: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None  # the schema is always kept to


class JsonSchema(JsonFields):
    type: Literal["json_schema"]
    json_schema: SchemaFields


ResponseFormat = Annotated[Text | JsonObject | JsonSchema, Field(discriminator="type")]


def grammar_of(form: Text | JsonObject | JsonSchema | None) -> Grammar | None:
    match form:
        case JsonObject():
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"type": "object"}))
        case JsonSchema():
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(form.json_schema.wanted))
        case _:
            return None
