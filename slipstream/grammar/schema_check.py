"""Refuses JSON schemas that would not be kept to. Knows which keywords are enforced; enforces nothing itself.

The library that makes grammars leaves out silently what it cannot express: `uniqueItems`, `not`, a `pattern` beside a
`maxLength`. A caller who asked for it would get output that does not validate. So only keywords, and combinations of
them, that are known to be enforced pass; whatever else is refused by name. tests/grammar/test_schema_check.py holds the
list to random outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from slipstream.errors import InvalidRequest

MAX_DEPTH = 64
MAX_OPTIONAL = 512  # properties of one object: of 1,600 that may all be left out, compiling does not come to an end
MAX_OPTIONAL_COUNTED = 64  # beside a bound on how many there are
ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment")
)
NUMBER = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
KEYWORDS = {  # beside `type`
    "object": frozenset(
        [
            *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
            *("minProperties", "maxProperties"),
        ]
    ),
    "array": frozenset(("items", "prefixItems", "minItems", "maxItems")),
    "string": frozenset(("minLength", "maxLength", "pattern", "format")),
    "integer": NUMBER,
    "number": NUMBER,
    "boolean": frozenset[str](),
    "null": frozenset[str](),
}
ALONE = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")  # nothing beside them is enforced
DEFINITIONS = ("$defs", "definitions")
IMPLIED_TYPES = {  # a schema without `type` is taken for one of these if it has their keyword, and for nothing else
    "properties": "object",
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
}
CLASHES = (  # keywords that are not enforced together
    ("pattern", "minLength"),
    ("pattern", "maxLength"),
    ("pattern", "format"),
    ("format", "minLength"),
    ("format", "maxLength"),
    ("properties", "patternProperties"),
    ("properties", "propertyNames"),
    ("patternProperties", "propertyNames"),
    ("patternProperties", "minProperties"),
    ("patternProperties", "maxProperties"),
    ("additionalProperties", "minProperties"),
    ("additionalProperties", "maxProperties"),
    ("properties", "additionalProperties"),
)
# A pattern is matched against the text between the quotes, where these would have to be escaped.
ESCAPED_IN_JSON = re.compile(r'"|\\[\\xuUc0-9nrtfv]')
LOOKAROUND = re.compile(r"\(\?(?!:)|\\[bBpPkAzZ]")


def check_schema(schema: Any) -> None:
    """Raises InvalidRequest naming place, keyword and reason."""
    references = {}
    places = set()
    for place, part in _walk(schema, "#", MAX_DEPTH):
        _check_keywords(part, place)
        places.add(place)
        if "$ref" in part:
            references[place] = part["$ref"]
    for place, target in references.items():
        if target not in places:  # elsewhere, the library would take it for anything at all
            raise _refusal(place, f"has the '$ref' {target!r}, which is no schema inside this one; put it into '$defs'")


def _walk(schema: Any, place: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and all inside it, each with its place."""
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise _refusal(place, f"is {schema!r}; it must be an object or true")
    if depth == 0:
        raise _refusal(place[:40] + "...", f"lies more than {MAX_DEPTH} levels deep")
    yield place, schema
    for name, part in _parts(schema):
        yield from _walk(part, f"{place}/{name}", depth - 1)


def _check_keywords(schema: dict[str, Any], place: str) -> None:
    asked = {name for name, value in schema.items() if not _says_nothing(name, value)} - ANNOTATIONS
    asked -= set(DEFINITIONS)
    alone = [name for name in ALONE if name in asked]
    if alone:
        _check_alone(schema, alone[0], asked - {"type"} if alone[0] in ("enum", "const") else asked, place)
        return
    types = _types(schema, asked, place)
    enforced = frozenset({"type"}).union(*(KEYWORDS[one] for one in types))
    for name in sorted(asked - enforced):
        raise _refusal(place, f"has {name!r}, which is not enforced here{_hint(name, types)}; leave it out")
    for one, other in CLASHES:
        if one in asked and other in asked:
            raise _refusal(place, f"has {one!r} beside {other!r}; only one of them can be enforced")
    _check_values(schema, place)


def _check_alone(schema: dict[str, Any], keyword: str, asked: set[str], place: str) -> None:
    for name in sorted(asked - {keyword}):
        raise _refusal(place, f"has {name!r} beside {keyword!r}, which is then not enforced; leave it out")
    value = schema[keyword]
    if keyword in ("enum", "const"):
        _check_fixed_values(value if keyword == "enum" else [value], schema.get("type"), place)
    elif keyword == "allOf" and isinstance(value, list) and len(value) != 1:
        raise _refusal(place, f"has 'allOf' of {len(value)} schemas; only one can be enforced, write them as one")
    elif keyword == "oneOf" and isinstance(value, list) and not _is_disjoint(value):
        raise _refusal(place, "has 'oneOf' whose schemas are not of different 'type's; write 'anyOf'")


def _check_fixed_values(values: Any, kind: Any, place: str) -> None:
    if kind is None or not isinstance(values, list):
        return
    kinds = kind if isinstance(kind, list) else [kind]
    for value in values:
        if not any(_is_of(value, one) for one in kinds):
            raise _refusal(place, f"lists {value!r}, which is not of type {kind!r}")


def _types(schema: dict[str, Any], asked: set[str], place: str) -> list[str]:
    kind = schema.get("type")
    if kind is None:
        implied = {IMPLIED_TYPES[name] for name in asked & IMPLIED_TYPES.keys()}
        if len(implied) > 1 or (asked and not implied):
            raise _refusal(place, f"has {sorted(asked)[0]!r} without 'type'; name the type")
        return sorted(implied)
    kinds = kind if isinstance(kind, list) else [kind]
    for one in kinds:
        if not isinstance(one, str) or one not in KEYWORDS:
            raise _refusal(place, f"has type {one!r}; it must be one of {', '.join(KEYWORDS)}")
    return kinds


def _check_values(schema: dict[str, Any], place: str) -> None:
    required, properties = schema.get("required", []), schema.get("properties", {})
    if isinstance(required, list) and isinstance(properties, dict):
        for name in required:
            if name not in properties:
                raise _refusal(place, f"requires {name!r}, which is not in its 'properties'")
    _check_optional(schema, place)
    patterns = [schema["pattern"]] if "pattern" in schema else []
    if isinstance(schema.get("patternProperties"), dict):
        patterns += schema["patternProperties"]
    for pattern in patterns:
        if isinstance(pattern, str) and (found := ESCAPED_IN_JSON.search(pattern) or LOOKAROUND.search(pattern)):
            raise _refusal(place, f"has the pattern {pattern!r}, whose {found[0]!r} is not enforced; write it without")


def _check_optional(schema: dict[str, Any], place: str) -> None:
    required, properties = schema.get("required", []), schema.get("properties", {})
    if not isinstance(required, list) or not isinstance(properties, dict):
        return
    number = len(properties) - len(properties.keys() & {name for name in required if isinstance(name, str)})
    counted = "minProperties" in schema or "maxProperties" in schema
    most = MAX_OPTIONAL_COUNTED if counted else MAX_OPTIONAL
    if number > most:
        beside = " beside a bound on their number" * counted
        raise _refusal(place, f"has {number} properties that may be left out{beside}; it must be <= {most}")


def _parts(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas inside a schema, each with its path."""
    for name in (*DEFINITIONS, "properties", "patternProperties"):
        if isinstance(schema.get(name), dict):
            yield from ((f"{name}/{key}", part) for key, part in schema[name].items())
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(schema.get(name), list):
            yield from ((f"{name}/{index}", part) for index, part in enumerate(schema[name]))
    for name in ("items", "additionalProperties"):
        if name in schema and schema[name] is not False:
            yield name, schema[name]
    if isinstance(schema.get("propertyNames"), dict):
        yield "propertyNames", {"type": "string"} | schema["propertyNames"]


def _says_nothing(name: str, value: Any) -> bool:
    """Values that are the keyword's own default; generators of schemas write them down."""
    return (name, value) in (("uniqueItems", False), ("additionalProperties", False), ("minLength", 0))


def _is_disjoint(schemas: list[Any]) -> bool:
    kinds = [part.get("type") if isinstance(part, dict) else None for part in schemas]
    names = ["number" if kind == "integer" else kind for kind in kinds]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _is_of(value: Any, kind: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return bool(kind == ("null" if value is None else "boolean"))
    named: dict[Any, Any] = {"string": str, "integer": int, "number": (int, float), "object": dict, "array": list}
    return kind in named and isinstance(value, named[kind])


def _hint(name: str, types: list[str]) -> str:
    known = any(name in keywords for keywords in KEYWORDS.values())
    return f" for type {' or '.join(types)}" if known and types else ""


def _refusal(place: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"grammar: the JSON schema at {place} {what}")
