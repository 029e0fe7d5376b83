"""JSON from callers: what is read, and how a mistake is told."""

from __future__ import annotations

import threading

import pytest

from gateway import json_fields
from gateway.json_fields import InvalidField, JsonFields, parse_json, read_json
from slipstream.errors import InvalidRequest


class Inner(JsonFields):
    size: int


class Fields(JsonFields):
    name: str
    inner: Inner | None = None
    share: float | None = None


def test_a_document_is_read_with_its_types() -> None:
    fields = parse_json(Fields, b'{"name": "a", "inner": {"size": 3}, "share": 1}')
    assert (fields.name, fields.inner, fields.share) == ("a", Inner(size=3), 1.0)


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ('{"name": 3}', "name", "name is 3; it must be a valid string"),
        ('{"name": "a", "share": "1"}', "share", "share is '1'; it must be a valid number"),
        ('{"name": "a", "share": true}', "share", "share is True; it must be a valid number"),
        ('{"name": "a", "inner": {"size": 1.5}}', "inner.size", "inner.size is 1.5; it must be a valid integer"),
        ('{"name": "a", "odd": [1]}', "odd", r"odd is \[1\]; there is no such field here, leave it out"),
        ("{}", "name", "name is missing; it is needed"),
    ],
)
def test_a_mistake_is_told_with_field_and_value(body: str, field: str, text: str) -> None:
    with pytest.raises(InvalidField, match=text) as error:
        parse_json(Fields, body)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is no JSON: EOF"),
        (b"{", "the body is no JSON: EOF"),
        (b"[1]", r"the body is \[1\]; it must be a JSON object"),
        (b"null", "the body is None; it must be a JSON object"),
        (b'{"name": "\xff"}', "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON: recursion limit"),
    ],
)
def test_what_is_no_object_is_told_as_a_whole(body: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        parse_json(Fields, body)


def test_a_long_value_is_told_in_short() -> None:
    with pytest.raises(InvalidField) as error:
        parse_json(Fields, '{"name": "a", "share": "%s"}' % ("x" * 10_000))
    assert len(str(error.value)) < 200


def test_numbers_may_be_strings_where_that_is_allowed() -> None:
    assert parse_json(Fields, '{"name": "a", "share": "0.5"}', strict=False).share == 0.5


@pytest.mark.parametrize(("num_chars", "elsewhere"), [(10, False), (200_000, True)])
async def test_only_a_long_body_is_read_in_another_thread(
    num_chars: int, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def parse(kind: type[Fields], body: bytes) -> Fields:
        threads.append(threading.current_thread())
        return parse_json(kind, body)

    monkeypatch.setattr(json_fields, "parse_json", parse)
    fields = await read_json(Fields, b'{"name": "%s"}' % (b"x" * num_chars))
    assert len(fields.name) == num_chars
    assert (threads[0] is not threading.main_thread()) == elsewhere
