"""What may be asked of an evaluation, and what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.evaluation.asked import Asked, Candidate
from slipstream.errors import InvalidRequest


def test_a_candidate_is_a_name_and_for_some_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "b=c"
    folder.mkdir()
    assert Candidate.parse("ngram") == Candidate(proposer="ngram")
    assert Candidate.parse(f"pard={folder}") == Candidate(proposer="pard", folder=folder)
    assert Candidate.parse(f"pard={folder}").label == "pard b=c"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("draft_model", "write draft_model=FOLDER"),
        ("pard=no/such", "proposer pard: there is no model at no/such"),
        ("ngram=x", "leave out =x"),
        ("oracle", "'oracle'.*none, ngram"),
    ],
)
def test_a_candidate_that_cannot_be_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Candidate.parse(text)


def test_values_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="num_draft_tokens is 65"):
        Asked(num_draft_tokens=65)
    with pytest.raises(InvalidRequest, match="temperature is -1"):
        Asked(temperature=-1.0)
