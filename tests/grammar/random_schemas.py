"""Makes random JSON schemas of what is enforced, and random outputs of a compiled grammar. Knows no model."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from slipstream.grammar.compiler import CompiledGrammar

MAX_WALK = 400


def random_schema(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """An object with bounded strings and arrays at the top, so that a random model comes to an end."""
    return _object(rng, depth)


def _any(rng: random.Random, depth: int) -> dict[str, Any]:
    simple = [_integer, _number, _boolean, _null, _string, _pattern, _enum, _const, _format]
    nested = [_object, _array, _tuple, _either, _map] if depth else []
    return rng.choice(simple + nested)(rng, depth - 1)


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(["name", "age", "is_ok", "note", 'a "quoted" one', "größe", "x"], rng.randint(1, 3))
    properties = {name: _any(rng, depth) for name in names}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [name for name in names if rng.random() < 0.7]
    return schema | ({"required": required} if required else {})


def _map(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "object", "propertyNames": {"pattern": "^[a-c]{1,2}$"}, "additionalProperties": _any(rng, 0)}


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.randint(0, 2)
    return {"type": "array", "items": _any(rng, depth), "minItems": least, "maxItems": least + rng.randint(0, 2)}


def _tuple(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "array", "prefixItems": [_any(rng, 0), _any(rng, 0)], "items": False, "minItems": 2}


def _either(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(rng, depth), {"type": "null"}], "description": "may be missing"}


def _integer(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(-1000, 1000)
    return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 5000)}


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(-100, 100) / 4
    return {"type": "number", "minimum": low, "exclusiveMaximum": low + rng.randint(1, 500) / 4}


def _boolean(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "boolean"}


def _null(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "null"}


def _string(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.randint(0, 3)
    return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 5)}


def _pattern(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "string", "pattern": rng.choice(["^[a-z]{2,5}$", "^(yes|no|maybe)$", "^[A-Z][0-9]{3}$", "^x+.y?$"])}


def _enum(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"enum": rng.sample(["red", "grün", 1, 2.5, None, True, {"a": [1, 2]}, 'with "quotes" \\'], 3)}


def _const(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"const": rng.choice(["fixed", 12, ["a", "b"], {"deep": {"er": False}}])}


def _format(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "string", "format": rng.choice(["date", "time", "uuid", "ipv4"])}


class RandomOutputs:
    """Walks through a grammar: any token that it allows, those that close something more often."""

    def __init__(self, token_bytes: list[bytes], end_token_id: int, seed: int = 0) -> None:
        self._token_bytes = token_bytes
        self._end = end_token_id
        self._closing = {end_token_id, *(i for i, text in enumerate(token_bytes) if text in (b'"', b"}", b"]"))}
        self._rng = random.Random(seed)

    def one(self, grammar: CompiledGrammar) -> bytes | None:
        """A whole output; None if it came to no end."""
        matcher, output = grammar.matcher(), b""
        bits = np.zeros((1, -(-len(self._token_bytes) // 32)), dtype=np.int32)
        for _ in range(MAX_WALK):
            matcher.fill((), bits)
            flags = np.unpackbits(bits.view(np.uint8), bitorder="little")[: len(self._token_bytes)]
            token_id = self._choose(np.flatnonzero(flags).tolist())
            assert matcher.advance((token_id,)) == 1, f"a dead end after {output!r}"
            if token_id == self._end:
                return output
            output += self._token_bytes[token_id]
        return None

    def _choose(self, allowed: list[int]) -> int:
        closing = [token_id for token_id in allowed if token_id in self._closing]
        return self._rng.choice(closing if closing and self._rng.random() < 0.5 else allowed)
