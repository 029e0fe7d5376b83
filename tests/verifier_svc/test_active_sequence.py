"""What one sequence feeds and asks of a pass."""

import pytest

from slipstream.cache.block_pool import BlockPool
from slipstream.engine.scheduler import Share
from slipstream.engine.sequence import EngineSequence
from slipstream.exchange import Draft, DraftToken, LawKind, Update
from slipstream.request import SamplingParams, SequenceRequest
from slipstream.sampling.philox import derive_key
from verifier_svc.active_sequence import ActiveSequence
from verifier_svc.draft_check import Refusal
from verifier_svc.draft_tree import DraftPath
from verifier_svc.local_drafts import LocalDrafts
from verifier_svc.stopping import StopRule

PROMPT = (5, 6, 7, 5, 6)


@pytest.fixture
def make_active(tokenizer):
    def make(local_proposers=("ngram",), **options):
        defaults = {"proposers": ("draft_model", "ngram"), "num_draft_tokens": 4, "seed": 9, "nonce": 3}
        request = SequenceRequest(
            sequence_id=1,
            token_ids=PROMPT,
            num_prompt_tokens=len(PROMPT),
            sampling=SamplingParams(max_tokens=20),
            **(defaults | options),
        )
        engine = EngineSequence(BlockPool(16, 4), PROMPT, tenant="", max_len=25, num_draft_tokens=4)
        engine.start()
        stop = StopRule(request, eos_token_ids=(), max_len=25, tokenizer=tokenizer)
        return ActiveSequence(1, request, engine, stop, local=LocalDrafts(request, local_proposers), opened_at=10.0)

    return make


def draft(*token_ids, base=5, proposer="draft_model"):
    return Draft(1, base, proposer, 0, tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids))


def whole(active, num_draft_tokens=4):
    return Share(active.engine, len(PROMPT), num_draft_tokens, completes=True)


def test_a_completing_pass_feeds_what_is_uncomputed_and_the_drafts(make_active):
    active = make_active()
    assert active.insert(draft(8, 9), vocab_size=20) is None
    path = active.start_pass(whole(active), now=10.5)
    chunk = active.chunk(whole(active), path)
    assert (tuple(chunk.token_ids), chunk.start, chunk.num_logits) == ((*PROMPT, 8, 9), 0, 3)
    assert active.waited == 0.5


def test_a_part_of_a_prompt_asks_for_no_logits(make_active):
    active = make_active()
    chunk = active.chunk(Share(active.engine, 3, 0, completes=False), DraftPath())
    assert (tuple(chunk.token_ids), chunk.num_logits) == (PROMPT[:3], 0)


def test_the_check_is_keyed_by_seed_and_nonce_and_stands_after_the_committed_tokens(make_active):
    active = make_active()
    check = active.check(DraftPath("draft_model", draft(8).tokens))
    assert (check.base, check.seed, check.accept_key) == (len(PROMPT), 9, derive_key(9, 3))
    assert check.draft == draft(8).tokens


def test_the_share_bounds_the_path(make_active):
    active = make_active()
    active.insert(draft(8, 9, 10), vocab_size=20)
    assert len(active.start_pass(whole(active, 2), now=10.0).tokens) == 2
    assert active.start_pass(whole(active, 0), now=10.0) == DraftPath()


def test_without_a_path_it_looks_back_in_its_own_text(make_active):
    path = make_active().start_pass(whole(make_active()), now=10.0)
    assert (path.proposer, [token.token_id for token in path.tokens]) == ("ngram", [7, 5, 6, 7])


def test_looking_back_sees_committed_tokens_only(make_active):
    active = make_active()
    active.insert(draft(8, 9), vocab_size=20)
    active.start_pass(whole(active), now=10.0)
    active.engine.note_computed(len(PROMPT))
    active.commit((11,), 0)
    assert active.start_pass(Share(active.engine, 1, 4, completes=True), now=10.0) == DraftPath()


@pytest.mark.parametrize("options", [{"proposers": ("draft_model",)}, {"local_proposers": ()}], ids=str)
def test_looking_back_needs_the_requests_and_the_verifiers_leave(make_active, options):
    active = make_active(**options)
    assert active.start_pass(whole(active), now=10.0) == DraftPath()


def test_drafts_are_judged_before_they_enter_the_tree(make_active):
    active = make_active()
    assert active.insert(draft(20), vocab_size=20) is Refusal.OUTSIDE_VOCABULARY
    assert active.insert(draft(8, base=7), vocab_size=20) is Refusal.STALE
    assert active.insert(draft(8), vocab_size=20) is None
    assert active.insert(draft(9), vocab_size=20) is Refusal.CONTRADICTION


def test_with_no_draft_tokens_allowed_nothing_is_drafted_or_waited_for(make_active):
    active = make_active(max_wait_us=1000)
    active.insert(draft(8, 9), vocab_size=20)
    active.update(Update(1, num_draft_tokens=0, fan_out=0, max_wait_us=1000))
    assert active.engine.most_draft_tokens == 0
    assert not active.awaits_drafts
    assert active.start_pass(whole(active, num_draft_tokens=0), now=10.5).tokens == ()
