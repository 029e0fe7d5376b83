"""The form of an answer becomes a grammar."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.json_fields import JsonFields, parse_json
from gateway.openai.response_format import ResponseFormat, grammar_of
from slipstream.errors import InvalidRequest
from slipstream.request import Grammar, GrammarKind


class Holder(JsonFields):
    form: ResponseFormat


def read(form: Any) -> Grammar | None:
    return grammar_of(parse_json(Holder, json.dumps({"form": form})).form)


def test_text_has_no_form() -> None:
    assert read({"type": "text"}) is None
    assert grammar_of(None) is None


def test_a_json_object_is_the_schema_of_any_object() -> None:
    assert read({"type": "json_object"}) == Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object"}')


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_is_kept_to_strict_or_not(strict: bool | None) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": strict}}
    found = read(form)
    assert found is not None
    assert json.loads(found.text) == schema


@pytest.mark.parametrize("form", [{"type": "xml"}, {}, "json_object", {"type": "json_schema"},
                                  {"type": "json_schema", "json_schema": {"name": "n", "schema": "s"}}])  # fmt: skip
def test_another_form_is_refused_by_name(form: Any) -> None:
    with pytest.raises(InvalidRequest, match="form"):
        read(form)
