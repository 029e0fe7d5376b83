"""What a value of a tenant's policy may be: in code, in words, and as JSON schema. Knows kinds of values, no field."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from slipstream.errors import quoted


@dataclass(frozen=True, slots=True)
class Rule:
    allows: Callable[[Any], bool]  # any value at all may be asked about
    allowed: str  # completes "it must be ..."
    schema: Mapping[str, Any]  # of the value as it stands in the file
    may_show: bool = True  # False: what stands there by mistake may be a secret


def require(field: str, value: object, rule: Rule) -> None:
    """Raises ValueError with field, range and, unless it may be a secret, value."""
    if not rule.allows(value):
        shown = quoted(list(value) if isinstance(value, tuple) else value) if rule.may_show else "not as it should be"
        raise ValueError(f"{field} is {shown}; it must be {rule.allowed}")


def whole(low: int, high: int, zero: str = "") -> Rule:
    """`zero` says what 0 stands for, if it stands for something."""
    words = f"a whole number in {low}..{high}" + (f" (0: {zero})" if zero else "")
    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Rule(lambda value: type(value) is int and low <= value <= high, words, schema)


def number(low: float, high: float, unit: str = "a number") -> Rule:
    schema = {"type": "number", "minimum": low, "maximum": high}
    words = f"{unit} in {low:g}..{high:g}"
    return Rule(lambda value: type(value) in (int, float) and low <= value <= high, words, schema)


def one_of(names: Collection[str]) -> Rule:
    words = f"one of {', '.join(names)}"
    return Rule(lambda value: isinstance(value, str) and value in names, words, {"enum": list(names)})


def boolean() -> Rule:
    return Rule(lambda value: isinstance(value, bool), "true or false", {"type": "boolean"})


def text(least: int) -> Rule:
    words = "a text" + (" that is not empty" if least else "")
    return Rule(
        lambda value: isinstance(value, str) and len(value) >= least, words, {"type": "string", "minLength": least}
    )


def hashes(pattern: str, words: str) -> Rule:
    """A list, possibly empty, of texts that match as a whole; something else there may be what was to be hashed."""
    compiled = re.compile(pattern)
    schema = {"type": "array", "items": {"type": "string", "pattern": f"^(?:{pattern})$"}, "uniqueItems": True}
    return Rule(
        lambda values: (
            isinstance(values, tuple) and all(isinstance(value, str) and compiled.fullmatch(value) for value in values)
        ),
        f"a list, each {words}",
        schema,
        may_show=False,
    )


def names_in_order(names: Collection[str], alone: Collection[str], bare: str) -> Rule:
    """A list of distinct names; those in `alone` only by themselves. `bare` stands in the file without a list."""

    def allows(values: Any) -> bool:
        if not isinstance(values, tuple) or not values:
            return False
        if len(values) == 1 and values[0] in (*alone, bare):
            return True
        return all(value in names for value in values) and len(set(values)) == len(values)

    listed = {"type": "array", "items": {"enum": list(names)}, "minItems": 1, "uniqueItems": True}
    single = {"type": "array", "items": {"enum": [*alone, bare]}, "minItems": 1, "maxItems": 1}
    words = (
        f"`{bare}` or a list of {', '.join((*alone, *names))}: "
        f"without repetition, and `{', '.join(alone)}` only by itself"
    )
    return Rule(allows, words, {"oneOf": [{"const": bare}, listed, single]})
