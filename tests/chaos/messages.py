"""Hypothesis strategies for any protobuf message: right ones with fields turned extreme. Knows descriptors only."""

from __future__ import annotations

import random
import struct
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

MAX_CHANGES = 4
MAX_DEPTH = 4

_INTS = {
    FieldDescriptor.TYPE_UINT32: [0, 1, 2, 7, 64, 65, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1],
    FieldDescriptor.TYPE_UINT64: [0, 1, 2, 3, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
    FieldDescriptor.TYPE_INT32: [0, 1, 5, 319, 320, -1, -(1 << 31), (1 << 31) - 1],
    FieldDescriptor.TYPE_ENUM: [0, 1, 2, 3, 7, -1, (1 << 31) - 1],
}
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3e38, float("inf"), float("-inf"), float("nan")]
_TEXTS = ["", "a", "none", "ngram", "draft_model", "\0", "\U0010ffff", "é" * 300, "x\ny", "a" * 70_000]


def _packed(kind: str, *values: int) -> bytes:
    return struct.pack(f"<{len(values)}{kind}", *values)


_BYTES = [
    b"", b"abc", b"\x00", b"\x01", b"\x02", b"\x01\x01", b"\x00\x01\x02", b"\x07", b"\xff" * 7, b"\x01" * 20_000,
    _packed("i", 5), _packed("i", 5, 6), _packed("i", 5, 6, 7), _packed("i", -1), _packed("i", 320),
    _packed("i", (1 << 31) - 1), _packed("i", *[5] * 600), _packed("i", *[5] * 20_000),
    _packed("H", 1), _packed("H", 2), _packed("H", 65535), _packed("H", 32768), _packed("H", 32767),
    _packed("H", 16384, 16384), _packed("H", 0),
]  # fmt: skip


def changed(originals: list[Message]) -> st.SearchStrategy[Message]:
    """One of the messages with up to MAX_CHANGES fields, at any depth, given another value."""
    return st.builds(_change, st.sampled_from(originals), st.integers(0, MAX_CHANGES), st.integers(0, (1 << 32) - 1))


def garbage(originals: list[Message]) -> st.SearchStrategy[bytes]:
    """Bytes that are no message: any, and a right message cut or with bytes changed."""
    return st.one_of(
        st.binary(max_size=200),
        st.builds(_damage, st.sampled_from(originals), st.integers(0, (1 << 32) - 1)),
        st.sampled_from([b"\xff" * 10, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\xc3\x28"]),
    )


def _change(original: Message, num_changes: int, seed: int) -> Message:
    choice = random.Random(seed)
    message = type(original)()
    message.CopyFrom(original)
    for _ in range(num_changes):
        _change_once(message, choice, MAX_DEPTH)
    return message


def _change_once(message: Message, choice: random.Random, depth: int) -> None:
    """Prefers fields that are set: one step from a right message reaches further than a step from an empty one."""
    filled: list[Any] = [field for field, _ in message.ListFields()] if choice.random() < 0.6 else []
    fields = filled or list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = choice.choice(fields)
    if field.message_type is not None:
        _change_part(message, field, choice, depth)
    elif field.is_repeated:
        values = getattr(message, field.name)
        values.extend(_value(field, choice) for _ in range(choice.choice([1, 2, 40])))
    else:
        setattr(message, field.name, _value(field, choice))


def _change_part(message: Message, field: FieldDescriptor, choice: random.Random, depth: int) -> None:
    if not field.is_repeated:
        getattr(message, field.name).SetInParent()
        parts = [getattr(message, field.name)]
    else:
        parts = getattr(message, field.name)
        if not parts or choice.random() < 0.3:
            parts.add().MergeFrom(parts[0]) if parts else parts.add()
    if depth > 0:
        _change_once(choice.choice(list(parts)), choice, depth - 1)


def _value(field: FieldDescriptor, choice: random.Random) -> Any:
    if field.type in _INTS:
        return choice.choice(_INTS[field.type])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return choice.random() < 0.5
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return choice.choice(_FLOATS)
    return choice.choice(_TEXTS if field.type == FieldDescriptor.TYPE_STRING else _BYTES)


def _damage(original: Message, seed: int) -> bytes:
    choice = random.Random(seed)
    data = bytearray(original.SerializeToString())
    for _ in range(choice.randrange(4)):
        if data:
            data[choice.randrange(len(data))] = choice.randrange(256)
    return bytes(data[: choice.randrange(len(data) + 1)])
