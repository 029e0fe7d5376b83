"""What values a policy may have: code, words and schema say the same."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from gateway.policy import rules
from gateway.policy.rules import Rule

NAMES = rules.names_in_order(("ngram", "draft_model"), ("none",), "auto")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (rules.whole(1, 9), [1, 9], [0, 10, 1.5, True, "1", None]),
        (rules.number(0, 1), [0, 1, 0.5], [-0.1, 1.1, True, "0", None]),
        (rules.one_of(("a", "b")), ["a", "b"], ["c", "", None, 1]),
        (rules.boolean(), [True, False], [0, 1, "true", None]),
        (rules.text(1), ["a", " "], ["", None, 1]),
    ],
    ids=["whole", "number", "one_of", "boolean", "text"],
)
def test_code_and_schema_allow_the_same(rule: Rule, good: list[Any], bad: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(rule.schema)
    assert [value for value in good if not (rule.allows(value) and validator.is_valid(value))] == []
    assert [value for value in bad if rule.allows(value) or validator.is_valid(value)] == []


@pytest.mark.parametrize("names", [["ngram"], ["draft_model", "ngram"], ["none"], ["auto"]])
def test_names_stand_in_order_or_alone(names: list[str]) -> None:
    assert NAMES.allows(tuple(names))
    assert jsonschema.Draft202012Validator(NAMES.schema).is_valid(names)


@pytest.mark.parametrize(
    "names", [[], ["magic"], ["none", "ngram"], ["auto", "ngram"], ["ngram", "ngram"], [["ngram"]]]
)
def test_no_other_list_of_names_is_allowed(names: list[Any]) -> None:
    assert not NAMES.allows(tuple(names))
    assert not jsonschema.Draft202012Validator(NAMES.schema).is_valid(names)


def test_not_a_number_is_no_number() -> None:
    assert not rules.number(0, 1).allows(float("nan"))


def test_what_is_wrong_is_told_with_field_value_and_range() -> None:
    with pytest.raises(ValueError, match=r"share is 0; it must be a whole number in 1\.\.9$"):
        rules.require("share", 0, rules.whole(1, 9))
    with pytest.raises(ValueError, match=r"a whole number in 0\.\.9 \(0: no limit\)"):
        rules.require("tokens", -1, rules.whole(0, 9, "no limit"))


def test_what_may_be_a_secret_is_not_told() -> None:
    rule = rules.hashes("[0-9a-f]{4}", "four hex digits")
    assert rule.allows(("12ab",))
    with pytest.raises(ValueError, match="each four hex digits") as raised:
        rules.require("key", ("my secret",), rule)
    assert "secret" not in str(raised.value)
