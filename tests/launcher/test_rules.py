"""What values may be: each rule says yes and no, takes any type without failing, and is told in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher import rules
from launcher.rules import Rule

ODD = (None, True, 1.5, -1, "", "x", [], {}, (), b"")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (rules.whole(0, 3), (0, 3), (-1, 4, True, 1.0, "1", None)),
        (rules.one_of(("a", "b")), ("a", "b"), ("c", None, 1, [])),
        (rules.seconds(0, 10), (0, 2.5, 10), (-1, 11, True, "1", None, float("nan"))),
        (rules.boolean(), (True, False), (0, 1, "true", None)),
        (rules.key_hash(), ("", "0" * 64), ("0" * 63, "F" * 64, "0" * 64 + "\n", None, 0)),
        (
            rules.collector(),
            ("", "http://h:4318", "https://h/v1/traces", "http://h:1/"),
            ("h:4318", "grpc://h:1", "http://h:1/v1/metrics", "http://", None, 0),
        ),
        (rules.text(), ("", "a b"), ("a\nb", None, 1)),
        (
            rules.address(),
            ("h:0", "127.0.0.1:65535", "[::1]:1"),
            ("h", ":1", "h:65536", "h:-1", "h:٣", "", 50051, None),
        ),
        (
            rules.peer(),
            ("h:1", "dns:///verifiers.example:65535"),
            ("h:0", "", "dns:///h", "dns://h:1", "http://h:1", None),
        ),
        (rules.address(empty="none"), ("h:0", ""), ("h", None)),
        (rules.list_of(rules.device(), least=1), (("cpu",), ("cuda:0", "cuda")), ((), ["cpu"], "cpu", ("gpu",), None)),
        (rules.memory(), ("512MiB", "4GiB"), ("512", "0MiB", "-1GiB", "4 GiB", "4GB", 512, None)),
        (rules.existing_path(optional=False), (Path("/"),), (Path("/absent"), None, "/")),
        (rules.existing_path(optional=True), (Path("/"), None), (Path("/absent"), "/")),
    ],
)
def test_a_rule_takes_what_it_says_and_nothing_else(rule: Rule, good: tuple[object], bad: tuple[object]) -> None:
    assert [value for value in good if not rule.allows(value)] == []
    assert [value for value in (*bad,) if rule.allows(value)] == []
    for value in ODD:
        rule.allows(value)  # no value makes it raise


def test_a_problem_names_field_value_and_range() -> None:
    assert rules.problem("threads", -1, rules.whole(0, 4, "all")) == (
        "threads is -1; it must be a whole number in 0..4 (0: all)"
    )
    assert rules.problem("model", Path("/absent"), rules.existing_path(optional=False)).startswith("model is /absent; ")
    assert rules.problem("threads", 2, rules.whole(0, 4)) == ""


def test_memory_is_counted_in_mebibytes() -> None:
    assert (rules.mebibytes("512MiB"), rules.mebibytes("4GiB")) == (512, 4096)


def test_an_address_moves_by_ports_only_if_it_has_one() -> None:
    assert [rules.moved(value, 2) for value in ("h:1", "h:0", "")] == ["h:3", "h:0", ""]
