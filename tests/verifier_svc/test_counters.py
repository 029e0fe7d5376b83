from slipstream.exchange import DraftToken, LawKind
from tests.scripted_runner import random_law
from tests.verifier_svc.harness import REMOTE, VOCAB, Harness, plain_output

LAW = random_law(VOCAB)
PROMPT = [3, 4, 5, 6, 7]


def test_garbage_drafts_are_counted_by_reason(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT)
    harness.draft(5, [])
    harness.draft(5, [VOCAB])
    harness.draft(5, [1], proposer="stranger")
    harness.draft(4, [1])
    harness.draft(9, [1])
    harness.draft(5, [DraftToken(1, LawKind.SPARSE)])
    assert harness.verifier.counters.dropped_drafts == {
        "empty": 1,
        "outside_vocabulary": 1,
        "unknown_proposer": 1,
        "stale": 2,
        "broken_law": 1,
    }


def test_passes_are_counted_by_tenant_and_proposer(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, tenant="acme", num_draft_tokens=3)
    harness.draft(5, truth[:3])
    harness.finish()
    drafted = harness.verifier.counters.passes["acme", REMOTE]
    plain = harness.verifier.counters.passes["acme", ""]
    assert (drafted.passes, drafted.draft_tokens, drafted.accepted_tokens, drafted.committed_tokens) == (1, 3, 3, 4)
    assert (plain.passes, plain.committed_tokens) == (8, 8)
