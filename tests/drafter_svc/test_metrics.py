"""What the drafter counts and times, on a scripted model."""

from __future__ import annotations

from slipstream.exchange import Commit
from slipstream.metrics.endpoint import make_registry
from slipstream.request import FinishReason
from tests.drafter_svc.scripted import Setup, request


def sample(setup: Setup, name: str) -> float | None:
    return make_registry("drafter", vars(setup.drafter.metrics).values()).get_sample_value(f"slipstream_{name}")


def test_passes_of_open_sequences_are_counted_once_however_often_they_are_told() -> None:
    setup = Setup()
    asked = request()
    setup.open(asked)
    setup.drafts()
    num_tokens, proposer = len(asked.token_ids), asked.proposers[0]
    first = Commit(asked.sequence_id, num_tokens, (1,))
    second = Commit(asked.sequence_id, num_tokens + 1, (1, 2), num_accepted=1, num_draft_tokens=3, proposer=proposer)
    last = Commit(asked.sequence_id, num_tokens + 3, (4,), finish_reason=FinishReason.LENGTH)
    for commit in (first, first, second, last, last):
        setup.commit(commit)
    plain, drafted = (setup.drafter.metrics.passes.of(asked.tenant, name) for name in ("none", proposer))
    assert (plain.passes, plain.committed) == (2, 2)
    assert (drafted.passes, drafted.committed, drafted.draft_tokens, drafted.accepted) == (1, 2, 3, 1)


def test_steps_and_offers_are_counted() -> None:
    setup = Setup()
    setup.open(request())
    drafts = setup.drafts()
    assert sample(setup, "offered_drafts_total") == len(drafts) > 0
    assert sample(setup, "offered_tokens_total") == sum(len(draft.tokens) for draft in drafts)
    assert sample(setup, "step_seconds_count") == sample(setup, "step_rows_count") == len(setup.runner.forwards)
    assert sample(setup, "draft_seconds_count") == sample(setup, "held_seconds_count")
