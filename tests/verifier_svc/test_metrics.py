"""What the verifier counts, by tenant and proposer."""

from slipstream.exchange import DraftToken, LawKind
from slipstream.metrics.endpoint import make_registry
from tests.scripted_runner import random_law
from tests.verifier_svc.harness import REMOTE, VOCAB, Harness, plain_output

LAW = random_law(VOCAB)
PROMPT = [3, 4, 5, 6, 7]


def sample(harness, name, **labels):
    return make_registry("verifier", vars(harness.verifier.metrics).values()).get_sample_value(name, labels)


def test_garbage_drafts_are_counted_by_reason(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT)
    harness.draft(5, [])
    harness.draft(5, [VOCAB])
    harness.draft(5, [1], proposer="stranger")
    harness.draft(4, [1])
    harness.draft(9, [1])
    harness.draft(5, [DraftToken(1, LawKind.SPARSE)])
    reasons = ("empty", "outside_vocabulary", "unknown_proposer", "stale", "broken_law", "contradiction")
    assert [harness.verifier.metrics.dropped_drafts.value(reason) for reason in reasons] == [1, 1, 1, 2, 1, 0]


def test_passes_are_counted_by_tenant_and_proposer(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, tenant="acme", num_draft_tokens=3)
    harness.draft(5, truth[:3])
    harness.finish()
    drafted = harness.verifier.metrics.passes.of("acme", REMOTE)
    plain = harness.verifier.metrics.passes.of("acme")
    assert (drafted.passes, drafted.draft_tokens, drafted.accepted, drafted.committed) == (1, 3, 3, 4)
    assert (plain.passes, plain.committed) == (8, 8)


def test_a_hit_is_counted_among_the_passes_that_had_room_for_drafts(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, tenant="acme", num_draft_tokens=3, sampling={"max_tokens": 12})
    harness.draft(5, truth[:3])
    harness.finish()
    metrics = harness.verifier.metrics
    assert (metrics.tree_ready.value("acme", REMOTE), metrics.tree_hits.value("acme", REMOTE)) == (1, 1)
    # The last pass of all has room for its own token only.
    assert (metrics.tree_ready.value("acme", "none"), metrics.tree_hits.value("acme", "none")) == (7, 0)


def test_steps_are_timed_and_sized(tokenizer):
    harness = Harness(LAW, tokenizer)
    for sequence_id in (1, 2):
        harness.open([sequence_id, *PROMPT], sequence_id, sampling={"max_tokens": 2})
    harness.finish()
    assert sample(harness, "slipstream_step_seconds_count") == 2
    assert sample(harness, "slipstream_verify_seconds_count") == 2
    assert sample(harness, "slipstream_step_sequences_sum") == 4
    assert sample(harness, "slipstream_step_tokens_sum") == 2 * (1 + len(PROMPT)) + 2


def test_the_time_until_the_first_step_is_the_queue_time(tokenizer):
    harness = Harness(LAW, tokenizer, max_num_seqs=1)
    for sequence_id in (1, 2):
        harness.open(PROMPT, sequence_id, tenant="acme", sampling={"max_tokens": 2})
    for _ in range(6):
        harness.step(seconds=1)
    assert sample(harness, "slipstream_queue_seconds_count", tenant="acme") == 2
    assert sample(harness, "slipstream_queue_seconds_sum", tenant="acme") == 2
    assert sample(harness, "slipstream_wait_seconds_count", tenant="acme", proposer="none") == 4
