"""What the values of a configuration may be, in code and in words. Knows kinds of values; no field by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slipstream.errors import quoted

MAX_PORT: Final = 65535

_MEMORY: Final = re.compile(r"([1-9][0-9]{0,8})(MiB|GiB)")
_DEVICE: Final = re.compile(r"cpu|cuda(:[0-9]{1,3})?")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_COLLECTOR: Final = re.compile(r"https?://[^/\s]+(/v1/traces)?/?")
_MIB: Final = {"MiB": 1, "GiB": 1024}


@dataclass(frozen=True, slots=True)
class Rule:
    allows: Callable[[Any], bool]  # any value at all may be asked about
    allowed: str  # completes "it must be ..."


def problem(field: str, value: object, rule: Rule) -> str:
    """What is wrong with a field's value; empty if nothing is."""
    if rule.allows(value):
        return ""
    shown = str(value) if isinstance(value, Path) else quoted(list(value) if isinstance(value, tuple) else value)
    return f"{field} is {shown}; it must be {rule.allowed}"


def require(owner: object, rules: Mapping[str, Rule]) -> None:
    """Raises ValueError with field, value and range unless every attribute of `owner` is as its rule says."""
    for field, rule in rules.items():
        if text := problem(field, getattr(owner, field), rule):
            raise ValueError(text)


def whole(low: int, high: int, zero: str = "") -> Rule:
    """`zero` says what 0 stands for, if it stands for something."""
    words = f"a whole number in {low}..{high}" + (f" (0: {zero})" if zero else "")
    return Rule(lambda value: type(value) is int and low <= value <= high, words)


def share() -> Rule:
    return Rule(lambda value: type(value) in (int, float) and 0 <= value < 1, "a number in [0, 1)")


def seconds(low: float, high: float) -> Rule:
    return Rule(lambda value: type(value) in (int, float) and low <= value <= high, f"seconds in {low:g}..{high:g}")


def one_of(names: Collection[str]) -> Rule:
    return Rule(lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}")


def boolean() -> Rule:
    return Rule(lambda value: isinstance(value, bool), "true or false")


def text() -> Rule:
    return Rule(lambda value: isinstance(value, str) and value.isprintable(), "a line of text")


def key_hash() -> Rule:
    return Rule(
        lambda value: value == "" or (isinstance(value, str) and _HASH.fullmatch(value) is not None),
        "the SHA-256 of a key, 64 hex digits in lower case, or empty",
    )


def collector() -> Rule:
    return Rule(
        lambda value: value == "" or (isinstance(value, str) and _COLLECTOR.fullmatch(value) is not None),
        "the address of a collector of traces, such as http://127.0.0.1:4318, or empty",
    )


def existing_path(*, optional: bool) -> Rule:
    return Rule(
        lambda value: value.exists() if isinstance(value, Path) else optional and value is None,
        "the path of something that exists",
    )


def address(*, empty: str = "") -> Rule:
    """`empty` says what no address at all stands for, if that is allowed."""
    words = f"host:port with a port in 0..{MAX_PORT} (0: any free one)"
    return Rule(
        lambda value: isinstance(value, str) and (port_of(value) >= 0 or (bool(empty) and not value)),
        words + (f", or empty: {empty}" if empty else ""),
    )


def peer() -> Rule:
    """Where a service runs that is not started here."""

    def allows(value: Any) -> bool:
        where = value.removeprefix("dns:///") if isinstance(value, str) else ""
        return "/" not in where and port_of(where) > 0

    return Rule(allows, f"host:port, or dns:///name:port for all behind a name, with a port in 1..{MAX_PORT}")


def port_of(value: str) -> int:
    """The port of host:port; -1, below every port, if it is none."""
    host, _, port = value.rpartition(":")
    return int(port) if host and port.isascii() and port.isdecimal() and int(port) <= MAX_PORT else -1


def moved(value: str, ports: int) -> str:
    """The address so many ports further on; one that has no port of its own stays as it is."""
    host, _, port = value.rpartition(":")
    return f"{host}:{int(port) + ports}" if port_of(value) > 0 else value


def list_of(item: Rule, least: int = 0) -> Rule:
    """Of tuples: a list of the file has become one."""
    return Rule(
        lambda value: isinstance(value, tuple) and len(value) >= least and all(map(item.allows, value)),
        f"a list{' that is not empty' if least else ''}, each {item.allowed}",
    )


def memory() -> Rule:
    return Rule(
        lambda value: isinstance(value, str) and bool(_MEMORY.fullmatch(value)), "a size such as 512MiB or 4GiB"
    )


def mebibytes(value: str) -> int:
    match = _MEMORY.fullmatch(value)
    assert match, "memory() allows no other"
    return int(match[1]) * _MIB[match[2]]


def device() -> Rule:
    return Rule(lambda value: isinstance(value, str) and bool(_DEVICE.fullmatch(value)), "cpu, cuda or cuda:N")
