"""Draft messages that cannot be what they claim are refused with a reason."""

import numpy as np
import pytest

from slipstream.exchange import LAW_TOTAL, Draft, DraftToken, LawKind, SparseLaw
from verifier_svc.draft_check import Refusal, refusal

VOCAB = 10


def law(token_ids, counts):
    return SparseLaw(np.array(token_ids, dtype=np.int32), np.array(counts, dtype=np.uint16))


def sparse(token_id, token_ids, counts):
    return DraftToken(token_id, LawKind.SPARSE, law(token_ids, counts))


GOOD = sparse(3, [3, 4], [LAW_TOTAL - 8, 8])


def judge(*tokens, proposer="a"):
    return refusal(Draft(1, 1, proposer, 0, tokens), VOCAB, ("a", "b"))


def test_a_sound_path_of_all_kinds_passes():
    assert judge(DraftToken(1, LawKind.ASSUMED), DraftToken(2, LawKind.ONE_HOT), GOOD, GOOD) is None


@pytest.mark.parametrize(
    "tokens, reason",
    [
        ((), Refusal.EMPTY),
        ((DraftToken(VOCAB, LawKind.ONE_HOT),), Refusal.OUTSIDE_VOCABULARY),
        ((DraftToken(-1, LawKind.ASSUMED),), Refusal.OUTSIDE_VOCABULARY),
        ((sparse(3, [3, VOCAB], [LAW_TOTAL - 1, 1]),), Refusal.OUTSIDE_VOCABULARY),
        ((sparse(3, [3, -1], [LAW_TOTAL - 1, 1]),), Refusal.OUTSIDE_VOCABULARY),
        ((GOOD, sparse(3, [3, 4], [LAW_TOTAL, 1])), Refusal.BROKEN_LAW),
        ((sparse(3, [3, 4], [5, 5]), GOOD), Refusal.BROKEN_LAW),
        ((sparse(3, [3, 4], [LAW_TOTAL, 0]),), Refusal.BROKEN_LAW),
        ((sparse(3, [4], [LAW_TOTAL]),), Refusal.BROKEN_LAW),
        ((sparse(3, [3, 3], [LAW_TOTAL - 1, 1]),), Refusal.BROKEN_LAW),
        ((sparse(3, [], []),), Refusal.BROKEN_LAW),
        ((sparse(3, [3, 4], [LAW_TOTAL]),), Refusal.BROKEN_LAW),
        ((DraftToken(3, LawKind.SPARSE),), Refusal.BROKEN_LAW),
        ((DraftToken(3, LawKind.ONE_HOT, law([3], [LAW_TOTAL])),), Refusal.BROKEN_LAW),
    ],
)
def test_garbage_is_named(tokens, reason):
    assert judge(*tokens) is reason


def test_a_proposer_that_the_request_did_not_name_is_refused():
    assert judge(GOOD, proposer="c") is Refusal.UNKNOWN_PROPOSER
