"""What a report says of counted passes: rates of sums, agreement where a draft token was decided, one JSON document."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from launcher.evaluation.report import Evaluation, as_json_text, as_table, usage_of
from slipstream.exchange import Commit


def commit(num_accepted: int, num_draft_tokens: int) -> Commit:
    return Commit(1, 10, tuple(range(num_accepted + 1)), num_accepted, num_draft_tokens, "ngram")


ANSWERS = [[commit(0, 0), commit(3, 3), commit(1, 3)], [commit(0, 0), commit(0, 3), commit(0, 0)]]


def test_counts_are_those_that_a_gateway_adds_up() -> None:
    usage = usage_of(ANSWERS[0])
    assert (usage.completion_tokens, usage.num_passes, usage.num_drafts) == (7, 3, 2)
    assert (usage.num_draft_tokens, usage.accepted_tokens) == (6, 4)
    assert list(usage.accepted_per_position) == [2, 1, 1]
    assert list(usage.submitted_per_position) == [2, 2, 2]


def test_rates_are_of_all_answers_together() -> None:
    values = Evaluation.of_passes("ngram", ANSWERS).as_dict()
    assert values["acceptance_length"] == pytest.approx(1 + 4 / 3)
    assert values["acceptance_per_position"] == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert values["tokens_per_pass"] == pytest.approx(10 / 6)


def test_agreement_counts_only_tokens_that_followed_accepted_ones() -> None:
    # Decided: 3 at the first place, 2 at the second, 1 at the third.
    assert Evaluation.of_passes("ngram", ANSWERS).agreement == pytest.approx(4 / 6)
    assert Evaluation.of_passes("none", [[commit(0, 0)]]).agreement == 0


def test_a_table_and_a_document_name_every_evaluation() -> None:
    evaluations = [Evaluation.of_passes(name, ANSWERS) for name in ("one", "other")]
    out = StringIO()
    Console(file=out, width=100).print(as_table(evaluations))
    assert "one" in out.getvalue()
    assert "0.67 0.33 0.33" in out.getvalue()
    assert [entry["name"] for entry in json.loads(as_json_text(evaluations))] == ["one", "other"]
