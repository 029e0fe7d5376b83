"""Counts of passes: the four of speculative decoding, and what became final."""

from __future__ import annotations

from slipstream.exchange import Commit
from slipstream.metrics.endpoint import make_registry
from slipstream.metrics.passes import PassTally
from slipstream.request import FinishReason


def commit(num_tokens: int, num_accepted: int = 0, num_draft_tokens: int = 0, **fields: object) -> Commit:
    proposer = "ngram" if num_draft_tokens else ""
    return Commit(1, 10, tuple(range(num_tokens)), num_accepted, num_draft_tokens, proposer, **fields)  # type: ignore[arg-type]


def test_the_four_counts_of_speculative_decoding_are_kept_by_tenant_and_proposer() -> None:
    passes = PassTally()
    for one in (commit(3, 2, 4), commit(1, 0, 4), commit(5, 4, 4)):
        passes.add("acme", one)
    passes.add("acme", commit(1))
    passes.add("else", commit(2, 1, 1))
    registry = make_registry("test", [passes])

    def value(name: str, **labels: str) -> float | None:
        labels = {"tenant": "acme", "proposer": "ngram"} | labels
        return registry.get_sample_value(f"slipstream_{name}_total", labels)

    assert value("spec_decode_num_drafts") == 3
    assert value("spec_decode_num_draft_tokens") == 12
    assert value("spec_decode_num_accepted_tokens") == 6
    per_position = [value("spec_decode_num_accepted_tokens_per_pos", position=str(i)) for i in range(4)]
    assert per_position == [2, 2, 1, 1]
    assert (value("passes"), value("committed_tokens")) == (3, 9)
    assert (value("passes", proposer="none"), value("spec_decode_num_drafts", proposer="none")) == (1, 0)
    assert value("committed_tokens", tenant="else") == 2


def test_committed_is_accepted_plus_one_per_pass_less_those_that_ended_inside_the_draft() -> None:
    passes = PassTally()
    passes.add("acme", commit(3, 2, 4))
    passes.add("acme", commit(2, 2, 4, finish_reason=FinishReason.STOP))
    counts = passes.of("acme", "ngram")
    assert (counts.cut, counts.committed) == (1, 5)
    assert counts.committed == counts.accepted + counts.passes - counts.cut
