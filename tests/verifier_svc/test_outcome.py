"""Each stream hears of its own sequences, as they were when the step ended, in one piece."""

from __future__ import annotations

import pytest

from slipstream.errors import InvalidRequest
from slipstream.exchange import SequenceFailure
from slipstream.request import FinishReason
from slipstream.sampling.check import Verdict
from slipstream.text.tokenizer import Tokenizer
from tests.scripted_runner import random_law
from tests.verifier_svc.harness import VOCAB, Harness
from verifier_svc.draft_tree import DraftPath
from verifier_svc.metrics import VerifierMetrics
from verifier_svc.outcome import PassOutcome, StepOutcome, outputs_of
from verifier_svc.stopping import Taken
from verifier_svc.verify_pass import Pass


@pytest.fixture
def harness(tokenizer: Tokenizer) -> Harness:
    harness = Harness(random_law(VOCAB), tokenizer)
    for stream in (1, 2):
        harness.open([5, 6, 7], sequence_id=stream, stream=stream)
    return harness


def outcomes(harness: Harness, taken: Taken) -> list[PassOutcome]:
    shares = harness.verifier._scheduler.schedule()
    passes = [Pass(harness.verifier.sequences.of(share.sequence), share, DraftPath(), None) for share in shares]
    verdict = Verdict((9, 8, 7), 2)
    return [PassOutcome(one, verdict, taken, base=3, hit=True, waited=2e-3, is_first=True) for one in passes]


def test_a_commit_ends_where_the_output_did(harness: Harness) -> None:
    commit = outcomes(harness, Taken(2, FinishReason.STOP, "x"))[0].commit()
    assert (commit.token_ids, commit.num_accepted, commit.base) == ((9, 8), 2, 3)
    assert (commit.finish_reason, commit.stop_string) == (FinishReason.STOP, "x")
    assert (commit.hit, commit.wait_us) == (True, 2000)


def test_streams_hear_of_their_own_sequences_alone(harness: Harness) -> None:
    metrics, failure = VerifierMetrics(), SequenceFailure(7, InvalidRequest("no"))
    outputs = outputs_of(StepOutcome(outcomes(harness, Taken(3))), [(2, failure), (3, failure)], metrics)
    assert outputs is not None
    heard = {o.stream: ([c.sequence_id for c in o.commits.commits], len(o.failures)) for o in outputs}
    assert heard == {1: ([1], 0), 2: ([2], 1), 3: ([], 1)}


def test_a_step_without_news_says_nothing() -> None:
    assert outputs_of(StepOutcome(), [], VerifierMetrics()) is None
